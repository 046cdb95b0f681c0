"""
The node's own proxy: all connections for foreign domains are made here, to checked addresses only.
"""
