"""
Asks a node's admin listener, for `msgnode bench`, which data plane runs and what that has carried by flow.
"""

import json
from typing import Any, NamedTuple
from urllib.request import urlopen

from twisted.internet.threads import deferToThread

ADMIN = "http://127.0.0.1:9092"
BY_FLOW, RECEIVED = "msgnode_messages_by_flow_total", "msgnode_messages_in_total"
SENT = "msgnode_messages_out_total"
TIMEOUT_SECONDS = 3.0
NAMES = {"native": "the compiled one", "python": "Python alone"}


class NodeCounts(NamedTuple):
    """
    The data plane's name, as /live has it, and counts of messages since the node started.
    """

    plane: str
    by_flow: int
    received: int
    sent: int


async def fetch(admin: str) -> NodeCounts | None:
    """
    The counts of the node at this URL; None if none answers there.
    """
    found: NodeCounts | None = await deferToThread(_read, admin.rstrip("/"))
    return found


def _read(admin: str) -> NodeCounts | None:
    try:
        with urlopen(f"{admin}/live", timeout=TIMEOUT_SECONDS) as answer:
            plane = json.load(answer)["data_plane"]
        with urlopen(f"{admin}/metrics", timeout=TIMEOUT_SECONDS) as answer:
            values = numbers(answer.read().decode())
        return NodeCounts(plane, values.get(BY_FLOW, 0), values[RECEIVED], values[SENT])
    except (OSError, ValueError, KeyError, TypeError):  # no node, or another program
        return None


def numbers(metrics: str) -> dict[str, int]:
    """
    The metrics by name, summed over their labels.
    """
    found: dict[str, int] = {}
    for line in metrics.splitlines():
        if line and line[0] != "#":
            name, value = line.rsplit(" ", 1)
            name = name.partition("{")[0]
            found[name] = found.get(name, 0) + int(float(value))
    return found


def describe(
    before: NodeCounts | None, after: NodeCounts | None, arrived: int, admin: str
) -> tuple[str, dict[str, Any]]:
    """
    A sentence on the data plane, and the same as JSON; a node that sent fewer messages than arrived is
    another one.
    """
    unknown: dict[str, Any] = {"data_plane": None, "by_flow": None}
    if before is None or after is None:
        return f"Which data plane ran is not known: no node answers at {admin} (--admin).", unknown
    received = after.received - before.received
    if after.sent - before.sent < arrived or not received:
        return f"Which data plane ran is not known: the node at {admin} is another one (--admin).", unknown
    share = (after.by_flow - before.by_flow) / received
    sentence = f"The data plane was {NAMES.get(after.plane, after.plane)}"
    if after.plane == "native":
        sentence += f", which carried {share:.0%} of the messages by flow"
    return f"{sentence}.", {"data_plane": after.plane, "by_flow": round(share, 4)}
