"""
`msgnode bench`: measures the throughput of a node.

The clients run in this process, so its own speed is part of the result; the
report says if it was the limit.  tools/bench has no such limit.
"""

from statistics import median
from typing import Any

import click

from msgnode.cli import REFUSED
from msgnode.cli.bench.load_generator import TOO_MANY, Load, Measured
from msgnode.cli.bench.node_counts import ADMIN, describe, fetch
from msgnode.cli.connection import SECONDS, NodeConnection, talks

BUSY = 0.85  # of a core; above it, this process may be the limit
MAX_SHOWN = 5  # kinds of refusals
_DELAYS = {
    "publish": "from sender to receiver",
    "request": "there and back",
    "fanout": "until the last subscriber got it",
}


@click.command(short_help="Measure the throughput of a node.")
@click.argument("pattern", type=click.Choice(["publish", "request", "fanout"]), default="publish")
@click.option(
    "--pairs", default=1, show_default=True, type=click.IntRange(1, 1000), help="Number of senders."
)
@click.option(
    "--subscribers",
    default=100,
    show_default=True,
    type=click.IntRange(1, 5000),
    help="Number of subscribers of a fanout.",
)
@click.option(
    "--size",
    default=100,
    show_default=True,
    type=click.IntRange(0),
    help="Bytes of body.value of each message.",
)
@click.option(
    "--window", default=64, show_default=True, type=click.IntRange(1), help="Messages in flight per sender."
)
@click.option("--seconds", type=SECONDS, default=5.0, show_default=True, help="Duration of the measurement.")
@click.option(
    "--resume",
    is_flag=True,
    help="Clients acknowledge messages, and the node keeps those that are unacknowledged.",
)
@click.option(
    "--admin",
    default=ADMIN,
    show_default=True,
    metavar="URL",
    help="The admin listener of the node, which says which data plane runs.",
)
@talks
def bench(
    pattern: str,
    pairs: int,
    subscribers: int,
    size: int,
    window: int,
    seconds: float,
    resume: bool,
    admin: str,
    **options: Any,
) -> None:
    """
    Measure how many messages per second a node carries between clients in this process.

    The pattern is publish (each sender to one receiver, the default), request (and
    its answer), or fanout (one sender to --subscribers).  A sender has --window
    messages in flight; when one arrives the next is sent.

    The clients run in this one process and share its core: the result is what a
    Python program gets, not the most the node can do.  The report says when rate
    limits or policies of the node refused messages.

    \b
    Examples:
      msgnode bench
      msgnode bench request --window 1 --url tcp://127.0.0.1:9091
      msgnode bench fanout --subscribers 500 --json

    \b
    Exit code 0: measured.  1: messages were lost.  3: cannot connect.
    """
    talk = NodeConnection(**options)
    load = Load(talk, pattern, pairs, subscribers, size, window)

    async def action(talk: NodeConnection) -> None:
        await load.connect(resume)
        before = await fetch(admin)
        measured = await load.run(seconds)
        plane = describe(before, await fetch(admin), measured.arrived, admin)
        _report(talk, pattern, load.clients, window, measured, plane)

    talk.run(action, resume=resume)


def _report(
    talk: NodeConnection,
    pattern: str,
    clients: int,
    window: int,
    measured: Measured,
    plane: tuple[str, dict[str, Any]],
) -> None:
    unit = "answers" if pattern == "request" else "messages"
    rate = round(measured.arrived / measured.seconds)
    delays = measured.delays
    delay = {"median": median(delays), "p99": delays[int(len(delays) * 0.99)]} if delays else {}
    result = {
        "ok": not measured.lost,
        "pattern": pattern,
        "per_second": rate,
        "arrived": measured.arrived,
        "lost": measured.lost,
        "refused": dict(measured.refused.most_common(MAX_SHOWN)),
        "seconds": round(measured.seconds, 3),
        "client_cores": round(measured.cores, 2),
        "delay_ms": {name: round(value * 1000, 3) for name, value in delay.items()},
        **plane[1],
    }
    lines = [click.style(f"{rate:,} {unit} a second", bold=True)]
    lines += [
        f"{value * 1000:8.2f} ms {_DELAYS[pattern]}: {what}"
        for what, value in zip(("median", "99 of 100"), delay.values(), strict=False)
    ]
    lines.append(
        f"{measured.arrived:,} {unit} in {measured.seconds:.1f} s, {window} in flight per sender; "
        f"the {clients} clients here used {measured.cores:.2f} of a core"
    )
    lines.append(plane[0])
    if measured.cores > BUSY:
        lines.append(click.style("The clients here were the limit, not the node.", fg="yellow"))
    for words, number in measured.refused.most_common(MAX_SHOWN):
        lines.append(click.style(f"The node refused {number:,} more messages: {words}", fg="yellow"))
    if any(words.startswith(TOO_MANY) for words in measured.refused):
        lines.append(click.style("The result is the rate limit of the node, not its speed.", fg="yellow"))
    if measured.lost:
        talk.console.stop(f"{measured.lost} {unit} never arrived\n" + "\n".join(lines), REFUSED, **result)
    talk.console.result("\n".join(lines), result)
