"""
The endpoints of the admin API: which path is answered by which read or action.
"""
