"""
Reads of the admin API: functions of a node and a query, which change nothing.
"""
