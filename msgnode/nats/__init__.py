"""
A NATS client for Twisted: connections, subscriptions, publications, requests. It knows nothing of messaging
nodes.
"""
