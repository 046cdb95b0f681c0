"""
Servers behind the node, called over HTTP: registries, identity providers, QoS, policy repository.
"""
