"""
The command `msgnode`.
"""

# Exit codes of all verbs; docs/cli.md explains them.
OK, REFUSED, USAGE, NOT_CONNECTED, LATE, INTERRUPTED = 0, 1, 2, 3, 4, 130
