"""
The services that `twistd msgnode` starts, in their order.
"""
