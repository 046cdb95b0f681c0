"""
One analysis a module: what it asks of the traffic log, and how parts are put together.
"""
