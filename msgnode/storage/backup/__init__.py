"""
Backups of the state directory: made while the node runs, restored while it is stopped.
"""
