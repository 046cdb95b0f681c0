"""
Exchanges: requests, matched with their responses.

An exchange is a request as one node saw it, with the responses that have its id and its two addresses
swapped. A response belongs to the latest such request at its own node, else to the latest one at another
node. An id that is used again therefore begins a new exchange. If both have a transaction and the
transactions differ, they do not match.

The log is shuffled once, by id and addresses, without a join: requests and responses are rows of one
sequence, and each response looks back along it. So an address with half of all traffic is still many keys. An
exchange that may get more responses after the batch is `open`, and the next batch continues it. This includes
messages that need no response but may get one.

The question is written in SQL, for two engines.
"""

from pyspark.sql import DataFrame

from msgnode.mining.analyses.columns import HOUR_NANOSECONDS, SECOND_NANOSECONDS
from msgnode.mining.sql.dialect import DUCKDB, SPARK, Dialect, in_lower_case
from msgnode.mining.sql.expressions import REQUESTS, TYPES, is_multicast

RESPONSE_NANOSECONDS = 120 * SECOND_NANOSECONDS  # responses that come later do not count
_KEY = ("id", "asker", "asked")
_OF_REQUEST = ("time", "type", "bytes", "outcome", "node", "transaction", "expects", "record")
_MAY_LACK = ("type", "bytes", "transaction", "record")  # of a request
# Columns of an exchange that is carried over from the previous batch; lines of the log do not have them.
_SUMS = ("answers", "first_answer", "last_answer", "again")
SCHEMA = (
    "id string, asker string, asked string, transaction string, node string, time long, type string, "
    "expects boolean, "
    "outcome string, bytes long, record string, answers long, first_answer long, last_answer long, "
    "again boolean, "
    "first_micros long, micros long, open boolean, pending boolean, date string, hour int, batch int"
)
COLUMNS = (*_KEY, *_OF_REQUEST, *_SUMS)
TOLD = "expects or answers > 0"  # an exchange that analyses count


def exchanges(lines: DataFrame, carried: DataFrame | None, end: int) -> DataFrame:
    """
    All requests until `end` (hours since 1970), with the number and the times of their responses.

    `again`: the same request had come less than RESPONSE_NANOSECONDS before. `pending`: there is no response
    yet, and these lines, of all kinds, end less than RESPONSE_NANOSECONDS later.
    """
    spark = lines.sparkSession
    rows = spark.sql(_requests_and_answers(SPARK, "{lines}"), lines=lines)
    if carried is not None:
        rows = rows.union(spark.sql(_carried("{carried}"), carried=carried))
    # This repartition serves both windows and the following grouping, so that there is one shuffle.
    return spark.sql(_paired(SPARK, "{rows}", "{lines}", end), rows=rows.repartition(*_KEY), lines=lines)


def exchanges_in_duckdb(carried: bool, end: int) -> str:
    """
    The same as a query of DuckDB, of the tables `lines` and, if rows are carried over, `carried`.
    """
    rows = _requests_and_answers(DUCKDB, "lines")
    if carried:
        rows = f"{rows} UNION ALL {_carried('carried')}"
    return _paired(DUCKDB, f"({rows})", "lines", end)


def _requests_and_answers(sql: Dialect, lines: str) -> str:
    """
    The messages that can be part of an exchange, with addresses as in the request.
    """
    sender, recipient, answer = sql.named("from"), sql.named("to"), "lowered = 'response'"
    # Most are in lower case already, and to find that out costs less than to write them so.
    lowered = f"CASE WHEN type IN {TYPES} THEN type ELSE {in_lower_case('type')} END"
    return f"""
        SELECT id,
            CASE WHEN {answer} THEN {recipient} ELSE {sender} END AS asker,
            CASE WHEN {answer} THEN {sender} ELSE {recipient} END AS asked,
            time, lowered AS type, bytes, outcome, node, transaction,
            lowered IN {REQUESTS} AS expects, record,
            CAST(0 AS BIGINT) AS answers, CAST(NULL AS BIGINT) AS first_answer,
            CAST(NULL AS BIGINT) AS last_answer, CAST(NULL AS BOOLEAN) AS again,
            {answer} AS is_answer
        FROM (SELECT *, {lowered} AS lowered FROM {lines})
        WHERE kind = 'message' AND id IS NOT NULL AND {sender} IS NOT NULL AND {recipient} IS NOT NULL
            AND outcome IN ('delivered', 'waiting') AND ({answer} OR NOT {is_multicast(recipient)})"""


def _carried(rows: str) -> str:
    return f"SELECT {', '.join(COLUMNS)}, FALSE AS is_answer FROM {rows}"


def _paired(sql: Dialect, rows: str, lines: str, end: int) -> str:
    """
    Each response with the request before it, in `_request`; each request with itself. Then one row for each
    exchange. Two requests at the same instant are two lines but one exchange.

    The fields of the request are part of the key: a minimum of texts would need one more sort.
    """
    itself = _request(sql)
    request = f"max(CASE WHEN NOT is_answer THEN {itself} END)"
    order = ", ".join(
        f"{name} NULLS FIRST"
        for name in ("time", "is_answer", "type", "bytes", "outcome", "transaction", "record")
    )
    ended = f"(SELECT max(time) FROM {lines} WHERE kind != 'bad')"
    key, may_go_on = ", ".join(_KEY), f"time >= {end * HOUR_NANOSECONDS - RESPONSE_NANOSECONDS}"
    return f"""
        WITH looking_back AS (
            SELECT *, {request} OVER before AS _before, {request} OVER anywhere AS _anywhere FROM {rows}
            WINDOW before AS (
                PARTITION BY {key}, node ORDER BY {order}
                ROWS BETWEEN UNBOUNDED PRECEDING AND {sql.row_before}
            ), anywhere AS (
                PARTITION BY {key} ORDER BY {order}, node NULLS FIRST
                ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            )
        ), belonging AS (
            SELECT {key}, time AS came, is_answer, answers, first_answer, last_answer,
                coalesce(again, {_may_belong("_before")}, FALSE) AS again,
                CASE WHEN NOT is_answer THEN {itself}
                    WHEN {_may_belong("_before")} THEN _before
                    WHEN is_answer AND {_may_belong("_anywhere")} THEN _anywhere END AS _request
            FROM looking_back
        ), found AS (
            SELECT {key}, {", ".join(f"_request.{name} AS {name}" for name in _OF_REQUEST)},
                CAST(sum(answers) + sum(CAST(is_answer AS BIGINT)) AS BIGINT) AS answers,
                min(coalesce(first_answer, CASE WHEN is_answer THEN came END)) AS first_answer,
                max(coalesce(last_answer, CASE WHEN is_answer THEN came END)) AS last_answer,
                max(CASE WHEN NOT is_answer THEN again END) AS again
            FROM belonging WHERE _request IS NOT NULL
            GROUP BY {key}, {", ".join(f"_request.{name}" for name in _OF_REQUEST)}
        )
        SELECT {", ".join(COLUMNS)},
            {sql.quotient.format("first_answer - time", 1000)} AS first_micros,
            {sql.quotient.format("last_answer - time", 1000)} AS micros,
            {may_go_on} AS open,
            answers = 0 AND coalesce(time > {ended} - {RESPONSE_NANOSECONDS}, TRUE) AS pending,
            {sql.day("time")} AS date, {sql.hour("time")} AS hour
        FROM found WHERE {TOLD} OR {may_go_on}"""


def _request(sql: Dialect) -> str:
    """
    A request as a struct, of which the largest is the last in the order of the windows. Engines differ in
    whether null is the least or the largest, so what is null comes first by a field of its own.
    """
    fields = {}
    for name in _OF_REQUEST:
        if name in _MAY_LACK:
            fields[f"has_{name}"] = f"{name} IS NOT NULL"
        fields[name] = name
    return sql.struct_of(fields)


def _may_belong(request: str) -> str:
    """
    Is the request recent, and its transaction, if any, the same?
    """
    return (
        f"(time - {request}.time <= {RESPONSE_NANOSECONDS} "
        f"AND NOT coalesce(transaction != {request}.transaction, FALSE))"
    )
