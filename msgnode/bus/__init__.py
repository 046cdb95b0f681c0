"""
The path of a message: ingress, handshake, router, responders.
"""
