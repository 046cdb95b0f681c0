"""
The node that is attacked, in a process of its own.
"""
