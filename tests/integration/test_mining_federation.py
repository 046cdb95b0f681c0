"""
The traffic logs of real nodes of six domains in the mining tool: one conversation over five links.
"""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

from soaking.peers.domain_node import chain

from msgnode.mining.pipeline.run import MiningRun, Options

from .network import Runtime, running, until


async def _converse(logs: Path) -> None:
    """
    A request over five links, and its answer; the logs of all nodes are copied.
    """
    async with running(chain("abcdef", cost=1)) as network:
        ann, fred = Runtime(network.nodes["a"], "ann"), Runtime(network.nodes["f"], "fred")
        await ann.goes_by(fred.runtime, "abcdef")

        ann.send(fred.runtime, "read", id=70, transaction="five-hops")
        await until(lambda: any(each["id"] == 70 for each in fred.inbox))
        fred.send(ann.runtime, "response", id=70, body={"code": 200}, transaction="five-hops")
        await until(lambda: any(each["id"] == 70 for each in ann.inbox))

        await asyncio.gather(ann.stop(), fred.stop())
        for letter, node in network.nodes.items():
            await asyncio.to_thread(node.stop)
            for file in (node.directory / "traffic").glob("*.jsonl"):
                shutil.copy(file, logs / file.name.replace("traffic-n1-", f"traffic-{letter}-"))


def test_a_transaction_joins_five_hops(spark: Any, tmp_path: Path) -> None:
    """
    The request and the answer are found at both ends, by their transaction, with the links that they passed.
    """
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    asyncio.run(_converse(logs))

    MiningRun(spark, Options(str(logs), str(out), conversation="five-hops"), list().append).run()

    found = [row.asDict() for row in spark.read.parquet(f"{out}/tables/conversation").collect()]
    lines = [json.loads(line) for file in logs.iterdir() for line in file.read_text().splitlines()]
    joined = [line for line in lines if line.get("transaction") == "five-hops"]
    assert sorted(row["type"] for row in found) == ["read", "read", "response", "response"]
    assert sorted((line["type"], line.get("hops", 0)) for line in joined) == [
        ("read", 0),
        ("read", 5),
        ("response", 0),
        ("response", 5),
    ]
