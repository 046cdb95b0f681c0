"""
The measurements of several nodes of one domain.
"""
