"""
Who may have a session, an address, or a name: tokens, identities, takeover.
"""
