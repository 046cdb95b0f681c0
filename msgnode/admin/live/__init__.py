"""
Live observation for operators: events as they come, and traces of single messages.
"""
