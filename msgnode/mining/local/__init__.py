"""
Answers by DuckDB, from Parquet files of this machine.
"""
