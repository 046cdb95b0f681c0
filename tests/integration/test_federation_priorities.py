"""
A slow link between two real nodes: what is urgent overtakes, and nothing starves.
"""

import asyncio
import os
from statistics import median
from typing import Any

from soaking.peers.domain_node import chain

from .network import Runtime, running, until

EACH = 200
# For each 64 KiB: until the node has all messages, and then. A request becomes stale after 15 seconds.
SLOWEST_SECONDS, SLOW_SECONDS = 1.0, 0.1
# From the lowest priority to the highest, in the order in which they are sent.
KINDS: dict[str, dict[str, Any]] = {
    "zero": {"type": "update", "priority": 0},
    "log": {"type": "log"},
    "request": {"type": "execute", "ttl": 600},
    "answer": {"type": "response"},
    "nine": {"type": "update", "priority": 9},
}


def test_the_urgent_overtakes_on_a_saturated_link_and_nothing_starves() -> None:
    """
    Priority 9 comes before answers, these before requests, these before logs, and priority 0 is last; but the
    first of that does not wait for all others. Each kind keeps its order, and all arrive.
    """
    asyncio.run(_saturate())


async def _saturate() -> None:
    async with running(chain("ab", cost=1)) as network:
        ann, bob = Runtime(network.nodes["a"], "ann"), Runtime(network.nodes["b"], "bob")
        await ann.goes_by(bob.runtime, "ab")
        network.proxies["ab"].pause_seconds = SLOWEST_SECONDS
        bob.inbox.clear()

        for kind, fields in KINDS.items():
            for number in range(EACH):
                body = {"kind": kind, "n": number, "text": os.urandom(1000).hex()}
                ann.send(bob.runtime, id=number, body=body, compress=False, **fields)
        await until(lambda: not ann.client.kept)
        network.proxies["ab"].pause_seconds = SLOW_SECONDS
        await until(lambda: len(bob.numbers()) == EACH * len(KINDS))

        came = [(each["body"]["kind"], each["body"]["n"]) for each in bob.inbox if "n" in each["body"]]
        places = {kind: [at for at, one in enumerate(came) if one[0] == kind] for kind in KINDS}
        middles = [median(places[kind]) for kind in KINDS]
        assert middles == sorted(middles, reverse=True)
        assert places["zero"][0] < places["request"][-1]
        for kind in KINDS:
            assert [number for one, number in came if one == kind] == list(range(EACH))
        await asyncio.gather(ann.stop(), bob.stop())
