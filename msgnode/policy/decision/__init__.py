"""
The policy decision point (XACML's PDP): it decides about a message, and knows nothing of a node.
"""
