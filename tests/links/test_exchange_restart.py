"""
Restarts: what a node has on disk of other domains is there again, before they have said anything.
"""

from pathlib import Path

import msgspec

from msgnode.links.exchange.envelopes import MessageIds
from msgnode.links.exchange.exchange import Exchange
from msgnode.links.exchange.subscriptions.entries import Ask
from msgnode.links.stream.streams import Envelope
from msgnode.sessions.routing import SUBSCRIBED
from tests.support.durable import DurableNode
from tests.support.links_exchange import MemoryNetwork, MemoryStreams, View

OTHER = "mn://a.example/n1"
ROOM = "comm://example.org/room/changes"


def exchange_of(node, start):
    """
    The exchange of a durable node, with the other node in its network.
    """
    network = MemoryNetwork("a.example")
    name = "mn://example.org/n1"
    streams = MemoryStreams(network, name)
    ids = MessageIds(b"durable", start)
    made = Exchange(node, streams, View(network, name), ids, node.clock, node.traffic_recorder)
    made.start()
    return made, streams


def ask(exchange, address):
    envelope = Envelope("subscription", (b"a", 1), 1000, 7)
    payload = msgspec.msgpack.encode(Ask(1, 1, "runtime://a.example/x", [address]))
    done: list[bool] = []
    exchange.received(OTHER, envelope, payload, (), lambda: done.append(True))
    return done


def test_publication_after_a_restart(tmp_path: Path):
    """
    A subscription of another node survives kill -9: what is published then goes to its stream at once.
    """
    node = DurableNode(tmp_path)
    exchange, streams = exchange_of(node, 1)
    done = ask(exchange, ROOM)
    node.clock.advance(1)
    answered = [envelope.kind for _, envelope, _ in streams.sent]

    node = node.killed()
    exchange, streams = exchange_of(node, 2)
    bob = node.client("runtime://example.org/bob")
    bob.post(ROOM, from_="x")

    assert (done, answered) == ([True], ["subscription"])
    assert [destination for destination, _, _ in streams.sent] == [OTHER]
    assert node.sessions.get(OTHER).bindings[ROOM] & SUBSCRIBED
    assert exchange.gateways.choose("a.example") == OTHER


def test_ids_rise_over_restarts():
    """
    The counter of message ids goes on above that of the last start, so no id is used twice.
    """
    before, after = MessageIds(b"i", 1), MessageIds(b"i", 2)

    assert before.next() < before.next() < after.next()
