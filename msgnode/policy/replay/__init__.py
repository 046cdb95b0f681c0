"""
Replay: what a program would have decided about logged traffic.
"""
