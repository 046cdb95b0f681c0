"""
The clients: those that attack, and one that does nothing wrong meanwhile.
"""
