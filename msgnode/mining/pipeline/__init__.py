"""
The pipeline from log files to rows: reading, batches, checkpoints, output, Spark sessions.
"""
