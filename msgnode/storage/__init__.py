"""
Everything on disk: the spool, the session database, the logs of JSON lines.
"""
