"""
The dashboard: pages of the admin listener for people, rendered by the node.
"""
