"""
Analyses of typed messages, by the id of their record.
"""
