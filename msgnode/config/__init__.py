"""
The configuration: every key an operator can set, its checks, and reloading it.
"""
