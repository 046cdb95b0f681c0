"""
The web port: REST, long-polling, the protostub, and the bounds of who comes to them.
"""
