"""
The node's own responders that bind addresses: allocation and subscriptions.
"""
