"""
Ownership: which member decides about what there is once in the domain, and the leases of pools.
"""
