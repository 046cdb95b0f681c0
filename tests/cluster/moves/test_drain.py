"""
A node that is drained hands its sessions over to the members that take some, within its time.
"""

from simulating.clock import HeapClock

from msgnode.cluster.moves.drain import AT_ONCE, Drain
from tests.support.cluster_directory import A, B, C
from tests.support.cluster_members import MemoryCluster
from tests.support.cluster_moves import QuickNode


class Draining:
    """
    Three members; the first holds sessions, and is drained.
    """

    def __init__(self, count, capacity=256):
        self.cluster = MemoryCluster(clock=HeapClock(), capacity=capacity)
        self.nodes: dict[str, QuickNode] = {}
        for name in (A, B, C):
            QuickNode(self.cluster, self.nodes, name)
        self.first = self.nodes[A]
        self.first.sessions = {f"hyperty-runtime://example.com/{number}": 1 for number in range(count)}
        self.targets = [B, C]
        self.most = 0
        self.drain = Drain(
            self.first.moves,
            lambda: list(self.first.sessions),
            lambda: self.targets,
            self.give,
            self.cluster.clock,
        )
        self.cluster.connect()

    def give(self, name, node):
        is_given = self.first.moves.hand_over(name, node)
        self.most = max(self.most, self.first.moves.under_way[2])
        return is_given

    def begin(self, seconds=60):
        self.ended: list[float] = []
        over = self.drain.begin(seconds)
        over.addCallback(lambda done: self.ended.append(self.cluster.clock.seconds()))


def test_sessions_go_to_all_members_a_few_at_a_time():
    """
    All sessions are handed over, half to each of two members, and never more than a bound at once.
    """
    draining = Draining(4000)

    draining.begin()
    draining.cluster.run(10)

    assert draining.ended
    assert draining.first.sessions == {}
    assert [len(draining.nodes[name].sessions) for name in (B, C)] == [2000, 2000]
    assert draining.nodes[B].received + draining.nodes[C].received == 5 * 4000
    assert 0 < draining.most <= AT_ONCE + 25


def test_drain_ends_when_its_time_is_over():
    """
    A member that takes nothing any more keeps the drain no longer than its time; the sessions stay.
    """
    draining = Draining(100)
    for name in (B, C):
        draining.cluster.stop(name)

    draining.begin(seconds=3)
    draining.cluster.run(2.5)
    assert not draining.ended
    draining.cluster.run(1)

    assert draining.ended
    assert len(draining.first.leaving) == 100


def test_drain_goes_on_with_the_other_member_when_one_dies():
    """
    When a member dies during a drain, the drain waits for the other one only. What was on its way to the dead
    one, within the bound, is handed over when that is back.
    """
    draining = Draining(1000)

    draining.begin()
    draining.cluster.run(0.02)
    draining.targets = [B]
    draining.cluster.kill(C)
    draining.cluster.run(5)

    assert draining.ended
    assert draining.first.sessions == {}
    assert len(draining.nodes[B].sessions) >= 1000 - AT_ONCE
    assert len(draining.first.leaving) <= AT_ONCE


def test_drain_of_the_last_node_ends_at_once():
    """
    Without another member that takes sessions, they stay for the next start.
    """
    draining = Draining(10)
    draining.targets = []

    draining.begin()
    draining.cluster.run(0.1)

    assert draining.ended
    assert len(draining.first.sessions) == 10


def test_sessions_that_come_during_a_drain_are_handed_over_too():
    """
    A session that is opened while others are being handed over does not stay behind.
    """
    draining = Draining(200)

    draining.begin()
    draining.cluster.run(0.004)
    draining.first.sessions["hyperty-runtime://example.com/late"] = 1
    draining.cluster.run(5)

    assert draining.ended
    assert draining.first.sessions == {}
    assert draining.first.leaving == {}
