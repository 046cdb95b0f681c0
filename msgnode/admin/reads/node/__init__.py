"""
Reads of the node itself: its report with what is wrong, its memory, its configuration, and the other nodes.
"""
