"""
A domain that is not reached: what each kind of sender is answered, and when. Nobody gets silence.
"""

from typing import Any

import pytest

from msgnode.links.exchange.envelopes import MessageIds
from msgnode.links.exchange.exchange import Exchange
from msgnode.links.stream.node_streams import NodeStreams
from msgnode.links.stream.safety.node_keys import KeyRing, PrivateKeys
from msgnode.links.stream.storage.store import MemoryStreamStore
from msgnode.service.restart.unlinked_streams import NoNetwork
from tests.support.fakes import Client, MemoryNode, Turns

A, B = "a.example", "b.example"
ANN, BOB = f"hyperty://{A}/ann", f"hyperty://{B}/bob"
REQUEST_SECONDS = 15


class Peers(NoNetwork):
    """
    The network of a node whose peer is configured and not reached.
    """

    def knows(self, domain: str) -> bool:
        return domain == B


class Unreached:
    """
    A node with a client; its peer was reached before the last restart, or never.
    """

    def __init__(self, was_reached: bool) -> None:
        self.clock = Turns()
        self.node = MemoryNode(A, clock=self.clock)
        network = Peers(f"mn://{A}/n1")
        keys = KeyRing(PrivateKeys.generate(None), self.clock)
        store = MemoryStreamStore()
        streams = NodeStreams(network, store, keys, self.clock, iter_epochs().__next__)
        ids = MessageIds(b"i", 1)
        self.exchange = Exchange(self.node, streams, network, ids, self.clock, self.node.traffic_recorder)
        if was_reached:
            self.node.sessions.create(f"mn://{B}/n1").used = True
        self.exchange.start()
        streams.start(self.exchange)
        self.ann = Client(self.node)
        self.ann.open(f"runtime://{A}/ann")
        self.subscribe(ANN)
        self.ann.take()

    def subscribe(self, address: str) -> None:
        header = {"id": 50, "type": "subscribe", "from": f"{self.ann.runtime}/sm"}
        self.ann.tell({**header, "to": f"domain://msg-node.{A}/sm", "body": {"resources": [address]}})

    def send(self, **fields: Any) -> None:
        self.ann.tell({"id": 7, "type": "read", "from": ANN, "to": BOB, "body": {}, **fields})

    def told(self) -> list[tuple[str, int]]:
        """
        What came since, by type and code.
        """
        return sorted((each["type"], each["body"]["code"]) for each in self.ann.take())

    def after(self, seconds: float) -> list[tuple[str, int]]:
        for _ in range(int(seconds * 10)):
            self.clock.advance(0.1)
        return self.told()


def iter_epochs() -> Any:
    for number in range(1, 1000):
        yield b"i" * 16, number


@pytest.mark.parametrize(
    ("fields", "answers"),
    [
        ({"type": "read"}, [("response", 502)]),
        ({"type": "create", "receipt": True}, [("receipt", 502), ("response", 502)]),
        ({"type": "message", "receipt": True}, [("receipt", 502), ("response", 502)]),
        ({"type": "update", "receipt": True}, [("receipt", 502)]),
        ({"type": "response", "body": {"code": 200}, "receipt": True}, [("receipt", 502)]),
    ],
    ids=["request", "request with receipt", "message", "publication", "response"],
)
def test_a_domain_that_was_never_reached_is_refused_at_once(fields, answers):
    """
    No node of the domain is known: those who ask are answered 502 in the same turn, and nothing waits.
    """
    made = Unreached(was_reached=False)

    made.send(**fields)

    assert made.told() == answers
    assert made.after(20) == []


def test_a_list_of_addresses_is_answered_for_each():
    """
    Each address of a request gets its own answer.
    """
    made = Unreached(was_reached=False)

    made.send(to=[BOB, f"hyperty://{B}/eve"])

    assert made.told() == [("response", 502)] * 2


@pytest.mark.parametrize(
    ("fields", "at_once", "in_the_end"),
    [
        ({"type": "read"}, [], [("response", 404)]),
        (
            {"type": "create", "receipt": True},
            [("receipt", 202)],
            [("receipt", 408), ("response", 404)],
        ),
        (
            {"type": "message", "ttl": 10, "receipt": True},
            [("receipt", 202)],
            [("receipt", 408)],
        ),
    ],
    ids=["request", "request with receipt", "message"],
)
def test_a_domain_that_is_not_reached_any_more_is_waited_for(fields, at_once, in_the_end):
    """
    A message for a node that was reached before waits for a route: a request for 15 seconds, another message
    for its time to live. Then its sender is answered.
    """
    made = Unreached(was_reached=True)

    made.send(**fields)
    first, second = made.told(), made.after(REQUEST_SECONDS + 1)

    assert first == at_once
    assert second == in_the_end


@pytest.mark.parametrize(("was_reached", "code", "seconds"), [(False, 502, 0.1), (True, 504, 6)])
def test_a_subscription_at_a_domain_that_is_not_reached(was_reached, code, seconds):
    """
    A subscription is refused at once where no node is known, and answered 504 after 5 seconds else; the node
    goes on asking.
    """
    made = Unreached(was_reached)

    made.subscribe(f"comm://{B}/room/changes")

    assert made.after(seconds) == [("response", code)]


def test_messages_that_nobody_waits_for_are_counted_by_reason():
    """
    A message without a receipt that is not delivered is counted.
    """
    made = Unreached(was_reached=True)

    made.send(type="message", ttl=5)
    made.after(10)

    assert made.exchange.counts["stale"] == 1
