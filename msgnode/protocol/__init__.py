"""
The wire protocol: addresses, messages, errors, close codes.
"""
