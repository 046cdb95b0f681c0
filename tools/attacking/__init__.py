"""
Attacks on a node, over sockets: what hostile clients may send, and what must be true afterwards.
"""
