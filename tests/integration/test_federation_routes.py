"""
Five real nodes whose links have costs: which way messages take, and what becomes of them when it changes.
"""

import asyncio

from soaking.peers.domain_node import LinkPlan

from .network import Runtime, Stream, is_reachable, running, until

# The chain costs about 30, the direct link twice that. The cost of the first link is measured.
LINKS = (
    LinkPlan("a", "b"),
    LinkPlan("b", "c", 10),
    LinkPlan("c", "d", 10),
    LinkPlan("d", "e", 10),
    LinkPlan("a", "e", 60),
)
LONG, SHORT = "abcde", "ae"
PING_SECONDS = 11.0  # in which at least one ping measures each link
DELAY_SECONDS = 0.4


def test_the_cheaper_way_is_taken_and_nothing_is_lost_when_it_changes() -> None:
    """
    The longer, cheaper way is taken. A delay on a link of fixed cost changes nothing, one on a measured link
    does. A cut under load sends messages the other way; with no way at all, senders are told; given back, the
    route returns. All that was acknowledged has come, once and in order.
    """
    asyncio.run(_change_routes())


async def _change_routes() -> None:
    async with running(LINKS) as network:
        ann, ed = Runtime(network.nodes["a"], "ann"), Runtime(network.nodes["e"], "ed")
        await ann.goes_by(ed.runtime, LONG)
        stream = Stream(ann, ed.runtime)

        network.proxies["cd"].delay_seconds = DELAY_SECONDS
        await asyncio.sleep(PING_SECONDS)
        network.proxies["cd"].delay_seconds = 0.0
        assert await ann.path(ed.runtime, ttl=30.0) == LONG

        network.proxies["ab"].delay_seconds = DELAY_SECONDS
        await ann.goes_by(ed.runtime, SHORT)
        network.proxies["ab"].delay_seconds = 0.0
        network.proxies["ab"].cut()  # a new connection is measured anew
        await ann.goes_by(ed.runtime, LONG)

        network.proxies["cd"].close_way()
        await ann.goes_by(ed.runtime, SHORT)
        network.proxies["ae"].close_way()
        await until(lambda: not is_reachable(network.nodes["a"], "e.example"))
        told = await ann.ask(ed.runtime, "update", receipt=True, ttl=1)
        assert told["body"]["code"] == 408 and told["body"]["final"]
        network.proxies["ae"].open_way()
        network.proxies["cd"].open_way()
        await ann.goes_by(ed.runtime, LONG)

        stream.stop()
        await until(lambda: not ann.client.kept and len(ed.numbers()) >= stream.sent)
        assert ed.numbers() == list(range(1, stream.sent + 1))
        await asyncio.gather(ann.stop(), ed.stop())
