"""
Parts of queries that are written once, for Spark and for DuckDB.
"""
