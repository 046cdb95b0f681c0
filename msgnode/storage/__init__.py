"""
Everything on disk: the spool (a write-ahead log), the session database, the logs of JSON lines.
"""
