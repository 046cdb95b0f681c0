"""
Copies of publications from before a session began here without its earlier holder, and from after that.
"""

from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock

from msgnode.cluster.copies.overlap import SessionOverlap
from msgnode.cluster.copies.session_beginnings import HOLD_SECONDS, MAX_UNHEARD, Beginnings
from tests.support.cluster_durable import NAMES, TOPIC, DurableWorld

A, B, C = NAMES
S, OTHER = "runtime://example.org/1", "runtime://example.org/11"  # both subscribe to one topic


@pytest.mark.parametrize("was_there", [True, False])
@pytest.mark.parametrize("has_other", [True, False])
@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("seconds", [0, 0.02, 1])
def test_what_a_client_had_at_its_holder_does_not_come_again_from_there(
    tmp_path: Path, was_there: bool, has_other: bool, is_killed: bool, seconds: float
) -> None:
    """
    What is published at the client's node also waits there for a second node, which is away. The client's
    node fails, the client begins again at the second one, and gets only what it has missed when the first
    is back: also what was sent to an earlier stay of its session at the second.
    """
    world = DurableWorld(tmp_path)
    bob = world.client(S)
    if has_other:
        world.client(OTHER).connect(B)
    bob.connect(B if was_there else C)
    world.run(1)
    world.kill(B)
    if was_there:
        world.publish(C, S, 4)
        world.run(1)
        bob.connect(C)
        world.run(4)
    world.publish(C, S, 6)
    world.run(1)
    world.slow.add((C, B))
    world.start(B)
    world.run(0.05 if was_there else 1)
    (world.kill if is_killed else world.stop)(C)
    world.run(7)
    bob.connect(B)
    world.run(4)
    world.publish(A, S, 4)
    world.run(8)

    (world.start if is_killed else world.resume)(C)
    world.run(seconds)
    world.slow.clear()
    world.run(4)
    world.heal()

    assert sorted(bob.got) == sorted(world.published[S])


def test_client_does_not_wait_for_a_late_handover_after_copies_are_decided_about(tmp_path: Path) -> None:
    """
    A member that was away is heard again while the earlier holder still waits for what it has sent there.
    """
    world = DurableWorld(tmp_path)
    bob = world.client(S)
    world.client(OTHER).connect(B)
    bob.connect(C)
    world.run(1)
    world.slow.update({(A, B), (A, C)})
    world.publish(A, S, 4)
    world.run(0.5)
    world.kill(A)
    world.stop(C)
    world.run(7)
    bob.connect(B)
    world.run(4)
    world.resume(C)
    world.run(8)
    world.slow.discard((A, B))
    world.start(A)
    world.run(2)
    world.publish(B, S, 4)
    world.run(1)

    assert ["b4", "b5", "b6", "b7"] == bob.got[-4:]


def test_what_a_member_publishes_is_not_lost_with_its_acknowledgement(tmp_path: Path) -> None:
    """
    The member has heard of the session, and its link is lost before it can say so.
    """
    world = DurableWorld(tmp_path)
    bob = world.client(S)
    bob.connect(C)
    world.run(1)
    world.publish(B, S, 2)
    world.run(1)
    world.kill(C)
    world.run(1)
    world.stop(B)
    bob.connect(A)
    world.run(4)
    world.cluster.one_way.add((B, A))
    world.resume(B)
    while A not in world.members[B].directory.holders(TOPIC.format("1")):
        world.run(0.005)
    world.run(0.02)
    world.cluster.cut(A, B)
    world.publish(B, S, 10)
    world.run(1)
    world.cluster.one_way.clear()
    world.cluster.restore(A, B)
    world.run(10)

    assert sorted(bob.got) == sorted(world.published[S])


def test_copies_from_before_that_come_after_the_session_has_left_again(tmp_path: Path) -> None:
    """
    They are for the earlier holder, which has them, and not for the session that has begun and left.
    """
    world = DurableWorld(tmp_path)
    bob = world.client(S)
    world.client(OTHER).connect(B)
    bob.connect(A)
    world.run(1)
    world.cluster.cut(B, C)
    world.run(0.2)
    world.publish(C, S, 6)
    world.run(1)
    world.kill(A)
    world.run(1)
    bob.connect(B)
    world.run(5)
    world.slow.add((C, B))
    world.cluster.restore(B, C)
    world.run(2)
    bob.connect(C)
    world.run(3)

    world.slow.clear()
    world.run(20)

    assert world.members[B].exchange.counts["failed"] == 0
    assert bob.got == ["c0", "c1", "c2", "c3", "c4", "c5"]


class Mailbox:
    """
    The mailbox of a session, as an overlap asks it to hold and to let go.
    """

    def __init__(self, overlap: Any = None) -> None:
        self.overlap = overlap
        self.holds = False
        self.taken_out: list[Any] = []

    def begin_arrival(self) -> int:
        self.holds = True
        return 1

    def take_out(self, kept: Any) -> bool:
        self.taken_out.append(kept)
        return True


class Session:
    """
    A session with such a mailbox.
    """

    ended = False

    def __init__(self) -> None:
        self.mailbox: Any = Mailbox()
        nothing: Any = lambda *args: None  # noqa: E731
        budget: Any = type("Budget", (), {"resized": nothing})()
        self.overlap = SessionOverlap(self.mailbox, lambda message: message.id, nothing, budget)
        self.mailbox.overlap = self.overlap


class Copy:
    """
    A copy of a member, as a message, and as what is kept of that.
    """

    effective_priority = 5
    key = 1

    def __init__(self, number: int, node: str = C) -> None:
        self.id = self.copy = (b"c-memory", number)
        self.origin = type("Origin", (), {"peer": node})()


class TestBeginnings:
    """
    The first node has a session since change 7 of its addresses, of which the third has not heard.
    """

    def setup_method(self) -> None:
        self.clock = Clock()
        self.heard = 0
        self.decided: list[Any] = []
        self.beginnings = Beginnings(
            self.clock, lambda node, change: self.heard >= change, lambda node: True, self.decided.append
        )
        self.session: Any = Session()
        self.before: list[Any] = []
        self.beginnings.begin(self.session, self.session.overlap, 7, [B, C])
        self.session.overlap.is_from_before = self.before.append

    def put(self, *copies: Any) -> list[bool]:
        overlap = self.session.overlap
        admitted = [overlap.admits(copy) for copy in copies]
        for copy in copies:
            overlap.note(copy)
        return admitted

    def hear(self, change: int, number: int, memory: bytes = b"c-memory") -> None:
        self.heard = change
        self.beginnings.heard(C, memory, number)

    def test_copies_wait_until_their_member_has_heard_of_the_session(self) -> None:
        """
        Those up to the number that it says are for an earlier stay; the others count.
        """
        old, new = Copy(20), Copy(21)
        assert self.put(old) == self.put(new) == [True]
        assert self.session.mailbox.holds

        self.hear(6, 18)
        assert self.decided == []
        self.hear(7, 20)

        assert self.session.mailbox.taken_out == self.before == [old]
        assert self.decided == [self.session]
        assert self.session.overlap.admits(Copy(19)) is False
        assert self.session.overlap.admits(Copy(22)) is True

    def test_copies_of_another_memory_count(self) -> None:
        """
        A member that has lost its state directory counts anew.
        """
        self.hear(7, 20, b"other")

        assert self.put(Copy(3)) == [True]
        assert not self.session.mailbox.holds

    def test_copies_wait_for_some_seconds_only(self) -> None:
        """
        A member that does not say anything may be of an older release, or busy.
        """
        self.put(Copy(20))

        self.clock.advance(HOLD_SECONDS)

        assert self.decided == [self.session]
        assert self.session.mailbox.taken_out == []

    def test_copies_do_not_wait_for_a_member_that_is_away_again(self) -> None:
        """
        It says it when it is back.
        """
        self.put(Copy(20))

        self.beginnings.give_up(C)
        self.hear(7, 30)

        assert self.decided == [self.session]
        assert self.session.overlap.admits(Copy(29)) is False

    def test_copies_for_which_there_is_no_room_hold_nothing_up(self) -> None:
        """
        What waits behind such a copy goes on when its member has said what it had made before.
        """
        assert self.session.overlap.admits(Copy(20))
        local: Any = Copy(0)
        local.copy = local.id = None
        assert self.put(local) == [True]

        self.hear(7, 20)

        assert self.decided == [self.session]
        assert self.session.mailbox.taken_out == []

    def test_member_that_starts_again_after_it_may_have_heard_of_the_session(self) -> None:
        """
        It cannot tell any more which copies it had made before that: all count.
        """
        self.beginnings.member_up(C, 1)
        self.hear(6, 18)
        self.put(Copy(20))

        self.beginnings.member_up(C, 2)

        assert self.decided == [self.session]
        assert self.session.mailbox.taken_out == []
        assert self.session.overlap.admits(Copy(19)) is True

    def test_member_that_was_killed_before_the_session_began(self) -> None:
        """
        Nothing was heard of it since: its copies are from before.
        """
        self.beginnings.member_up(C, 1)
        self.beginnings.member_up(C, 2)

        self.hear(7, 20)

        assert self.session.overlap.admits(Copy(19)) is False

    def test_sessions_of_which_a_member_has_not_heard_are_bounded(self) -> None:
        """
        All copies count for the oldest one beyond the bound.
        """
        for _ in range(MAX_UNHEARD):
            other: Any = Session()
            self.beginnings.begin(other, other.overlap, 8, [C])

        assert self.put(Copy(20)) == [True]
        assert not self.session.mailbox.holds
