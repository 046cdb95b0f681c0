"""
Bytes in and out: endpoints, TLS, listening ports, and one write for each read.
"""
