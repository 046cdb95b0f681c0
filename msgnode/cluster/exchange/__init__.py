"""
The exchange of messages between the nodes of one domain.
"""
