"""
Fixed bins, so that figures of different hours add up and the order of work changes nothing.

Sixteen to each doubling: a percentile is the upper edge of its bin, at most
4.5 % above the true one.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

PER_DOUBLING = 16
PERCENTS = {"p50": 500, "p90": 900, "p99": 990, "p999": 999}  # of a thousand


def bin_of(value: Column) -> Column:
    """
    The bin of a number; -1 for what is not above zero.
    """
    exponent = F.floor(F.log2(value.cast("double")) * PER_DOUBLING).cast("int")
    return F.when(value > 0, exponent).otherwise(F.lit(-1))


def edge(bin: Column) -> Column:
    """
    The upper edge of a bin, a whole number.
    """
    return F.when(bin < 0, F.lit(0)).otherwise(F.ceil(F.pow(2.0, (bin + 1) / PER_DOUBLING))).cast("long")


def percentiles(histogram: DataFrame, *keys: str) -> DataFrame:
    """
    `number`, `p50`, `p90`, `p99`, `p999` for each of the keys, from rows of `bin` and `number`.
    """
    counted = histogram.groupBy(*keys, "bin").agg(F.sum("number").alias("number"))
    rising = Window.partitionBy(*keys).orderBy("bin").rowsBetween(Window.unboundedPreceding, 0)
    everything = Window.partitionBy(*keys)
    ranked = counted.select(
        *keys,
        edge(F.col("bin")).alias("edge"),
        "number",
        F.sum("number").over(rising).alias("below"),
        F.sum("number").over(everything).alias("total"),
    )
    reached = [
        F.min(F.when(F.col("below") * 1000 >= F.col("total") * share, F.col("edge"))).alias(name)
        for name, share in PERCENTS.items()
    ]
    return ranked.groupBy(*keys).agg(F.sum("number").alias("number"), *reached)
