"""
Three questions about a traffic log, put to Spark, DuckDB and Polars alike; each run is a process of its own.

    python -m benchmark.load.mining_engines ENGINE QUESTION DIRECTORY

All read the same files, from JSON.  It prints the seconds without the start
of the engine, and the answer in a form that can be compared.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

COLUMNS = {
    "kind": "VARCHAR", "time": "BIGINT", "node": "VARCHAR", "connector": "VARCHAR", "type": "VARCHAR",
    "id": "VARCHAR", "from": "VARCHAR", "to": "VARCHAR", "bytes": "BIGINT", "outcome": "VARCHAR",
    "recipients": "BIGINT", "code": "BIGINT", "reason": "VARCHAR",
}  # fmt: skip
AUTHORITY = "^[A-Za-z][A-Za-z0-9+.-]*://([^/?#]+)"
SERVICE = "^(msg-node|registry|idm|qos-broker)[.]"
DESTINATION = "^([A-Za-z][A-Za-z0-9+.-]*:(?://[^/?#]+)?)"
HOUR = 3_600_000_000_000
PATIENCE = 120_000_000_000


def duckdb(question: str, directory: Path) -> Any:
    import duckdb as engine

    found = ", ".join(f"'{name}': '{type}'" for name, type in COLUMNS.items())
    how = f"format='newline_delimited', ignore_errors=true, columns={{{found}}}"
    lines = f"read_json('{directory}/*.jsonl', {how})"
    if question == "volume":
        query = f"""SELECT count(*), sum(m), sum(b) FROM (
            SELECT time // {HOUR}, node, connector, type, outcome, count(*) m, sum(bytes) b
            FROM {lines} WHERE kind = 'message' GROUP BY ALL)"""
    elif question == "refusals":
        query = f"""SELECT count(*), sum(n) FROM (
            SELECT outcome, coalesce(code, 0), reason, lower(type),
                lower(regexp_replace(regexp_extract("from", '{AUTHORITY}', 1), '{SERVICE}', '')),
                lower(regexp_extract("to", '{DESTINATION}', 1)), count(*) n, min(time), max(time)
            FROM {lines} WHERE kind = 'message' AND outcome IN ('refused', 'no-route', 'dropped')
            GROUP BY ALL)"""
    else:
        query = f"""WITH m AS (
            SELECT id, node, time, type = 'response' AS answer,
                CASE WHEN type = 'response' THEN "to" ELSE "from" END AS asker,
                CASE WHEN type = 'response' THEN "from" ELSE "to" END AS asked
            FROM {lines} WHERE kind = 'message' AND outcome IN ('delivered', 'waiting')
                AND type IN ('create', 'read', 'execute', 'response')),
        asked AS (SELECT * FROM m WHERE NOT answer),
        paired AS (SELECT a.time AS answered, r.time AS time, r.id, r.node, r.asker, r.asked
            FROM (SELECT * FROM m WHERE answer) a ASOF JOIN asked r
            ON a.id = r.id AND a.node = r.node AND a.asker = r.asker AND a.asked = r.asked
            AND a.time >= r.time
            WHERE a.time - r.time <= {PATIENCE}),
        one AS (SELECT max(answered) - time AS took FROM paired GROUP BY id, node, asker, asked, time)
        SELECT count(*), (SELECT count(*) FROM asked), quantile_cont(took, 0.99) // 1000000 FROM one"""
    return list(engine.sql(query).fetchall()[0])


def polars(question: str, directory: Path) -> Any:
    import polars as pl

    kinds = {"VARCHAR": pl.String, "BIGINT": pl.Int64}
    shape = {name: kinds[type] for name, type in COLUMNS.items()}
    lines = pl.scan_ndjson(f"{directory}/*.jsonl", schema=shape, ignore_errors=True)
    messages = lines.filter(pl.col("kind") == "message")
    if question == "volume":
        hour = (pl.col("time") // HOUR).alias("hour")
        grouped = messages.group_by(hour, "node", "connector", "type", "outcome").agg(
            pl.len().alias("m"), pl.col("bytes").sum().alias("b")
        )
        return list(
            grouped.select(pl.len(), pl.col("m").sum(), pl.col("b").sum()).collect(engine="streaming").row(0)
        )
    if question == "refusals":
        sender = pl.col("from").str.extract(AUTHORITY, 1).str.replace(SERVICE, "").str.to_lowercase()
        failed = messages.filter(pl.col("outcome").is_in(["refused", "no-route", "dropped"])).group_by(
            "outcome",
            pl.col("code").fill_null(0),
            "reason",
            pl.col("type").str.to_lowercase(),
            sender.alias("sender"),
            pl.col("to").str.extract(DESTINATION, 1).str.to_lowercase().alias("destination"),
        )
        counted = failed.agg(
            pl.len().alias("n"), pl.col("time").min().alias("a"), pl.col("time").max().alias("b")
        )
        return list(counted.select(pl.len(), pl.col("n").sum()).collect(engine="streaming").row(0))
    answer = pl.col("type") == "response"
    key = ["id", "node", "asker", "asked"]
    paired = messages.filter(
        pl.col("outcome").is_in(["delivered", "waiting"])
        & pl.col("type").is_in(["create", "read", "execute", "response"])
    ).select(
        "id",
        "node",
        "time",
        answer.alias("answer"),
        pl.when(answer).then("to").otherwise("from").alias("asker"),
        pl.when(answer).then("from").otherwise("to").alias("asked"),
    )
    rows = paired.collect(engine="streaming").sort("time")
    asked = rows.filter(~pl.col("answer")).with_columns(began=pl.col("time"))
    answers = rows.filter(pl.col("answer")).join_asof(
        asked.drop("answer"),
        on="time",
        by=key,
        strategy="backward",
        tolerance=PATIENCE,
        check_sortedness=False,
    )
    took = (
        answers.drop_nulls("began")
        .group_by(*key, "began")
        .agg((pl.col("time").max() - pl.col("began").first()).alias("took"))
    )
    high = took["took"].quantile(0.99, "linear") or 0
    return [took.height, asked.height, int(high // 1_000_000)]


def spark(question: str, directory: Path) -> Any:
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    from msgnode.mining.analyses.analysis import asked
    from msgnode.mining.analyses.columns import percentiles
    from msgnode.mining.analyses.exchanges import exchanges
    from msgnode.mining.analyses.latency import latency
    from msgnode.mining.analyses.refusals import refusals, refusals_by_cause
    from msgnode.mining.analyses.volume import volume
    from msgnode.mining.pipeline.spark import session
    from msgnode.mining.reading.parse import parsed

    with session(places=[str(directory)]) as running:
        begun = time.monotonic()
        text = running.read.text(f"{directory}/*.jsonl").select(
            "value", F.col("_metadata.file_path").alias("path")
        )
        # As in the tool, where counting stands between parsing and what follows; without it Spark
        # would move the filter before the parsing, and parse once for each column that is asked for.
        lines = text.transform(parsed).observe(Observation(), F.count("*"))
        messages = lines.where("why is null and kind = 'message'")
        if question == "volume":
            found = asked(volume, messages).agg(F.count("*"), F.sum("messages"), F.sum("bytes")).collect()
            answer = list(found[0])
        elif question == "refusals":
            causes = refusals_by_cause(asked(refusals, messages))
            answer = list(causes.agg(F.count("*"), F.sum("number")).collect()[0])
        else:
            paired = exchanges(messages, None, 0).drop("pending")  # which would parse the lines once more
            paired = paired.where("type in ('create', 'read', 'execute')").cache()
            bins = asked(latency, paired).withColumn("all", F.lit(1))
            (high,) = percentiles(bins, "all").collect()
            answer = [high.number, paired.count(), high.p99 // 1000]
        return answer, time.monotonic() - begun


def main(arguments: list[str]) -> int:
    engine, question, directory = arguments
    begun = time.monotonic()
    answer = globals()[engine](question, Path(directory))
    seconds = time.monotonic() - begun
    if engine == "spark":
        answer, seconds = answer
    print(json.dumps({"answer": [int(value) for value in answer], "seconds": round(seconds, 2)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
