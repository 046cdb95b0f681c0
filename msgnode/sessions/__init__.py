"""
A runtime's place at the node: its connection, its queue, its acknowledged delivery.
"""
