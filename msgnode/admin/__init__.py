"""
The operators' listener: health, metrics, policies.
"""
