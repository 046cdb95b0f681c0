"""
The relay of HTTP requests to the member that holds their session.
"""
