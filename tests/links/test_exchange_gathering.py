"""
Messages that one read of a client's socket brings for one address: they leave, and arrive, as one.
"""

import json

import pytest
from twisted.internet.defer import Deferred

from msgnode.links.stream.streams import IN_DOUBT, MAX_SEVERAL, SEVERAL, Envelope
from msgnode.transport.cork import Cork
from tests.support.links_exchange import Far, MemoryNetwork
from tests.support.policy_case import rule

A, B = "a.example", "b.example"


class Read:
    """
    Two domains with a client each. `read` has the client of the first send messages in one read.
    """

    def __init__(self) -> None:
        self.network = MemoryNetwork(A, B)
        for far in self.network.nodes.values():
            far.node.ingress.together = Cork(far.node.settle)
        self.alice = self.network[A].client("alice")
        self.bob = self.network[B].client("bob")
        self.network[A].streams.sent.clear()

    def read(self, *messages: dict[str, object]) -> list[tuple[str, int]]:
        """
        The kind of each message that then is on the wire, with how many it has.
        """
        node = self.network[A].node
        with node.ingress.together:
            for number, fields in enumerate(messages, 1):
                made = {"id": number, "type": "message", "from": self.alice.hyperty, "to": self.bob.hyperty}
                node.receive(json.dumps({**made, "body": {}, **fields}).encode(), self.alice)
        sent = self.network[A].streams.sent
        kinds = [(envelope.kind, payload.count(b'"from"')) for _, envelope, payload in sent]
        sent.clear()
        return kinds

    def arrived(self) -> list[int]:
        self.network.flow()
        return [each["id"] for each in self.bob.take()]


@pytest.fixture
def made() -> Read:
    return Read()


def test_messages_of_one_read_leave_as_one(made):
    """
    They arrive in their order, and each is in the traffic log of both nodes.
    """
    assert made.read({}, {}, {}) == [(SEVERAL, 3)]
    assert made.arrived() == [1, 2, 3]
    for domain in (A, B):
        assert made.network[domain].node.traffic_recorder.outcomes[-3:] == ["delivered"] * 3
    assert made.network[A].exchange.counts["sent"] == 3
    assert made.network[B].exchange.counts["received"] == 3


def test_a_message_alone_is_sent_alone(made):
    """
    A read with one message sends it as it always was.
    """
    assert made.read({}) == [("message", 1)]
    assert made.read({}) == [("message", 1)]
    assert made.arrived() == [1, 1]


def test_without_a_batch_nothing_waits(made):
    """
    A message that comes outside of a read leaves at once.
    """
    made.alice.request(made.bob.hyperty)

    assert [envelope.kind for _, envelope, _ in made.network[A].streams.sent] == ["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"receipt": True},
        {"forward": True},
        {"log": False},
        {"transaction": 7},
        {"priority": 7},
        {"ttl": 5},
        {"type": "read"},
        {"bulk": True},
        {"encrypt": True},
        {"body": {"via": "stub"}},
        {"body": {"text": "x" * 1024}},
        {"from": "hyperty://a.example/alice2"},
        {"to": "hyperty://b.example/carol"},
        {"to": ["hyperty://b.example/bob", "hyperty://b.example/carol"]},
    ],
    ids=str,
)
def test_another_message_is_no_part_of_them(made, fields):
    """
    A message for which something else is asked leaves alone, in its place between the others.
    """
    for name in ("alice2", "carol"):
        made.network[A if name == "alice2" else B].client(name)

    assert made.read({}, {}, fields, {}, {}) == [(SEVERAL, 2), ("message", 1), (SEVERAL, 2)]
    assert [id for id in made.arrived() if id != 3] == [1, 2, 4, 5]


def test_they_are_bounded(made):
    """
    No more than MAX_SEVERAL are sent as one, and no more than 16 KiB.
    """
    assert made.read(*[{}] * (MAX_SEVERAL + 2)) == [(SEVERAL, MAX_SEVERAL), (SEVERAL, 2)]
    assert made.read(*[{"body": {"text": "x" * 900}}] * 20) == [(SEVERAL, 16), (SEVERAL, 4)]


def test_a_stream_that_is_nearly_full_refuses_the_newest(made):
    """
    Where there is no room for many, each message is sent alone, and the one that does not fit is refused.
    """
    made.network[A].streams.room = 2

    assert made.read({}, {}, {"type": "read"}) == [("message", 1)] * 2
    [answer] = made.alice.take()
    assert (answer["id"], answer["body"]["code"]) == (3, 507)


def test_a_domain_that_was_drained_meanwhile_refuses_each(made):
    """
    A refusal that comes when they leave is counted for each of them.
    """
    node = made.network[A].node
    with node.ingress.together:
        for number in (1, 2):
            message = {"id": number, "type": "message", "from": made.alice.hyperty, "to": made.bob.hyperty}
            node.receive(json.dumps(message).encode(), made.alice)
        made.network[A].streams.drained.add(f"mn://{B}/n1")

    assert made.arrived() == []
    assert made.network[A].exchange.counts["policy"] == 2


def test_a_request_leaves_alone(made):
    """
    Requests are not gathered: each is waited for by itself, and answered if it is lost.
    """
    assert made.read({"type": "read"}, {"type": "read"}) == [("message", 1)] * 2
    made.network[A].streams.losing = IN_DOUBT
    made.network.flow()

    assert [(each["id"], each["body"]["code"]) for each in made.alice.take()] == [(1, 504), (2, 504)]


def test_policies_decide_about_each(made):
    """
    A policy of the sender's node refuses one of them, one of the home node another one.
    """
    for domain, word in ((A, "one"), (B, "two")):
        deny = {"direction": {"equals": "out" if domain == A else "in"}, "body.word": {"equals": word}}
        made.network[domain].use(rule("deny", deny), rule("permit", {"peer.domain": {"exists": True}}))

    made.read({}, {"body": {"word": "one"}}, {"body": {"word": "two"}}, {})

    assert made.arrived() == [1, 4]


def test_a_sender_that_may_not_send_is_refused_for_each(made):
    """
    A peer that puts messages of others among its own gets through with its own only.
    """
    good = {"id": 1, "type": "message", "from": made.alice.hyperty, "to": made.bob.hyperty, "body": {}}
    bad = [{**good, "from": "hyperty://c.example/eve"}, {**good, "to": "hyperty://c.example/eve"}]

    payloads = [json.dumps(each).encode() for each in (good, *bad, {**good, "id": 2}, bad[0])]
    receive_several(made.network[B], made.network[A], [*payloads, b"nonsense"])

    assert [each["id"] for each in made.bob.take()] == [1, 2]
    assert made.network[B].exchange.counts["peer"] == 3


def receive_several(far: Far, source: Far, payloads: list[bytes], kept: list[bytes] | None = None) -> None:
    """
    Let a node receive these messages from another one; `kept` gets those that it is not done with.
    """
    taken: list[bytes] = []

    def each():
        for payload in payloads:
            taken.append(payload)
            yield payload

    def keep():
        assert kept is not None
        mine = taken[-1]
        kept.append(mine)
        return lambda: kept.remove(mine)

    envelope = Envelope(SEVERAL, (b"forged", 1), 60_000, 5)
    far.exchange.received_several(source.name, envelope, each(), ((source.name, 5),), keep)


def test_one_that_takes_longer_is_kept(made):
    """
    The others are delivered at once; that one is kept until it was delivered, too.
    """
    waiting: list[Deferred[None]] = []

    def identify(message):
        if message.id != 2:
            return None
        waiting.append(Deferred())
        return waiting[-1]

    made.network[B].node.ingress.identify = identify
    good = {"type": "message", "from": made.alice.hyperty, "to": made.bob.hyperty, "body": {}}
    payloads = [json.dumps({**good, "id": number}).encode() for number in (1, 2, 3)]
    kept: list[bytes] = []

    receive_several(made.network[B], made.network[A], payloads, kept)
    assert [each["id"] for each in made.bob.take()] == [1, 3]
    assert kept == [payloads[1]]

    waiting[0].callback(None)
    assert [each["id"] for each in made.bob.take()] == [2]
    assert not kept
