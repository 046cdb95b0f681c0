"""
msgnode, a domain messaging node.  docs/architecture.md draws its rooms and follows one message through them.
"""

__version__ = "0.1.0"
