"""
What goes wrong during a run, and in which order.
"""
