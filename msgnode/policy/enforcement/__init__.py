"""
The policy enforcement point (XACML's PEP): asks for decisions and carries out obligations.
"""
