"""
Carriers: they take datagrams to a neighbour, at most once.
"""
