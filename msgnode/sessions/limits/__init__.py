"""
Resource limits of clients: connections, rates, memory, disk.
"""
