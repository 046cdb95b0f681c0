"""
Questions to a mined directory: periods, comparisons, service levels, conversations, policies.
"""
