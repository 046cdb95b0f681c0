"""
What a line of the traffic log may hold, as docs/traffic-log.md has it.

All questions read these columns and no others; a key that is not here is
skipped.
"""

from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructField, StructType

VERSIONS = (1,)  # of the contract; a line of another one is kept aside

TRAFFIC = StructType(
    [
        StructField("v", IntegerType()),
        StructField("kind", StringType()),
        StructField("time", LongType()),
        StructField("node", StringType()),
        StructField("session", StringType()),
        StructField("connector", StringType()),
        StructField("peer", StringType()),
        StructField("type", StringType()),
        # A number of any size, or text.
        StructField("id", StringType()),
        StructField("from", StringType()),
        StructField("to", StringType()),
        StructField("bytes", LongType()),
        StructField("outcome", StringType()),
        StructField("recipients", IntegerType()),
        StructField("waiting", IntegerType()),
        StructField("code", IntegerType()),
        StructField("micros", LongType()),
        StructField("reason", StringType()),
        # A number, or text.
        StructField("transaction", StringType()),
        StructField("resources", ArrayType(StringType())),
        StructField("resources_count", IntegerType()),
        StructField("event", StringType()),
    ]
)
