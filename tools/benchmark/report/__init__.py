"""
From one run's counts to figures, ratios and tables; the command line.
"""
