"""
The policy language: it compiles the JSON of policy documents to a program that decides.
"""
