"""
Messages for other nodes at a node that is started without links: they are kept, and their senders are told.
"""

from pathlib import Path
from typing import Any

import pytest

from msgnode.links.exchange.envelopes import MessageIds
from msgnode.links.exchange.exchange import Exchange
from msgnode.links.operations import NotAPeer
from msgnode.links.stream.node_streams import NodeStreams
from msgnode.links.stream.safety.node_keys import KeyRing, PrivateKeys
from msgnode.links.stream.storage import epochs
from msgnode.links.stream.storage.spool_store import SpoolStreamStore
from msgnode.service.restart.unlinked_streams import NoNetwork, UnlinkedStreams
from tests.support.durable import DurableNode

OWN, FAR = "mn://example.org/test", "mn://b.example/n1"
ANN = "runtime://example.org/ann"
BOB = "hyperty://b.example/bob"


class Reached(NoNetwork):
    """
    The network of a node that has a peer, and has lost the route to it.
    """

    def knows(self, domain: str) -> bool:
        return domain == "b.example"

    def nodes_of(self, domain: str) -> tuple[str, ...]:
        return (FAR,)


def linked(node: DurableNode, *messages: dict[str, Any]) -> None:
    """
    Ann sends these while the node has a peer that is not reached.
    """
    network, store = Reached(OWN), SpoolStreamStore(node.sessions.journal)
    next_epoch = epochs.load(node.directory, OWN, wall=node.clock.seconds)
    keys = KeyRing(PrivateKeys.generate(None), node.clock)
    streams = NodeStreams(network, store, keys, node.clock, next_epoch)
    ids = MessageIds(OWN.encode(), 1)
    exchange = Exchange(node, streams, network, ids, node.clock, node.traffic_recorder)
    exchange.start()
    streams.start(exchange, store.recover(node.stream_records))
    ann = node.client(ANN)
    for message in messages:
        ann.tell({"from": ANN, "to": BOB, **message})
    node.clock.advance(0.1)
    node.settle()
    exchange.stop()
    streams.stop()


def unlinked(node: DurableNode) -> UnlinkedStreams:
    """
    The node after kill -9, without links.
    """
    service = UnlinkedStreams(node, node.traffic_recorder, node.spool, False, node.clock)
    service.recover(node.stream_records)
    service.startService()
    return service


@pytest.fixture
def node(tmp_path: Path) -> DurableNode:
    return DurableNode(tmp_path, state=str(tmp_path))


def told(client: Any) -> list[tuple[int, str, int, str]]:
    return [
        (each["id"], each["type"], each["body"]["code"], each["body"].get("reason", ""))
        for each in client.take()
        if each["id"] != 1
    ]


def test_messages_are_kept_for_a_start_with_links(node: DurableNode):
    """
    A start without links loses nothing: the next one with links has all of it.
    """
    linked(node, {"id": 7, "type": "message", "receipt": True})
    node = node.killed()
    service = unlinked(node)
    seen = node.link_operations.domain("b.example").streams[0].undelivered
    service.stopService()
    node = node.killed()

    stored = list(SpoolStreamStore(node.sessions.journal).recover(node.stream_records))

    assert seen == 1
    assert [(peer.state.node, len(peer.sending)) for peer in stored] == [(FAR, 1)]


def test_senders_are_told_when_a_message_expires(node: DurableNode):
    """
    A request is answered when its 15 seconds are over, a receipt tells the end of the others, as with links.
    """
    linked(
        node,
        {"id": 7, "type": "read", "body": {}},
        {"id": 8, "type": "message", "ttl": 60, "receipt": True},
    )
    node = node.killed()
    unlinked(node)
    ann = node.client(ANN)
    ann.take()
    node.clock.advance(20)
    node.clock.advance(60)

    assert told(ann) == [(7, "response", 404, "stale"), (8, "receipt", 408, "stale")]
    assert node.sessions.journal.bytes_apart == 0


def test_an_operator_sees_and_drops_what_waits(node: DurableNode):
    """
    `msgnode link ls` shows the domain, and `forget` drops its messages, with 502 to those who asked.
    """
    linked(node, {"id": 8, "type": "message", "receipt": True})
    node = node.killed()
    unlinked(node)
    ann = node.client(ANN)
    ann.take()
    operations = node.link_operations

    listed = [status.domain for status in operations.domains()]
    count = operations.forget("b.example")
    node.clock.advance(1)

    assert (listed, count) == (["b.example"], 1)
    assert told(ann) == [(8, "receipt", 502, "no-path")]
    assert list(operations.domains()) == []
    with pytest.raises(NotAPeer):
        operations.forget("b.example")


def test_a_node_that_never_had_links_has_none_to_see(node: DurableNode):
    """
    Without messages for other nodes, nothing is different.
    """
    unlinked(node)

    assert node.link_operations is None
