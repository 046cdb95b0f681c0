"""
From the JSON of policy documents to a program that decides.
"""
