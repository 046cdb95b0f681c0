"""
The pipeline from log files to results: batches, checkpoints, output, Spark sessions.
"""
