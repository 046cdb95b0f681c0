"""
Recent history for operators: refused messages and closed connections, in rings of a fixed size.
"""
