"""
Five real nodes whose links have costs: which way messages take, and what becomes of them when it changes.
"""

import asyncio

from soaking.peers.domain_node import LinkPlan
from soaking.peers.proxy import Proxy

from .network import Runtime, Stream, reach, running, slow_link, until

# The cost of the first link is measured: a few milliseconds, on a busy machine a hundred.
DIRECT_COST = 400
LINKS = (
    LinkPlan("a", "b"),
    LinkPlan("b", "c", 10),
    LinkPlan("c", "d", 10),
    LinkPlan("d", "e", 10),
    LinkPlan("a", "e", DIRECT_COST),
)
LONG, SHORT = "abcde", "ae"
# A round trip takes more than the direct link costs, but less than three timeouts, after which the first hop
# would be avoided.
DELAY_SECONDS = 0.25


def test_the_cheaper_way_is_taken_and_nothing_is_lost_when_it_changes() -> None:
    """
    The longer, cheaper way is taken, also when a link of fixed cost is slow, but not when a measured one is.
    A cut under load sends messages the other way; with no way at all, senders are told; given back, the route
    returns. All that was acknowledged has come, once and in order.
    """
    asyncio.run(_change_routes())


async def _change_routes() -> None:
    async with running(LINKS) as network:
        a, c = network.nodes["a"], network.nodes["c"]
        ann, ed = Runtime(a, "ann"), Runtime(network.nodes["e"], "ed")
        await ann.goes_by(ed.runtime, LONG)
        stream = Stream(ann, ed.runtime)

        _slow_down(network.proxies["cd"], DELAY_SECONDS)
        assert (await slow_link(c, "d.example", 2 * DELAY_SECONDS))["cost"] == 10
        await ann.goes_by(ed.runtime, LONG)
        network.proxies["cd"].delay_seconds = 0.0

        _slow_down(network.proxies["ab"], DELAY_SECONDS)
        assert (await slow_link(a, "b.example", 2 * DELAY_SECONDS))["cost"] > DIRECT_COST
        await ann.goes_by(ed.runtime, SHORT)
        _slow_down(network.proxies["ab"], 0.0)
        await ann.goes_by(ed.runtime, LONG)

        network.proxies["cd"].close_way()
        await ann.goes_by(ed.runtime, SHORT)
        network.proxies["ae"].close_way()
        await reach(a, "e.example", False)
        told = await ann.ask(ed.runtime, "update", receipt=True, ttl=1)
        assert told["body"]["code"] == 408 and told["body"]["final"]
        network.proxies["ae"].open_way()
        network.proxies["cd"].open_way()
        await ann.goes_by(ed.runtime, LONG)

        stream.stop()
        await until(lambda: not ann.client.kept and len(ed.numbers()) >= stream.sent)
        assert ed.numbers() == list(range(1, stream.sent + 1))
        await asyncio.gather(ann.stop(), ed.stop())


def _slow_down(proxy: Proxy, seconds: float) -> None:
    """
    Hold back what passes from now on, on a new connection: its first pings are a second apart.
    """
    proxy.delay_seconds = seconds
    proxy.cut()
