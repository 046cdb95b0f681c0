"""
The heaviest sessions, users or peers, by rates that are measured only while they are asked for.

The first question takes a sample of all attached sessions, waits a second, and takes another one; later ones
compare with a sample of up to a minute ago. Nothing is sampled five minutes after the last question.
"""

import heapq
from collections import deque
from collections.abc import Generator, Iterator
from typing import Any, ClassVar

import msgspec
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.task import deferLater

from msgnode.admin.reads.inspector import Inspector, checked_limit, peer_address
from msgnode.admin.survey import each_of, in_slices
from msgnode.protocol.errors import Rejected
from msgnode.sessions.session import Session

RATES = ("in_messages", "in_bytes", "out_messages", "out_bytes", "refused")
LEVELS = ("waiting_bytes", "unacked_bytes")
GROUPS = ("session", "user", "peer")
FIRST_SECONDS = 1.0  # between the first two samples
SAMPLE_SECONDS = 5.0
MAX_OVER_SECONDS = 60.0
IDLE_SECONDS = 300.0

Counts = tuple[int, int, int, int, int]


class TopQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """
    The question: compare `by` a rate or a level, summed by `group`, `over` at most a minute.
    """

    by: str = "in_messages"
    group: str = "session"
    over: float = 60.0
    limit: int = 20


class TopRow(msgspec.Struct):
    """
    A session, user or peer: its value by which it is sorted, and its rates per second.
    """

    name: str
    value: float
    sessions: int
    in_messages: float
    in_bytes: float
    out_messages: float
    out_bytes: float
    refused: float
    waiting_bytes: int
    unacked_bytes: int


class TopList(msgspec.Struct):
    """
    The heaviest, the heaviest first; the rates are those of the last `over` seconds.
    """

    rows_in: ClassVar[str] = "rows"

    by: str
    group: str
    over: float
    rows: list[TopRow]


class Sample:
    """
    The counters of the attached sessions at one time.
    """

    def __init__(self, at: float) -> None:
        self.at = at
        self.counts: dict[Session, Counts] = {}


class Top:
    """
    The samples of the last minute, while they are asked for.
    """

    def __init__(self, inspector: Inspector) -> None:
        self._inspector = inspector
        self._samples: deque[Sample] = deque()
        self._asked = 0.0
        self._is_sampling = False

    @inlineCallbacks
    def ask(self, query: TopQuery) -> Generator[Deferred[Any], Any, TopList]:
        """
        Fires with the TopList. Raises Rejected.
        """
        limit = checked_limit(query.limit)
        _check(query)
        clock = self._inspector.clock
        self._asked = clock.seconds()
        if not self._is_sampling:
            self._is_sampling = True
            self._samples.clear()
            yield self._take()
            yield deferLater(clock, FIRST_SECONDS)
            clock.callLater(SAMPLE_SECONDS, self._go_on)
        now = Sample(clock.seconds())
        yield self._walk(now)
        rows: dict[str, TopRow] = {}
        before = self._base(now.at - min(query.over, MAX_OVER_SECONDS))
        seconds = max(now.at - before.at, 0.001)
        best: list[tuple[float, str]] = []

        def steps() -> Iterator[None]:
            yield from _compared(query, rows, now, before, seconds)
            yield from each_of(rows.values(), lambda row: _keep_best(best, limit, row))

        yield self._inspector.node.slices.work(steps())
        best.sort(key=lambda each: (-each[0], each[1]))
        return TopList(query.by, query.group, round(seconds, 3), [rows[name] for _, name in best])

    def rates(self, session: Session) -> tuple[float | None, float | None]:
        """
        The messages of a session in and out a second since the oldest sample; None while there is none.
        """
        before = self._before.get(session)
        seconds = self._inspector.clock.seconds() - self._samples[0].at if self._samples else 0.0
        if before is None or seconds <= 0:
            return None, None
        came, went = session.in_messages - before[0], session.out_messages - before[2]
        return round(came / seconds, 3), round(went / seconds, 3)

    def _go_on(self) -> None:
        clock = self._inspector.clock
        if clock.seconds() - self._asked > IDLE_SECONDS:
            self._is_sampling = False
            self._samples.clear()
            return
        self._take().addErrback(lambda busy: None)
        clock.callLater(SAMPLE_SECONDS, self._go_on)

    def _take(self) -> Deferred[Any]:
        sample = Sample(self._inspector.clock.seconds())
        return self._walk(sample).addCallback(lambda done: self._keep(sample))

    def _keep(self, sample: Sample) -> None:
        self._samples.append(sample)
        while len(self._samples) > 1 and sample.at - self._samples[0].at > MAX_OVER_SECONDS:
            self._samples.popleft()

    def _walk(self, sample: Sample) -> Deferred[Any]:
        node = self._inspector.node
        sessions = node.sessions

        def look(session: Session) -> None:
            if session.is_node:
                return
            if session.connection is not None:
                sessions.count_carried(session)
            elif not session.mailbox.queued and session not in self._before:
                return
            sample.counts[session] = (
                session.in_messages,
                session.in_bytes,
                session.out_messages,
                session.out_bytes,
                session.refused,
            )

        return node.slices.work(each_of(sessions, look))

    @property
    def _before(self) -> dict[Session, Counts]:
        return self._samples[0].counts if self._samples else {}

    def _base(self, at: float) -> Sample:
        """
        The oldest sample that is not before this time, or the newest before.
        """
        for sample in self._samples:
            if sample.at >= at:
                return sample
        return self._samples[-1]


def _keep_best(best: list[tuple[float, str]], limit: int, row: TopRow) -> None:
    """
    Puts the row into the heap of the best, if it is one of them.
    """
    if len(best) < limit:
        if row.value:
            heapq.heappush(best, (row.value, row.name))
    elif row.value > best[0][0]:
        heapq.heapreplace(best, (row.value, row.name))


def _compared(
    query: TopQuery, rows: dict[str, TopRow], now: Sample, before: Sample, seconds: float
) -> Iterator[None]:
    """
    Fills `rows` with the rates between two samples, in slices.
    """
    nothing = (0, 0, 0, 0, 0)

    def look(session: Session, counts: Counts) -> None:
        known = before.counts.get(session, nothing)
        if query.by in RATES and counts[RATES.index(query.by)] == known[RATES.index(query.by)]:
            return
        name = _name(session, query.group)
        row = rows.get(name)
        if row is None:
            row = rows[name] = TopRow(name, 0, 0, 0, 0, 0, 0, 0, 0, 0)
        _add(row, session, counts, known, seconds)
        row.value = getattr(row, query.by)

    yield from in_slices(look(*each) for each in now.counts.items())  # type: ignore[func-returns-value]


def _check(query: TopQuery) -> None:
    if query.by not in (*RATES, *LEVELS):
        raise Rejected(f"parameter by: expected {', '.join((*RATES, *LEVELS))}, found {query.by[:40]!r}")
    if query.group not in GROUPS:
        raise Rejected(f"parameter group: expected {', '.join(GROUPS)}, found {query.group[:40]!r}")


def _name(session: Session, group: str) -> str:
    if group == "user":
        return session.identity or "nobody"
    if group == "peer":
        connection = session.connection
        return "away" if connection is None else peer_address(connection.peer) or "unix"
    return session.runtime


def _add(row: TopRow, session: Session, now: Counts, before: Counts, seconds: float) -> None:
    row.sessions += 1
    for name, new, old in zip(RATES, now, before, strict=True):
        setattr(row, name, round(getattr(row, name) + (new - old) / seconds, 3))
    row.waiting_bytes += session.mailbox.queued_bytes
    outbox = session.mailbox.outbox
    row.unacked_bytes += outbox.sent_bytes if outbox is not None else 0
