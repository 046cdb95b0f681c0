"""
Routes: the graph of the network, shortest paths, and the explanation of both.
"""
