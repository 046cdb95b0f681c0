"""
The processes that make the load: clients over their transports, and other programs that are compared.
"""
