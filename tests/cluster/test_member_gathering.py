"""
Messages that one read of a client's socket brings for a session at another member: they leave, and arrive, as
one.
"""

import json
from typing import Any

import pytest

from msgnode.links.stream.streams import IN_DOUBT, SEVERAL
from msgnode.protocol.message import compose
from msgnode.transport.cork import Cork
from tests.support.cluster_nodes import DOMAIN, MemoryCluster
from tests.support.links_exchange import DomainClient

TOPIC = f"comm://{DOMAIN}/chat/changes"
NOTICE = compose(9, "update", f"domain://msg-node.{DOMAIN}/sm", TOPIC, {})


class Read:
    """
    Three members, with a client at the first. `read` has it send messages in one read.
    """

    def __init__(self) -> None:
        self.cluster = MemoryCluster(3)
        for far in self.cluster.nodes.values():
            far.node.ingress.together = Cork(far.node.settle)
        self.ann = self.cluster["n1"].client("ann")
        self.bob = self.cluster["n2"].client("bob")
        self.carl = self.cluster["n3"].client("carl")
        self.sent = self.cluster["n1"].streams.sent
        self.sent.clear()

    def read(self, *messages: dict[str, Any]) -> list[tuple[str, int]]:
        """
        The kind of each message that then is on the wire, with how many it has.
        """
        node = self.cluster["n1"].node
        with node.ingress.together:
            for number, fields in enumerate(messages, 1):
                made = {"id": number, "type": "message", "from": self.ann.hyperty, "to": self.bob.hyperty}
                node.receive(json.dumps({**made, "body": {}, **fields}).encode(), self.ann)
        kinds = [(envelope.kind, payload.count(b'"from"')) for _, envelope, payload in self.sent]
        self.sent.clear()
        return kinds

    def arrived(self, client: DomainClient) -> list[int]:
        self.cluster.flow()
        return [each["id"] for each in client.take()]


@pytest.fixture
def made() -> Read:
    return Read()


def test_messages_of_one_read_leave_as_one(made: Read) -> None:
    """
    They arrive in their order, and each is in the traffic log of both members.
    """
    assert made.read({}, {}, {}) == [(SEVERAL, 3)]
    assert made.arrived(made.bob) == [1, 2, 3]
    for node in ("n1", "n2"):
        assert made.cluster[node].node.traffic_recorder.outcomes[-3:] == ["delivered"] * 3


def test_what_is_special_leaves_alone_and_in_order(made: Read) -> None:
    """
    A request, and a message with a receipt, leave alone, after those that were gathered before.
    """
    kinds = made.read({}, {}, {"type": "create"}, {"receipt": True}, {}, {})

    assert kinds == [(SEVERAL, 2), ("message", 1), ("asked", 1), (SEVERAL, 2)]
    assert made.arrived(made.bob) == [1, 2, 3, 4, 5, 6]


def test_publications_are_gathered_for_each_member(made: Read) -> None:
    """
    Publications to subscribers at two members are one message for each of them.
    """
    for node, client in (("n2", made.bob), ("n3", made.carl)):
        made.cluster[node].subscribe(client, TOPIC)
        client.take()

    kinds = made.read(*[{"to": TOPIC, "type": "update"}] * 5)

    assert kinds == [(SEVERAL, 5), (SEVERAL, 5)]
    assert made.arrived(made.bob) == made.arrived(made.carl) == [1, 2, 3, 4, 5]


def test_loss_of_several_is_counted(made: Read) -> None:
    """
    What was gathered and is lost is counted; the sender of messages without an answer hears nothing.
    """
    made.cluster["n1"].streams.losing = IN_DOUBT
    made.read({}, {})
    made.cluster.flow()

    assert 2 == made.cluster["n1"].exchange.counts["in-doubt"]
    assert [] == made.ann.take()


def test_messages_of_one_read_wait_for_their_member(made: Read) -> None:
    """
    What was gathered for a member is not sent to another one, which has other sessions, when its member is
    away for long.
    """
    link = frozenset(f"mn://{DOMAIN}/{name}" for name in ("n1", "n2"))
    made.read({}, {}, {})
    made.cluster.cut.add(link)

    for _ in range(10):
        made.cluster.clock.advance(5)

    assert [f"mn://{DOMAIN}/n2"] == [to for _, to, *_ in made.cluster.wire]
    made.cluster.cut.discard(link)
    assert [1, 2, 3] == made.arrived(made.bob)


def test_publication_of_the_node_leaves_after_what_was_gathered(made: Read) -> None:
    """
    Copies arrive in the order of their ids, so that the last one tells which have come.
    """
    made.cluster["n2"].subscribe(made.bob, TOPIC)
    made.bob.take()
    node = made.cluster["n1"].node

    with node.ingress.together:
        made.read({"to": TOPIC, "type": "update"}, {"to": TOPIC, "type": "update"})
        node.publish(NOTICE)

    assert made.arrived(made.bob) == [1, 2, 9]
