"""
OpenID providers: whose is a token, and is it good?
"""
