"""
The process of a node: what it tells the service manager, and the form of its log.
"""
