"""
The command line, and one row for each attack.
"""
