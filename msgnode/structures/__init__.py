"""
Data structures and small tools that know nothing of messages. Each could be a library of its own.
"""
