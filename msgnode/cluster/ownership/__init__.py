"""
What there is once in the domain: which member decides about it, and the leases of pools.
"""
