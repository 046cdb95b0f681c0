"""
Reading: from the files of the log to rows, by Arrow on one machine, by Spark elsewhere and for odd lines.
"""
