"""
Column expressions that several analyses share: histograms, percentiles, addresses, times.

The bins of histograms are fixed, so that sums of different hours can be added in any order. There are sixteen
for each doubling: a percentile is the upper edge of its bin, at most 4.5 % above the exact value.
"""

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

PER_DOUBLING = 16
PERCENTS = {"p50": 500, "p90": 900, "p99": 990, "p999": 999}  # in thousandths


def bin_of(value: Column) -> Column:
    """
    The bin of a number; -1 for zero and below.
    """
    exponent = F.floor(F.log2(value.cast("double")) * PER_DOUBLING).cast("int")
    return F.when(value > 0, exponent).otherwise(F.lit(-1))


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

# The types for which a response is expected.
REQUESTS = ("create", "read", "delete", "subscribe", "unsubscribe", "execute")
TYPES = (*REQUESTS, "response", "update", "forward", "open", "re-open", "close", "ping", "message")
FAILED = ("refused", "no-route")

# The addresses of publications have these inside, or at their end.
MULTICAST_INSIDE = ("/children/",)
MULTICAST_ENDS = ("/changes", "/registration", "/status")
# The group is the domain, without a service of the node before it; nothing for addresses of the node.
_AUTHORITY = r"^(?!mn:)[A-Za-z][A-Za-z0-9+.-]*://(?:(?:msg-node|registry|idm|qos-broker)\.)?([^/?#]*)"
_SERVICE = r"^(domain://(?:msg-node|registry|idm|qos-broker)\.[^/]+|mn:|global:)"


def kind(type: str = "type") -> Column:
    """
    The type in lower case, or `other`.
    """
    column = F.col(type)
    lower = F.lower(column)
    # Most are in lower case already, and to find that out costs less than to write them so.
    return F.when(column.isin(*TYPES), column).when(lower.isin(*TYPES), lower).otherwise(F.lit("other"))


def domain(address: str) -> Column:
    """
    The domain of an address: `node` for addresses of the node without a domain, `none` for others.
    """
    column = F.col(address)
    host = F.regexp_extract(column, _AUTHORITY, 1)
    # Both parts are always computed, so that Spark searches for the host once.
    other = (
        F.when(host != "", F.lit("")).when(column.startswith("mn:"), F.lit("node")).otherwise(F.lit("none"))
    )
    return F.coalesce(F.concat(F.lower(host), other), F.lit("none"))


def origin(address: str) -> Column:
    """
    The address without its path. It has the same domain and the same destination, and there are few of them.
    """
    return F.substring_index(F.col(address), "/", 3)


def destination(address: str) -> Column:
    """
    The destination of a request, by scheme and domain: `hyperty://example.org`, `mn:`.
    """
    column = F.col(address)
    found = F.lower(F.regexp_extract(column, r"^([A-Za-z][A-Za-z0-9+.-]*:(?://[^/?#]+)?)", 1))
    # As for the domain, the search is made once.
    return F.coalesce(F.concat(found, F.when(found != "", F.lit("")).otherwise("none")), F.lit("none"))


def is_multicast(address: str) -> Column:
    """
    Is this a publication address, from which no reply is expected?

    Without a regular expression, for this is asked about every message.
    """
    column = F.col(address)
    found = [column.contains(text) for text in MULTICAST_INSIDE]
    found += [column.endswith(text) for text in MULTICAST_ENDS]
    return reduce(or_, found)


def is_service(address: str) -> Column:
    """
    Is this an address at which a node itself answers?
    """
    return F.col(address).rlike(_SERVICE)


def failed() -> Column:
    """
    Was the message refused, or without a route?
    """
    return F.col("outcome").isin(*FAILED)


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


def sum_or_zero(column: Column) -> Column:
    """
    The sum of a column; 0, not null, if it has no values.
    """
    return F.coalesce(F.sum(column), F.lit(0)).cast("long")


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
