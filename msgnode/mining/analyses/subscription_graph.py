"""
Who listens to whom: addresses, the sessions that publish there, and those that subscribed.

What a session bound is gone when it is closed or expires.  A subscription from
before the log began is not in it, so a publication with no subscriber here may
have had one; `unheard` goes by what the node did, not by that.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis, adding
from msgnode.mining.analyses.columns import count_where, is_multicast, is_service, whole
from msgnode.mining.analyses.top_talkers import MAX_ROWS

PUBLISHERS = 10
_BINDING = ("subscribe", "unsubscribe", "create", "delete")


def bindings(lines: DataFrame) -> DataFrame:
    """
    What did each session last do about each address?  A null address: the session ended.
    """
    type = F.lower("type")
    asked = lines.where(
        (F.col("kind") == "message")
        & (F.col("outcome") == "answered")
        & type.isin(*_BINDING)
        & is_service("to")
        & F.col("resources").isNotNull()
    ).select("session", "time", type.alias("act"), F.explode("resources").alias("address"))
    ended = lines.where("kind = 'session' and event in ('closed', 'expired', 'renamed')").select(
        "session", "time", F.lit("end").alias("act"), F.lit(None).cast("string").alias("address")
    )
    return _last_act(asked.union(ended).withColumn("last", F.struct("time", "act")))


def _last_act(rows: DataFrame) -> DataFrame:
    return rows.groupBy("session", "address").agg(F.max("last").alias("last"))


def subscriptions(parts: DataFrame) -> DataFrame:
    """
    Subscriptions that stand at the end of the log.
    """
    acts = _last_act(parts)
    ended = acts.where("address is null").select("session", F.col("last.time").alias("ended"))
    return (
        acts.where("address is not null and last.act = 'subscribe'")
        .join(ended, "session", "left")
        .where("ended is null or last.time > ended")
        .select("session", "address", F.col("last.time").alias("since"))
        .orderBy("address", "session")
    )


def publications(messages: DataFrame) -> DataFrame:
    """
    Who publishes at which address, how often, and how often did nobody hear it?

    The node's own has no session; what it says it is from stands in its place.
    """
    heard = F.col("recipients") + F.col("waiting")
    published = is_multicast("to") & F.col("outcome").isin("delivered", "waiting", "dropped", "no-route")
    return (
        messages.where(published & (F.lower("type") != "response"))
        .groupBy(F.col("to").alias("address"), F.coalesce("session", "from", F.lit("")).alias("publisher"))
        .agg(
            F.count("*").alias("publications"),
            count_where(F.coalesce(heard, F.lit(0)) == 0).alias("unheard"),
            whole(heard).alias("copies"),
            F.max("time").alias("last"),
        )
    )


def publications_in_all(parts: DataFrame) -> DataFrame:
    """
    The same over all batches, those that nobody hears first.
    """
    return (
        parts.groupBy("address", "publisher")
        .agg(
            *[F.sum(name).alias(name) for name in ("publications", "unheard", "copies")],
            F.max("last").alias("last"),
        )
        .orderBy(F.desc("unheard"), F.desc("publications"), "address", "publisher")
    )


def orphans(subscriptions: DataFrame, publications: DataFrame) -> DataFrame:
    """
    Addresses that are subscribed and were never published to.
    """
    heard_of = publications.select("address").distinct()
    return (
        subscriptions.where(is_multicast("address"))
        .join(heard_of, "address", "left_anti")
        .groupBy("address")
        .agg(
            F.count("*").alias("observers"), F.min("since").alias("since"), F.min("session").alias("example")
        )
        .orderBy(F.desc("observers"), "address")
        .limit(MAX_ROWS)
    )


def edges(subscriptions: DataFrame, publications: DataFrame) -> DataFrame:
    """
    From whom to whom: publisher, address, observer.  Of the publishers of one address the busiest few.
    """
    busiest = F.row_number().over(
        Window.partitionBy("address").orderBy(F.desc("publications"), "publisher")
    )  # everybody to everybody would be too many
    return (
        publications.select("address", "publisher", "publications", busiest.alias("rank"))
        .where(F.col("rank") <= PUBLISHERS)
        .drop("rank")
        .join(subscriptions.select("address", F.col("session").alias("observer")), "address")
        .where("publisher != observer")
        .orderBy(F.desc("publications"), "address", "publisher", "observer")
    )


QUESTIONS = (
    Analysis("subscriptions", "lines", bindings, subscriptions, _last_act),
    Analysis(
        "publications",
        "messages",
        publications,
        publications_in_all,
        adding("publications", "unheard", "copies", most="last"),
    ),
)
