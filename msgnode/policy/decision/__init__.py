"""
The policy decision point (XACML's PDP): a message in, a decision out.  It knows no node.
"""
