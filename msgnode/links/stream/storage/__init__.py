"""
Storage of streams: entries, counts and epochs, which survive a restart.
"""
