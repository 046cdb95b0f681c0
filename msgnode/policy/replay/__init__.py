"""
What a program would have decided about the traffic of the past.
"""
