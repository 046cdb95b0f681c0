"""
What happens now, for operators: events as they come, and traces of single messages.
"""
