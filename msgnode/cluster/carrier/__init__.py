"""
The carrier over NATS: links to the other nodes of the domain.
"""
