"""
The servers that are compared, and how they are installed and started.
"""
