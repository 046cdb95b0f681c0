"""
Records on the bus: the definitions that the node knows, the check of messages, the catalogue, and the
node's own notifications.
"""
