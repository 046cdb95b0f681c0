"""
The node under test in a process of its own, and the proxies before it.
"""
