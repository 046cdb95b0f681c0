"""
Data structures and small tools that know nothing of messages: each could be a library of its own.
"""
