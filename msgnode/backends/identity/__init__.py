"""
Authentication by OpenID providers: which user does a token belong to, and is it valid?
"""
