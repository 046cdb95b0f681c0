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


SECOND = 1_000_000_000  # nanoseconds
HOUR = 3600 * SECOND

# Somebody waits for the answer to these.
REQUESTS = ("create", "read", "delete", "subscribe", "unsubscribe", "execute")
TYPES = (*REQUESTS, "response", "update", "forward", "open", "re-open", "close", "ping", "message")
FAILED = ("refused", "no-route")

_MULTICAST = r"/(changes|registration|status)$|/children/"
_AUTHORITY = r"^[A-Za-z][A-Za-z0-9+.-]*://([^/?#]+)"
_SERVICE = r"^(domain://(?:msg-node|registry|idm|qos-broker)\.[^/]+|mn:|global:)"


def kind(type: str = "type") -> Column:
    """
    The type in lower case, or `other`.
    """
    lower = F.lower(F.col(type))
    return F.when(lower.isin(*TYPES), lower).otherwise(F.lit("other"))


def domain(address: str) -> Column:
    """
    The domain of an address: `node` for the node's own that name none, `none` where there is no domain.
    """
    column = F.col(address)
    host = F.regexp_replace(
        F.regexp_extract(column, _AUTHORITY, 1), r"^(msg-node|registry|idm|qos-broker)\.", ""
    )
    return (
        F.when(column.isNull(), F.lit("none"))
        .when(column.startswith("mn:"), F.lit("node"))
        .when(host == "", F.lit("none"))
        .otherwise(F.lower(host))
    )


def destination(address: str) -> Column:
    """
    Where a request goes, by scheme and domain: `hyperty://example.org`, `mn:`.
    """
    column = F.col(address)
    found = F.lower(F.regexp_extract(column, r"^([A-Za-z][A-Za-z0-9+.-]*:(?://[^/?#]+)?)", 1))
    return F.when(column.isNull() | (found == ""), F.lit("none")).otherwise(found)


def is_multicast(address: str) -> Column:
    """
    Is this an address that is published to, so that nobody waits for an answer?
    """
    return F.col(address).rlike(_MULTICAST)


def is_service(address: str) -> Column:
    """
    Does a node answer there itself?
    """
    return F.col(address).rlike(_SERVICE)


def failed() -> Column:
    """
    Was the message refused, or had it nowhere to go?
    """
    return F.col("outcome").isin(*FAILED)


def count_where(condition: Column) -> Column:
    """
    In how many rows it is so; 0 where it is unknown.
    """
    return F.sum(F.when(condition, F.lit(1)).otherwise(F.lit(0)).cast("long"))


def whole(column: Column) -> Column:
    """
    A sum that is 0 and not null when nothing was there to add.
    """
    return F.coalesce(F.sum(column), F.lit(0)).cast("long")


def quotient(number: Column, divisor: int) -> Column:
    """
    The whole part, without the detour by a double, which is off by up to 128 ns for a time of today.
    """
    return F.call_function("div", number, F.lit(divisor).cast("long"))


def hour_of(nanoseconds: Column) -> Column:
    """
    The hour in UTC, counted since 1970.
    """
    return quotient(nanoseconds, HOUR)


def date_of(nanoseconds: Column) -> Column:
    """
    2026-07-31; in UTC, whatever the session's time zone is.
    """
    return F.date_format(F.date_from_unix_date(quotient(nanoseconds, 24 * HOUR).cast("int")), "yyyy-MM-dd")


def hour_of_day(nanoseconds: Column) -> Column:
    """
    0 to 23, in UTC.
    """
    return (hour_of(nanoseconds) % 24).cast("int")
