"""
Load with faults: many clients, a node that is killed, and a verdict from the clients' own records.
"""
