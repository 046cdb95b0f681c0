"""
Streams: numbered, acknowledged, stored delivery from a source node to a destination node.
"""
