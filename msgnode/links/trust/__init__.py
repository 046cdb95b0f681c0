"""
Trust between nodes: the certificates of peers, and this node's own.
"""
