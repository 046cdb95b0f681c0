"""
The sending end of streams: what waits, what has a number, and when it is sent.
"""
