"""
The beginnings of sessions that an earlier holder has, too, and which copies of publications are from before.

A session that begins here without its earlier holder, because that does not answer, is at both. What a member
has published before it heard of this session is for the other one. But the member may have sent a copy here
all the same, for another session, or an earlier stay of this one; and while it was away that copy waited
there. So each member says with its acknowledgement of this node's addresses how many copies it had made when
it heard of them.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from weakref import ref

import msgspec
from twisted.internet.interfaces import IReactorTime

from msgnode.cluster.copies.overlap import CopyId, SessionOverlap
from msgnode.sessions.session import Session

HOLD_SECONDS = 5.0  # for which copies wait for what their member says; then they count
MAX_UNHEARD = 20_000  # sessions of which a member has not heard; all its copies count for the oldest beyond


class Beginning:
    """
    The copies of each member that are from before the session: of a member with that memory, those up to a
    number. None: the member has not said it yet.
    """

    def __init__(self, members: Iterable[str]) -> None:
        self.marks: dict[str, tuple[bytes, int] | None] = dict.fromkeys(members)

    def unheard(self) -> Iterator[str]:
        """
        The members that have not said it.
        """
        return (node for node, mark in self.marks.items() if mark is None)

    def is_since(self, node: str, id: CopyId) -> bool | None:
        """
        Is the copy of that member from after it heard of the session? None if that is not known yet.
        """
        if node not in self.marks:
            return True
        mark = self.marks[node]
        if mark is None:
            return None
        memory, number = mark
        return id[1] > number or not id[0].startswith(memory)


class _Pending(msgspec.Struct, eq=False):
    change: int  # by which the session came into the directory
    session: ref[Session]
    beginning: Beginning
    at: float  # when it began


class Beginnings:
    """
    The sessions whose beginning not all members have heard of. `has_heard`: has a member acknowledged that
    change of this node's addresses? `is_expected`: is it there, or will it be back? `decided` is called with
    each session for which nothing waits any more.
    """

    def __init__(
        self,
        clock: IReactorTime,
        has_heard: Callable[[str, int], bool],
        is_expected: Callable[[str], bool],
        decided: Callable[[Session], None],
    ) -> None:
        self._clock = clock
        self._has_heard = has_heard
        self._is_expected = is_expected
        self._decided = decided
        self._pending: dict[str, deque[_Pending]] = {}  # by member, in the order of changes
        self._spoke: dict[str, float] = {}  # when a member has acknowledged anything last
        self._starts: dict[str, int] = {}  # of members
        self._is_stopped = False

    def begin(self, session: Session, overlap: SessionOverlap, change: int, members: Iterable[str]) -> None:
        """
        A session has begun here, by that change of this node's addresses.
        """
        nodes = list(members)
        overlap.beginning = beginning = Beginning(nodes)
        overlap.waits_for_member = lambda node: self._hold(session, node)
        for node in nodes:
            pending = self._pending.setdefault(node, deque())
            pending.append(_Pending(change, ref(session), beginning, self._clock.seconds()))
            if len(pending) > MAX_UNHEARD:
                self._count_all(pending.popleft(), node)

    def waits(self, session: Session) -> bool:
        """
        Is there a member that has not heard of it, and will?
        """
        overlap = session.mailbox.overlap
        beginning = overlap.beginning if isinstance(overlap, SessionOverlap) else None
        return beginning is not None and any(map(self._is_expected, beginning.unheard()))

    def heard(self, node: str, memory: bytes, number: int) -> None:
        """
        A member has acknowledged addresses of this node; before it had the last of them, it had made copies
        up to that number. An older release does not say that: 0.
        """
        self._spoke[node] = self._clock.seconds()
        pending = self._pending.get(node)
        while pending and self._has_heard(node, pending[0].change):
            each = pending.popleft()
            each.beginning.marks[node] = memory, number
            self._decide(each.session, node)

    def member_up(self, node: str, start: int) -> None:
        """
        A member is reached. If it has started again since it was heard after a session had begun, it may have
        made copies for that which it cannot tell from those before: then all of them count.
        """
        before, self._starts[node] = self._starts.get(node), start
        pending, spoke = self._pending.get(node), self._spoke.get(node, float("-inf"))
        while before not in (None, start) and pending and pending[0].at <= spoke:
            self._count_all(pending.popleft(), node)

    def give_up(self, node: str) -> None:
        """
        The member is away again: what waits for it waits no longer. It says it when it is back.
        """
        for each in self._pending.get(node, ()):
            self._decide(each.session, node)

    def _count_all(self, pending: _Pending, node: str) -> None:
        del pending.beginning.marks[node]
        self._decide(pending.session, node)

    def _hold(self, session: Session, node: str) -> None:
        self._clock.callLater(HOLD_SECONDS, self._decide, ref(session), node)

    def stop(self) -> None:
        self._is_stopped = True

    def _decide(self, found: ref[Session], node: str) -> None:
        session = found()
        if session is None or session.ended or self._is_stopped:
            return
        overlap = session.mailbox.overlap
        if isinstance(overlap, SessionOverlap) and overlap.decide(node):
            self._decided(session)
