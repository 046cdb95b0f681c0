"""
How many examples Hypothesis tries: enough for each change; MSGNODE_FUZZ=100 tries a hundred times as many.
"""

import os

TIMES = int(os.environ.get("MSGNODE_FUZZ", "1"))
