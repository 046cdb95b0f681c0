"""
The overlay: the map of nodes and links, and the next hop of a datagram.
"""
