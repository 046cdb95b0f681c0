"""
Code generated from definitions of records: Python, TypeScript, Java and C.
"""
