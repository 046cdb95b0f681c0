"""
The command `msgnode`, for people.
"""
