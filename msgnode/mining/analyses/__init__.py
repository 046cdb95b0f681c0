"""
The analyses, one module each: a summary of each batch of log lines, and its combination over all batches.
"""
