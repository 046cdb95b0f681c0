"""
Access control for sessions and addresses: tokens, identities, takeover, address ownership.
"""
