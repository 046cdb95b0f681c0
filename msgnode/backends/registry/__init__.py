"""
The responders for the domain registry and the global registry, and their HTTP calls.
"""
