"""
The bounds of moves: sessions that are asked for and that arrive, and the ids of copies that are remembered.
"""

import gc
from collections.abc import Iterable
from typing import Any

from simulating.clock import HeapClock

from msgnode.cluster.copies.overlap import CopyBudget, SessionOverlap
from msgnode.protocol.close_codes import OVER_CAPACITY
from msgnode.sessions.queue import QueuedMessage
from tests.support.cluster_directory import A, B
from tests.support.cluster_members import MemoryCluster
from tests.support.cluster_moves import QuickNode

SESSIONS = [f"hyperty-runtime://example.com/{number}" for number in range(3)]


def two_members(most: int) -> tuple[MemoryCluster, Any, Any]:
    """
    Two members; the first holds three sessions, and the second has that bound.
    """
    cluster, nodes = MemoryCluster(clock=HeapClock()), {}
    holder, taker = QuickNode(cluster, nodes, A), QuickNode(cluster, nodes, B, most)
    holder.sessions = dict.fromkeys(SESSIONS, 1)
    holder.moves.start()
    cluster.connect()
    return cluster, holder, taker


def test_client_beyond_the_sessions_asked_for_is_refused() -> None:
    """
    A member asks for a bounded number of sessions at a time; the next client is refused as over capacity, and
    gets its session when it tries again.
    """
    cluster, holder, taker = two_members(most=2)
    outcomes: list[Any] = []

    for name in SESSIONS:
        taker.moves.take(name, b"").addCallback(outcomes.append)

    assert [(outcome.code, outcome.reason) for outcome in outcomes] == [(OVER_CAPACITY.code, "full")]
    assert taker.moves.counts.full == 1

    cluster.run(5)
    taker.moves.take(SESSIONS[2], b"")
    cluster.run(5)

    assert (holder.sessions, sorted(taker.sessions)) == ({}, SESSIONS)


def test_sessions_beyond_those_that_arrive_wait_at_their_holder() -> None:
    """
    A member takes a bounded number of sessions at a time that others hand over; the rest is offered again.
    """
    cluster, holder, taker = two_members(most=1)

    for name in SESSIONS:
        holder.moves.hand_over(name, B)
    cluster.run(0.1)
    assert taker.moves.put_off > 0
    cluster.run(60)

    assert (holder.leaving, sorted(taker.sessions)) == ({}, SESSIONS)


class FakeMailbox:
    """
    The mailbox of a session without a queue.
    """

    def withdraw(self, message: Any) -> None: ...


def overlap_of(budget: CopyBudget) -> SessionOverlap:
    mailbox: Any = FakeMailbox()
    return SessionOverlap(mailbox, lambda message: None, lambda: None, budget)


def note(overlap: SessionOverlap, numbers: Iterable[int]) -> None:
    for number in numbers:
        kept = QueuedMessage(number, b"", 0.0, 0, 0)
        kept.copy = (b"instance", number)
        overlap.note_early(kept)


def known(overlap: SessionOverlap, numbers: Iterable[int]) -> list[int]:
    return [number for number in numbers if not overlap.is_new((b"instance", number))]


def test_session_alone_may_remember_all_copies() -> None:
    """
    The newest ids of publications are remembered, as many as the bound says; the oldest are forgotten.
    """
    budget = CopyBudget(most=10)
    overlap = overlap_of(budget)

    note(overlap, range(15))

    assert known(overlap, range(15)) == [*range(5, 15)]
    assert (budget.remembered, budget.forgotten) == (10, 5)


def test_copies_of_all_sessions_stay_within_the_bound() -> None:
    """
    A session that is new makes the others forget what they have beyond an equal share.
    """
    budget = CopyBudget(most=10)
    first, second = overlap_of(budget), overlap_of(budget)
    note(first, range(10))

    note(second, range(3))

    assert budget.remembered <= 10
    assert known(second, range(3)) == [0, 1, 2]
    assert known(first, range(10)) == [*range(5, 10)]


def test_session_that_is_over_leaves_room_for_others() -> None:
    """
    What was remembered for a session that has moved counts no more.
    """
    budget = CopyBudget(most=10)
    note(overlap_of(budget), range(10))
    gc.collect()
    overlap = overlap_of(budget)

    note(overlap, range(10))

    assert (budget.remembered, budget.forgotten) == (10, 0)
