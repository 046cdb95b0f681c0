"""
msgnode, a domain Messaging Node.
"""

__version__ = "0.1.0"
