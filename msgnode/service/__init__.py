"""
What `twistd msgnode` starts, and in which order.
"""
