"""
Columns of Spark that several analyses share: percentiles, counts, times.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

PER_DOUBLING = 16  # bins of a histogram (sql/expressions.py)
PERCENTS = {"p50": 500, "p90": 900, "p99": 990, "p999": 999}  # in thousandths


def edge(bin: Column) -> Column:
    """
    The upper edge of a bin, as a whole number.
    """
    return F.when(bin < 0, F.lit(0)).otherwise(F.ceil(F.pow(2.0, (bin + 1) / PER_DOUBLING))).cast("long")


def percentiles(histogram: DataFrame, *keys: str) -> DataFrame:
    """
    `number`, `p50`, `p90`, `p99` and `p999` for each of the keys, from rows of `bin` and `number`.
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


SECOND_NANOSECONDS = 1_000_000_000
HOUR_NANOSECONDS = 3600 * SECOND_NANOSECONDS


def computed_once(column: Column) -> Column:
    """
    A column with a name, for a `select`. Without this a filter computes it again, in each place that uses it.
    """
    return F.inline(F.array(F.struct(column)))


def one_where(condition: Column) -> Column:
    """
    1 if the condition is true, else 0, for a sum; unknown counts as false.
    """
    return F.when(condition, F.lit(1)).otherwise(F.lit(0)).cast("long")


def count_where(condition: Column) -> Column:
    """
    The number of rows for which the condition is true; unknown counts as false.
    """
    return F.sum(one_where(condition))


def quotient(number: Column, divisor: int) -> Column:
    """
    The integer quotient. A division of doubles would be off by up to 128 ns for a present-day time.
    """
    return F.call_function("div", number, F.lit(divisor).cast("long"))


def hour_of(nanoseconds: Column) -> Column:
    """
    The hour in UTC, counted since 1970.
    """
    return quotient(nanoseconds, HOUR_NANOSECONDS)


def date_of(nanoseconds: Column) -> Column:
    """
    The date in UTC as 2026-07-31, whatever the time zone of the session.
    """
    return F.date_format(
        F.date_from_unix_date(quotient(nanoseconds, 24 * HOUR_NANOSECONDS).cast("int")), "yyyy-MM-dd"
    )


def hour_of_day(nanoseconds: Column) -> Column:
    """
    The hour of the day in UTC, 0 to 23.
    """
    return (hour_of(nanoseconds) % 24).cast("int")
