"""
Gateways: the node of another domain that takes messages for it, and its replacement when it is not reached.
"""

import pytest

from msgnode.links.exchange.domains import REPLACE_SECONDS
from msgnode.links.exchange.passing.origins import REDIRECTS
from tests.support.links_exchange import MemoryNetwork

A, B = "a.example", "b.example"
ONE, TWO = f"mn://{B}/n1", f"mn://{B}/n2"


@pytest.fixture
def network() -> MemoryNetwork:
    """
    Two domains, the second of which has two nodes.
    """
    network = MemoryNetwork(A, B)
    network.add(B, name="n2")
    return network


def route(network, node, up):
    pair = frozenset((network[A].name, node))
    (network.cut.discard if up else network.cut.add)(pair)


def wait(network, seconds=REPLACE_SECONDS + 10):
    for _ in range(int(seconds)):
        network.clock.advance(1)
    network.flow()


def messages(network):
    return [(to, envelope.id) for to, envelope, _ in network[A].streams.sent if envelope.kind == "message"]


def test_another_gateway_takes_what_the_first_was_never_sent(network):
    """
    A gateway that is not reached for long is replaced: all that waits for it goes to another one. Until then
    nothing overtakes.
    """
    ann = network[A].client("ann")
    ann.request(f"hyperty://{B}/bob", "ping", id=1, receipt=True)
    route(network, ONE, False)
    ann.request(f"hyperty://{B}/bob", "ping", id=2, receipt=True)
    before = [to for to, _ in messages(network)]
    wait(network)
    after = [(each["id"], each["body"]["code"]) for each in ann.take() if each["body"]["final"]]
    ann.request(f"hyperty://{B}/bob", id=3)

    assert before == [ONE, ONE]
    assert network[A].streams.replaced == [(ONE, TWO)]
    assert after == [(1, 404), (2, 404)]  # there is no bob
    assert messages(network)[-1][0] == TWO
    assert network[A].exchange.counts["gateway-replaced"] == 1


def test_a_gateway_that_is_back_soon_is_not_replaced(network):
    """
    A node that is only started again gets what waits for it.
    """
    ann = network[A].client("ann")
    ann.request(f"hyperty://{B}/bob")
    route(network, ONE, False)
    wait(network, REPLACE_SECONDS - 5)
    route(network, ONE, True)
    wait(network)
    ann.request(f"hyperty://{B}/bob")

    assert network[A].streams.replaced == []
    assert {to for to, _ in messages(network)} == {ONE}


def test_the_only_gateway_is_waited_for():
    """
    Without another node of the domain, messages wait for the one there is.
    """
    network = MemoryNetwork(A, B)
    ann = network[A].client("ann")
    ann.request(f"hyperty://{B}/bob")
    route(network, ONE, False)
    wait(network)

    assert network[A].streams.replaced == []
    assert network[A].streams.undelivered(ONE) == 1


def test_subscriptions_are_asked_for_at_the_other_gateway(network):
    """
    The other gateway does not know the subscriptions of this node; it gets them all.
    """
    ann = network[A].client("ann")
    room = f"comm://{B}/room/changes"
    network[A].subscribe(ann, room)
    network.flow()
    before = network.nodes[TWO].node.sessions.get(network[A].name)
    ann.request(f"hyperty://{B}/bob")
    route(network, ONE, False)
    wait(network)
    wait(network, 2)

    assert before is None
    assert room in network.nodes[TWO].node.sessions.get(network[A].name).bindings


def test_a_gateway_that_has_acknowledged_all_gives_way_to_the_nearest(network):
    """
    The choice is made anew when nothing is undelivered.
    """
    ann = network[A].client("ann")
    ann.request(f"hyperty://{B}/bob")
    network.flow()
    route(network, ONE, False)
    ann.request(f"hyperty://{B}/bob")

    assert [to for to, _ in messages(network)] == [ONE, TWO]


def test_what_moves_to_a_gateway_that_redirects_is_signed(network):
    """
    A message is signed if any node of the domain asks for it: that one may get it in the end.
    """
    ann = network[A].client("ann")
    network.features[TWO] = {REDIRECTS}

    ann.request(f"hyperty://{B}/bob")

    [(to, envelope, _)] = network[A].streams.sent
    assert to == ONE
    assert envelope.origin is not None
