"""
Orders of operators about other domains, put into effect at streams with traffic.
"""

from typing import Any

import pytest

from msgnode.links.admin_states import AdminStates
from msgnode.links.operations import NotAPeer
from msgnode.links.operators.node_operations import NodeOperations, check_new
from msgnode.links.operators.stream_view import StreamView
from msgnode.links.stream.common import StreamLimits
from msgnode.links.wire.node_name import domain_of
from msgnode.protocol.errors import Rejected
from msgnode.service.restart.unlinked_streams import NoLinks
from tests.support.links_stream import FakeNet, StreamNode

B1, B2, C = "mn://b.example/1", "mn://b.example/2", "mn://c.example/1"


class Operated:
    """
    A node with streams and their operators, and nodes of two other domains, of which one is configured.
    """

    def __init__(self, **options: Any) -> None:
        self.net = FakeNet()
        self.a = StreamNode(self.net, "mn://a.example/1", **options)
        self.b1, self.b2, self.c = (StreamNode(self.net, name) for name in (B1, B2, C))
        streams, states = self.a.streams, AdminStates(None)
        none: Any = NoLinks(self.a.name)
        assert streams is not None
        streams.admit = lambda node, is_answer: check_new(states, domain_of(node), is_answer)
        self.operations = NodeOperations(
            lambda: ["b.example"],
            states,
            streams,
            none,
            none,
            StreamView(streams),
            none,
            self.net.clock.seconds,
            lambda: None,
            own="a.example",
        )

    def undelivered(self, domain: str) -> int:
        return sum(stream.undelivered for stream in self.operations.domain(domain).streams)

    def cut(self, *nodes: str) -> None:
        for node in nodes:
            self.net.set_route(self.a.name, node, False)


def test_a_drained_domain_gets_what_was_accepted_and_nothing_new():
    """
    New messages are refused with 403 while all that was accepted is delivered; then nothing is undelivered,
    and no sender was forgotten.
    """
    made = Operated()
    a, net = made.a, made.net
    made.cut(B1)
    accepted = [a.send(B1, b"%d" % number) for number in range(300)]
    net.run(1)

    made.operations.drain("b.example")
    with pytest.raises(Rejected) as refused:
        a.send(B1, b"new")
    before = made.undelivered("b.example")
    net.set_route(a.name, B1, True)
    net.run(20)

    assert (refused.value.code, refused.value.reason) == (403, "policy")
    assert (before, made.undelivered("b.example")) == (300, 0)
    assert [a.reasons(each) for each in accepted] == [["acknowledged"]] * 300
    assert made.b1.payloads == [b"%d" % number for number in range(300)]


def test_a_drained_domain_sends_and_is_answered():
    """
    What comes from the domain is taken, and receipts and answers about subscriptions go there.
    """
    made = Operated()
    made.operations.drain("b.example")

    made.b1.send(made.a.name, b"from there")
    receipt = made.a.send(B1, b"receipt", kind="receipt")
    made.net.run(2)

    assert made.a.payloads == [b"from there"]
    assert made.a.reasons(receipt) == ["acknowledged"]


@pytest.mark.parametrize("order", ["ban", "pause", "drain"])
def test_own_domain_is_not_cut_off(order):
    """
    An order that would cut this node off from the others of its domain is refused.
    """
    made = Operated()
    StreamNode(made.net, "mn://a.example/2")
    made.a.send("mn://a.example/2", b"1")

    with pytest.raises(Rejected, match=r"a\.example is this node's own domain") as refused:
        getattr(made.operations, order)("a.example")

    assert refused.value.code == 400


def test_resume_ends_a_drain():
    """
    After the order, new messages are accepted again; those for other domains always were.
    """
    made = Operated()
    made.operations.drain("b.example")
    made.a.send(C, b"other")

    made.operations.resume("b.example")
    again = made.a.send(B1, b"again")
    made.net.run(2)

    assert made.a.reasons(again) == ["acknowledged"]
    assert made.c.payloads == [b"other"]


def test_forget_tells_the_senders_to_all_nodes_of_the_domain_only():
    """
    The order says how many messages it drops, and each of their senders gets 502; other domains keep theirs.
    """
    made = Operated()
    a = made.a
    made.cut(B1, B2, C)
    sent = [a.send(node, b"x") for node in (B1, B2) for _ in range(50)]
    kept = a.send(C, b"kept")

    count = made.operations.forget("b.example")
    made.net.run(2)

    assert count == 100
    assert [a.reasons(each) for each in sent] == [["no-path"]] * 100
    assert a.outcomes[sent[0]][0].code == 502
    assert (made.undelivered("b.example"), a.reasons(kept)) == (0, [])


def test_forget_of_a_great_backlog_is_done_some_at_a_time():
    """
    The order returns at once with the number of all, and the rest is dropped in later turns.
    """
    made = Operated(limits=StreamLimits(queue_messages=10_000))
    made.cut(B1)
    for _ in range(5000):
        made.a.send(B1, b"x")

    count = made.operations.forget("b.example")
    left = made.undelivered("b.example")
    made.net.run(2)

    assert count == 5000
    assert 4000 < left < 5000
    assert made.undelivered("b.example") == 0
    assert made.a.streams.memory_bytes == made.a.streams.undelivered_bytes == 0


def test_a_domain_that_is_no_peer_is_seen_while_messages_wait_for_it():
    """
    Operators can forget what waits for a domain that was removed; then it is unknown.
    """
    made = Operated()
    made.cut(C)
    made.a.send(C, b"x")
    before = [(each.domain, each.is_configured) for each in made.operations.domains()]

    made.operations.forget("c.example")
    made.net.run(1)

    assert before == [("b.example", True), ("c.example", False)]
    with pytest.raises(NotAPeer):
        made.operations.forget("c.example")


def test_the_age_of_the_oldest_message_is_not_that_of_one_that_has_ended():
    """
    A message that became stale at the head of its queue does not count.
    """
    made = Operated()
    made.cut(B1)
    made.a.send(B1, b"soon stale", ttl_millis=2000)
    made.net.run(3)
    made.a.send(B1, b"young")
    made.net.run(1)

    [status] = made.operations.domain("b.example").streams

    assert (status.undelivered, round(status.oldest_seconds)) == (1, 1)
