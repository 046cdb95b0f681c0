"""
The list of sessions: filtered, sorted, and cut to a page, in slices of the event loop.
"""

import heapq
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from typing import ClassVar

import msgspec
from twisted.internet.defer import Deferred

from msgnode.admin.reads.inspector import Inspector, checked_limit, peer_filter
from msgnode.admin.reads.session_keys import CARRIED, KEYS, RUNTIME
from msgnode.admin.reads.session_rows import (
    ATTACHED,
    AWAY,
    SLOW,
    SUPERSEDING,
    SessionRow,
    reconnects,
    row_of,
    state_of,
    user_agent,
)
from msgnode.admin.survey import each_of, in_slices
from msgnode.protocol.errors import Rejected
from msgnode.sessions.session import Session

STATES = (ATTACHED, AWAY, SLOW, SUPERSEDING)


class SessionQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """
    Filters, order and page of a list of sessions.

    `q` is a part of the runtimeURL, the user or the peer; `peer` an IP address or a network; `idle_over`
    seconds since the last message; `user_agent` a part of the client's program; `min_reconnects` of the last
    hour; `anonymous` is true or false; `token_ends_in` seconds until then at most; `label` one that operators
    gave it; `sort` is a key, with a minus before it for the largest first; `cursor` is `next` of the page
    before.
    """

    q: str = ""
    state: str = ""
    connector: str = ""
    user: str = ""
    peer: str = ""
    min_waiting_bytes: int = 0
    idle_over: float = 0
    user_agent: str = ""
    min_reconnects: int = 0
    anonymous: bool | None = None
    token_ends_in: float = 0
    label: str = ""
    sort: str = RUNTIME
    limit: int = 50
    cursor: str = ""


class SessionList(msgspec.Struct):
    """
    A page of sessions: of `total` sessions `matched` the filters; `next` is the cursor of the next page, if
    any.
    """

    rows_in: ClassVar[str] = "sessions"

    total: int
    matched: int
    sessions: list[SessionRow]
    next: str | None = None


class _Last:
    """
    A name in reverse order: the heap of a page has the one that is sorted last on top.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __lt__(self, other: "_Last") -> bool:
        return self.name > other.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Last) and self.name == other.name

    __hash__ = None  # type: ignore[assignment]


def tests_of(query: SessionQuery, inspector: Inspector) -> list[Callable[[Session], bool]]:
    """
    The filters of a query, as functions. Raises Rejected.
    """
    found: list[Callable[[Session], bool]] = []
    if query.state:
        if query.state not in STATES:
            raise Rejected(f"parameter state: expected {', '.join(STATES)}, found {query.state[:40]!r}")
        found.append(lambda session: state_of(session, inspector) == query.state)
    if query.connector:
        found.append(lambda s: s.connection is not None and s.connection.connector == query.connector)
    if query.user:
        found.append(lambda session: query.user in (session.identity, getattr(session.proof, "user", "")))
    if query.peer:
        is_in = peer_filter(query.peer)
        found.append(lambda session: session.connection is not None and is_in(session.connection.peer))
    if query.min_waiting_bytes:
        found.append(lambda session: session.mailbox.queued_bytes >= query.min_waiting_bytes)
    if query.idle_over:
        before = (inspector.facts.wall() - query.idle_over) * 1e9

        def is_idle(session: Session) -> bool:
            inspector.node.sessions.count_carried(session)
            return session.last_in < before

        found.append(is_idle)
    found += _more_tests(query, inspector)
    if query.q:
        part = query.q.lower()

        def has_part(session: Session) -> bool:
            connection = session.connection
            return (
                part in session.runtime.lower()
                or part in session.identity.lower()
                or (connection is not None and part in connection.peer)
            )

        found.append(has_part)
    return found


def _more_tests(query: SessionQuery, inspector: Inspector) -> Iterator[Callable[[Session], bool]]:
    if query.user_agent:
        program = query.user_agent.lower()
        yield lambda session: program in user_agent(session).lower()
    if query.min_reconnects:
        yield lambda session: reconnects(session, inspector) >= query.min_reconnects
    if query.anonymous is not None:
        yield lambda session: session.anonymous is query.anonymous
    if query.label:
        yield lambda session: query.label in inspector.labels(session.runtime)
    if query.token_ends_in:
        until = inspector.facts.wall() + query.token_ends_in

        def ends_soon(session: Session) -> bool:
            proof = session.proof
            return proof is not None and proof.until is not None and proof.until <= until

        yield ends_soon


def list_sessions(inspector: Inspector, query: SessionQuery) -> Deferred[SessionList]:
    """
    A page of the sessions. Raises Rejected if the query is wrong, or too many lists are being made.
    """
    page = Page(inspector, query)
    return inspector.walk(page.steps(), page.result)


def matching(inspector: Inspector, query: SessionQuery, found: list[Session], most: int) -> Iterator[None]:
    """
    Fills `found` with the sessions that the filters match, in slices. Raises Rejected if they are too many.
    """
    tests = tests_of(query, inspector)

    def look(session: Session) -> None:
        if not session.is_node and all(test(session) for test in tests):
            found.append(session)
            if len(found) > most:
                raise Rejected(f"more than {most} sessions match; name fewer", 413, "too-long")

    yield from each_of(inspector.node.sessions, look)


class Page:
    """
    A page in the making: the `limit` sessions that come first behind the cursor.
    """

    def __init__(self, inspector: Inspector, query: SessionQuery) -> None:
        self._inspector = inspector
        self._limit = checked_limit(query.limit)
        self._tests = tests_of(query, inspector)
        self._sort = query.sort.removeprefix("-")
        if self._sort != RUNTIME and self._sort not in KEYS:
            known = ", ".join((RUNTIME, *KEYS))
            raise Rejected(f"parameter sort: expected one of {known}, found {query.sort[:40]!r}")
        self._sign = 1 if query.sort.startswith("-") else -1
        self._after = _decoded(query.cursor) if query.cursor else None
        self._heap: list[tuple[float, _Last, Session]] = []
        self._matched = 0
        self._behind = 0  # of those that matched, behind the cursor
        self._rows: list[SessionRow] = []
        if self._sort == RUNTIME and self._sign == 1:
            raise Rejected("parameter sort: runtime is sorted upwards only")

    def steps(self) -> Iterator[None]:
        yield from each_of(self._inspector.node.sessions, self._look)
        yield  # sorting is a turn of its own
        self._heap.sort(key=lambda entry: (-entry[0], entry[1].name))
        yield from in_slices(self._add(session) for _, _, session in self._heap)  # type: ignore[func-returns-value]

    def _look(self, session: Session) -> None:
        for test in self._tests:
            if not test(session):
                return
        self._matched += 1
        value = 0.0
        if self._sort != RUNTIME:
            if self._sort in CARRIED and session.connection is not None:
                self._inspector.node.sessions.count_carried(session)
            value = self._sign * KEYS[self._sort](session, self._inspector)
        heap = self._heap
        after = self._after
        if after is not None:
            place = value / self._sign if self._sort != RUNTIME else 0.0
            if not self._is_behind(place, session.runtime, after):
                return
        self._behind += 1
        if len(heap) < self._limit:
            heapq.heappush(heap, (value, _Last(session.runtime), session))
        elif value >= heap[0][0]:
            entry = value, _Last(session.runtime), session
            if entry[:2] > heap[0][:2]:
                heapq.heapreplace(heap, entry)

    def _is_behind(self, value: float, runtime: str, after: tuple[float, str]) -> bool:
        if value != after[0]:
            return (value < after[0]) if self._sign == 1 else (value > after[0])
        return runtime > after[1]

    def _add(self, session: Session) -> None:
        self._rows.append(row_of(session, self._inspector))

    def result(self) -> SessionList:
        rows, following = self._rows, None
        if rows and self._behind > len(rows):
            value, _, last = self._heap[-1]
            following = _encoded(value / self._sign if self._sort != RUNTIME else 0.0, last.runtime)
        return SessionList(len(self._inspector.node.sessions), self._matched, rows, following)


def _encoded(value: float, runtime: str) -> str:
    return urlsafe_b64encode(msgspec.json.encode([value, runtime])).decode().rstrip("=")


def _decoded(cursor: str) -> tuple[float, str]:
    try:
        data = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        return msgspec.json.decode(data, type=tuple[float, str])
    except (ValueError, msgspec.DecodeError):
        raise Rejected("parameter cursor: expected `next` of the page before") from None
