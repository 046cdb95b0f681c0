"""
`msgnode rtt`: measures the round-trip time to a node, or to a client.
"""

from statistics import median
from typing import Any

import click

from msgnode.cli.connection import ADDRESS, SECONDS, NodeConnection, talks
from msgnode.client import Refused
from msgnode.structures.log_limits import printable


@click.command(short_help="Measure the round-trip time to the node or an address.")
@click.argument("address", type=ADDRESS, required=False)
@click.option(
    "--type", "type_", default="read", show_default=True, help="The type of the requests to ADDRESS."
)
@click.option("--count", type=click.IntRange(1, 100_000), default=5, show_default=True, help="Round trips.")
@click.option(
    "--timeout", type=SECONDS, default=10.0, show_default=True, help="Time to wait for each answer."
)
@talks
def rtt(address: str | None, type_: str, count: int, timeout: float, **options: Any) -> None:
    """
    Measure the time to connect, and that of some messages from here to the node and back, one after another.

    With ADDRESS, requests go to that address.  An answer that refuses the request counts, too.

    \b
    Examples:
      msgnode rtt
      msgnode rtt --count 100 --json hyperty://localhost/lamp | jq .median_ms

    \b
    Exit code 0: measured.  1: the answer is 404.  3: cannot connect.
    4: no answer in time, for instance because no client is bound to the address.
    """
    talk = NodeConnection(**options)

    async def action(talk: NodeConnection) -> None:
        clock = talk.reactor.seconds
        connected = (clock() - talk.begun) * 1000
        times, answered = [], ""
        for _ in range(count):
            begun = clock()
            if address is None:
                await talk.client.ping(timeout)
            else:
                try:
                    await talk.client.request(address, type=type_, timeout=timeout)
                except Refused as why:
                    if why.code == 404:
                        raise
                    answered = f"; the answer is {why.code} {printable(why.text)}"
            times.append((clock() - begun) * 1000)
        low, middle, high = min(times), median(times), max(times)
        talk.console.result(
            f"connected in {connected:.1f} ms\n"
            f"{address or 'node'}: {middle:.2f} ms "
            f"(least {low:.2f}, most {high:.2f}, {count} round trips){answered}",
            {
                "ok": True,
                "connect_ms": round(connected, 3),
                "median_ms": round(middle, 3),
                "min_ms": round(low, 3),
                "max_ms": round(high, 3),
                "count": count,
            },
        )

    talk.run(action)
