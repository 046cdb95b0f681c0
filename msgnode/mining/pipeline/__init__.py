"""
From log files to rows: reading, batches, checkpoints, output, Spark sessions.
"""
