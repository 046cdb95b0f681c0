"""
The subscription graph: addresses, the sessions that publish there, and the sessions that subscribed.

A session's subscriptions end when it is closed or expires. Subscriptions from before the log began are not in
the log, so a publication without a subscriber here may have had one; `unheard` counts those that the node
delivered to no session.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis, sum_fold
from msgnode.mining.analyses.columns import count_where, is_multicast, is_service, sum_or_zero
from msgnode.mining.analyses.top_talkers import MAX_ROWS
from msgnode.mining.execution.kept_plans import planned_once

PUBLISHERS = 10
_BINDING = ("subscribe", "unsubscribe", "create", "delete")


def bindings(lines: DataFrame) -> DataFrame:
    """
    What did each session last do about each address? A null address means that the session ended.
    """
    type = F.lower("type")
    asked = lines.where(
        (F.col("kind") == "message")
        & (F.col("outcome") == "answered")
        & type.isin(*_BINDING)
        & is_service("to")
        & F.col("resources").isNotNull()
    ).select("date", "session", "node", "time", type.alias("act"), F.explode("resources").alias("address"))
    ended = lines.where("kind = 'session' and event in ('closed', 'expired', 'renamed')").select(
        "date",
        "session",
        "node",
        "time",
        F.lit("end").alias("act"),
        F.lit(None).cast("string").alias("address"),
    )
    return _last_act(asked.union(ended).withColumn("last", F.struct("time", "act")))


def _last_act(rows: DataFrame) -> DataFrame:
    return rows.groupBy("date", "session", "node", "address").agg(F.max("last").alias("last"))


def subscriptions(parts: DataFrame) -> DataFrame:
    """
    The subscriptions that exist at the end of the log.
    """
    acts = parts.groupBy("session", "node", "address").agg(F.max("last").alias("last"))
    ended = acts.where("address is null").select("session", "node", F.col("last.time").alias("ended"))
    return (
        acts.where("address is not null and last.act = 'subscribe'")
        .join(ended, ["session", "node"], "left")
        .where("ended is null or last.time > ended")
        .select("session", "node", "address", F.col("last.time").alias("since"))
        .orderBy("address", "session", "node")
    )


def publications(messages: DataFrame) -> DataFrame:
    """
    Which sessions publish at which address, how often, and how often without a recipient?

    The node's own publications have no session; their `from` is used instead.
    """
    heard = F.col("recipients") + F.col("waiting")
    published = is_multicast("to") & F.col("outcome").isin("delivered", "waiting", "dropped", "no-route")
    return (
        messages.where(published & (F.lower("type") != "response"))
        .groupBy(
            "date", F.col("to").alias("address"), F.coalesce("session", "from", F.lit("")).alias("publisher")
        )
        .agg(
            F.count("*").alias("publications"),
            count_where(F.coalesce(heard, F.lit(0)) == 0).alias("unheard"),
            sum_or_zero(heard).alias("copies"),
            F.max("time").alias("last"),
        )
    )


def publications_in_all(parts: DataFrame) -> DataFrame:
    """
    The same over all batches, those without recipients first.
    """
    return (
        parts.groupBy("address", "publisher")
        .agg(
            *[F.sum(name).alias(name) for name in ("publications", "unheard", "copies")],
            F.max("last").alias("last"),
        )
        .orderBy(F.desc("unheard"), F.desc("publications"), "address", "publisher")
    )


@planned_once
def all_orphans(subscriptions: DataFrame, publications: DataFrame) -> DataFrame:
    """
    Addresses with subscriptions and without any publication.
    """
    heard_of = publications.select("address").distinct()
    return (
        subscriptions.where(is_multicast("address"))
        .join(heard_of, "address", "left_anti")
        .groupBy("address")
        .agg(
            F.count("*").alias("observers"), F.min("since").alias("since"), F.min("session").alias("example")
        )
    )


@planned_once
def orphans(lonely: DataFrame) -> DataFrame:
    """
    The thousand of them with the most subscriptions.
    """
    return lonely.orderBy(F.desc("observers"), "address").limit(MAX_ROWS)


@planned_once
def edges(subscriptions: DataFrame, publications: DataFrame) -> DataFrame:
    """
    The edges: publisher, address, observer. Only the most frequent publishers of an address.
    """
    # All pairs would be too many.
    busiest = F.row_number().over(Window.partitionBy("address").orderBy(F.desc("publications"), "publisher"))
    return (
        publications.select("address", "publisher", "publications", busiest.alias("rank"))
        .where(F.col("rank") <= PUBLISHERS)
        .drop("rank")
        .join(subscriptions.select("address", F.col("session").alias("observer")).distinct(), "address")
        .where("publisher != observer")
        .orderBy(F.desc("publications"), "address", "publisher", "observer")
    )


QUESTIONS = (
    Analysis("subscriptions", "lines", bindings, subscriptions, _last_act, grows=True),
    Analysis(
        "publications",
        "messages",
        publications,
        publications_in_all,
        sum_fold("publications", "unheard", "copies", most="last"),
        grows=True,
    ),
)
