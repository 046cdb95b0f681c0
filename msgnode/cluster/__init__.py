"""
Several nodes of one domain, which reach each other over NATS.
"""
