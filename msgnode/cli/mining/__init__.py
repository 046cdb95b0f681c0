"""
The verbs of `msgnode mine` that read a mined directory.
"""
