"""
The journal of kept objects on disk: their messages, reduced snapshots, and what is missing.
"""
