"""
What is on the wire: addresses, messages, errors, close codes.
"""
