"""
The start with a state directory: sessions, messages and streams of before, restored or kept.
"""
