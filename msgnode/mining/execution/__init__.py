"""
Execution: many small queries in few executions of Spark.
"""
