"""
A traffic log of a domain that does not exist, with things in it for tools/mine.py to find.
"""
