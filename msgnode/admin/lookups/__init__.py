"""
Lookups: what the policies and the domain registry say about a session or an address.
"""
