"""
The directory of a cluster: the members that hold each address.
"""
