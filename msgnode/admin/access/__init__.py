"""
Access of operators to the admin listener: tokens with roles, the throttle of failures, and the audit log.
"""
