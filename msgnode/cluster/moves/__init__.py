"""
Moves of sessions from one member of a cluster to another.
"""
