"""
Safety of streams: the keys that two nodes agree on, the tag of each datagram, and encryption.
"""
