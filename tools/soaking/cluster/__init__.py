"""
Several nodes of one domain under load: their clients, what is done to them and to NATS, and the verdict.
"""
