"""
A certificate authority and certificates of nodes, to try links between nodes with.
"""
