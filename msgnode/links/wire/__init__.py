"""
The wire format between nodes.
"""
