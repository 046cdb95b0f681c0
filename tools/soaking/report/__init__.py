"""
From the clients' records to figures and a verdict; the command line.
"""
