"""
Verbs of `msgnode admin` by which an operator acts: on sessions, clients and the node.
"""
