"""
The domain registry and the global registry, asked for the node's clients.
"""
