"""
Fuzzer of the readers of definitions of records: damaged files are read or refused, never anything else.
"""
