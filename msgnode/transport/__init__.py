"""
Network transport: endpoints, TLS, listening ports, and one write for each read.
"""
