"""
Nodes of several domains in a chain under load: their clients, what is done to the nodes, and the verdict.
"""
