"""
The transport of the client for networks that let only HTTP pass.
"""
