"""
Records: definitions of typed messages, checks of bodies against them, and code generated from them.
"""
