"""
The lifecycle of a stub: when a process of it is started, replaced, started again and stopped.
"""
