"""
Actions of operators: each needs a reason, and leaves two lines in the audit log.
"""
