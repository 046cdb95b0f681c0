"""
Subscriptions across domains: those of other nodes here, and those of this node's clients elsewhere.
"""
