"""
The subscription graph: addresses, the sessions that publish there, and the sessions that subscribed.

A session's subscriptions end when it is closed or expires. Subscriptions from before the log began are not in
the log, so a publication without a subscriber here may have had one; `unheard` counts those that the node
delivered to no session.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis, sum_fold
from msgnode.mining.analyses.top_talkers import MAX_ROWS
from msgnode.mining.execution.kept_plans import planned_once
from msgnode.mining.sql.dialect import Dialect
from msgnode.mining.sql.expressions import (
    PUBLISHED,
    is_multicast,
    is_service,
    kind,
    number_where,
    total,
)

PUBLISHERS = 10
_BINDING = ("subscribe", "unsubscribe", "create", "delete")


def bindings(sql: Dialect, lines: str) -> str:
    """
    What did each session last do about each address? A null address means that the session ended.
    """
    last = sql.struct_of({"time": "time", "act": "act"})
    return f"""
        SELECT date, session, node, address, max({last}) AS last
        FROM (
            SELECT date, session, node, time, {kind()} AS act, {sql.each.format("resources")} AS address
            FROM {lines}
            WHERE kind = 'message' AND outcome = 'answered' AND {kind()} IN {_BINDING}
                AND {is_service(sql.named("to"))} AND resources IS NOT NULL
            UNION ALL
            SELECT date, session, node, time, 'end' AS act, CAST(NULL AS STRING) AS address
            FROM {lines} WHERE kind = 'session' AND event IN ('closed', 'expired', 'renamed')
        ) GROUP BY ALL"""


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


def publications(sql: Dialect, messages: str) -> str:
    """
    Which sessions publish at which address, how often, and how often without a recipient?

    The node's own publications have no session; their `from` is used instead.
    """
    heard, recipient = "recipients + waiting", sql.named("to")
    asked = f"type IS NOT NULL AND {kind()} != 'response'"
    return f"""
        SELECT date, {recipient} AS address, coalesce(session, {sql.named("from")}, '') AS publisher,
            count(*) AS publications, {number_where(f"coalesce({heard}, 0) = 0")} AS unheard,
            {total(heard)} AS copies, max(time) AS last
        FROM {messages}
        WHERE outcome IN {PUBLISHED} AND {is_multicast(recipient)} AND {asked}
        GROUP BY ALL"""


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
