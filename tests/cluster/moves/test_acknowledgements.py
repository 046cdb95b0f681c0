"""
Members are asked for the acknowledgement of what was sent to them, and waited for.
"""

from collections import Counter
from collections.abc import Callable

import pytest
from twisted.internet.task import Clock

from msgnode.cluster.member_requests import MemberRequests
from msgnode.cluster.moves.flushing import Acknowledgements, Flushing
from msgnode.cluster.moves.wire import AnyStatement, Flush, Flushed
from tests.support.cluster_members import MemoryCluster


class FakeStreams:
    """
    Streams to members, each with the number of what it has, and of what it was sent.
    """

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.had: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()

    def unacknowledged(self, destination: str) -> Callable[[], bool]:
        until = self.sent[destination]
        return lambda: self.had[destination] < until

    def ask(self, destination: str) -> None:
        self.asked[destination] += 1


def waiting(streams: FakeStreams, clock: Clock, nodes: str) -> tuple[Acknowledgements, list[None]]:
    waits = Acknowledgements(streams, clock)
    done: list[None] = []
    waits.wait(nodes).addCallback(done.append)
    return waits, done


def test_nothing_sent_is_not_waited_for():
    """
    A member to which nothing was sent is neither asked nor waited for.
    """
    streams = FakeStreams()

    _, done = waiting(streams, Clock(), "ab")

    assert (done, streams.asked) == ([None], {})


def test_each_member_is_asked_at_once_and_waited_for():
    """
    The wait ends when the last of the members has acknowledged what was sent before, not what came later.
    """
    streams, clock = FakeStreams(), Clock()
    streams.sent.update("ab")
    _, done = waiting(streams, clock, "ab")
    streams.sent.update("ab")
    streams.had.update("a")
    clock.pump([0.01] * 10)

    assert done == []
    assert streams.asked["a"] == 1

    streams.had.update("b")
    clock.advance(0.05)

    assert done == [None]


def test_many_waits_ask_a_member_together():
    """
    A thousand sessions that are released at once cost one question to each member, not a thousand.
    """
    streams, clock = FakeStreams(), Clock()
    streams.sent.update("a")
    waits, done = waiting(streams, clock, "a")

    for _ in range(1000):
        waits.wait("a").addCallback(done.append)
    streams.had.update("a")
    clock.advance(0.01)

    assert (len(done), streams.asked["a"]) == (1001, 1)


def test_a_member_that_does_not_answer_is_asked_again():
    """
    The question may be lost, or may overtake what is still being written: it is repeated, ever more seldom.
    """
    streams, clock = FakeStreams(), Clock()
    streams.sent.update("a")
    _, done = waiting(streams, clock, "a")

    clock.pump([0.001] * 1000)

    assert done == []
    assert 10 < streams.asked["a"] < 30


@pytest.mark.parametrize(
    ("asker", "others", "said"), [("b", [], Flushed(2, True)), ("a", ["b"], Flushed(2, False, ["b"]))]
)
def test_what_is_for_a_node_without_a_link_is_late(asker: str, others: list[str], said: Flushed) -> None:
    """
    A node that is asked does not wait for the node that asks, or for another one, while it has no link there;
    and says so if it has sent it something that has not come.
    """
    cluster, streams = MemoryCluster(), FakeStreams()
    members, other = cluster.start("me"), cluster.start("a")
    for each in (members, other):
        each.listener = MemberRequests(each, cluster.clock)
    cluster.connect()
    waits = Acknowledgements(streams, cluster.clock)
    answers: list[AnyStatement] = []
    flushing = Flushing(members, cluster.clock, waits.wait, owes=waits.is_owed)
    flushing.send = lambda node, statement: answers.append(statement)

    flushing.asked(asker, Flush(1, others))
    streams.sent.update("b")
    flushing.asked(asker, Flush(2, others))

    assert answers == [Flushed(1, False), said]


def test_what_is_owed_to_one_new_holder_does_not_make_another_late():
    """
    Of two sessions that move at the same time, the one waits whose new node a member cannot reach.
    """
    cluster = MemoryCluster()
    members, other = cluster.start("me"), cluster.start("a")
    for each in (members, other):
        each.listener = MemberRequests(each, cluster.clock)
    cluster.connect()
    flushing = Flushing(members, cluster.clock)
    asked: list[AnyStatement] = []
    flushing.send = lambda node, statement: asked.append(statement)
    late: dict[str, bool] = {}
    for node in ("b", "c"):
        flushing.flush(node).addCallback(lambda is_late, node: late.update({node: is_late}), node)
    cluster.clock.advance(0)

    flushing.answered("a", Flushed(1, False, ["b"]))

    assert asked == [Flush(1, ["b", "c"])]
    assert late == {"b": True, "c": False}
    assert not flushing.is_slow
