"""
The schema of a line of the traffic log, as in docs/traffic-log.md.

The analyses read only these columns; other keys are ignored.
"""

from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructField, StructType

KINDS = ("message", "session", "node")  # lines of other kinds are skipped
VERSIONS = (1,)  # of the format; lines of other versions are set aside

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
        StructField("source", StringType()),
        StructField("hops", IntegerType()),
        StructField("resources", ArrayType(StringType())),
        StructField("resources_count", IntegerType()),
        StructField("event", StringType()),
        StructField("record", StringType()),
        StructField("slot", StringType()),
        StructField("traceparent", StringType()),
        StructField("started", LongType()),
        StructField("version", StringType()),
        StructField("revision", StringType()),
        StructField("messages", LongType()),
        StructField("unlogged", LongType()),
        StructField("lost", LongType()),
    ]
)
