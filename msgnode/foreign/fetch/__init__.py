"""
The code of stubs: what a stub is, where it is fetched, and the copies on disk.
"""
