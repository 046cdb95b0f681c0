"""
The lists of open connections, and of those that closed lately.
"""

from collections.abc import Iterator
from typing import ClassVar

import msgspec
from twisted.internet.defer import Deferred

from msgnode.admin.reads.inspector import Inspector, checked_limit, peer_filter
from msgnode.admin.survey import each_of
from msgnode.protocol.errors import Rejected
from msgnode.sessions.history.connection_records import ConnectionRecord
from msgnode.sessions.session import Connection

OPEN, CLOSED = "open", "closed"


class ConnectionRow(msgspec.Struct, kw_only=True):
    """
    A connection; the counters are those of its session while the connection served it.

    Times are in seconds since 1970, `lifetime` in seconds. Of a closed one `by` says who closed it: `client`,
    `node` or `admin`; a `code` of 0 is a connection that was lost without a close code.
    """

    number: int
    connector: str
    peer: str
    session: str
    user: str
    opened: float
    lifetime: float
    in_messages: int
    in_bytes: int
    out_messages: int
    out_bytes: int
    is_current: bool = True
    paused: bool = False
    closed: float | None = None
    code: int | None = None
    reason: str = ""
    by: str = ""


class ConnectionQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """
    Filters of connections. `q` is a part of session, user or peer; `cursor` is `next` of the page before.
    """

    state: str = OPEN
    q: str = ""
    connector: str = ""
    peer: str = ""
    code: int = 0
    by: str = ""
    limit: int = 50
    cursor: int = 0


class ConnectionList(msgspec.Struct):
    """
    Connections, the newest first; `next` is the cursor of the next page, if there is one.
    """

    rows_in: ClassVar[str] = "connections"

    total: int
    matched: int
    connections: list[ConnectionRow]
    next: int | None = None


def list_connections(inspector: Inspector, query: ConnectionQuery) -> Deferred[ConnectionList]:
    """
    A page of connections. Raises Rejected if the query is wrong, or too many lists are being made.
    """
    page = _Page(inspector, query)
    return inspector.walk(page.steps(), page.result)


class _Page:
    def __init__(self, inspector: Inspector, query: ConnectionQuery) -> None:
        if query.state not in (OPEN, CLOSED):
            raise Rejected(f"parameter state: expected open or closed, found {query.state[:40]!r}")
        self._inspector = inspector
        self._query = query
        self._limit = checked_limit(query.limit)
        self._is_in = peer_filter(query.peer) if query.peer else None
        self._rows: list[ConnectionRow] = []
        self._matched = self._total = 0
        self._has_more = False

    def steps(self) -> Iterator[None]:
        connections = self._inspector.node.sessions.connections
        found: list[tuple[ConnectionRecord, Connection | None]]
        if self._query.state == CLOSED:
            found = [(record, None) for record in reversed(connections.closed)]
        else:
            found = [(record, each) for each in connections if (record := connections.record(each))]
            found.reverse()  # in the order in which they were made
        self._total = len(found)
        yield from each_of(found, lambda each: self._look(*each))

    def _look(self, record: ConnectionRecord, connection: Connection | None) -> None:
        query, peer = self._query, record.peer if connection is None else connection.peer
        session = connection.session if connection is not None else None
        if (
            (query.connector and record.connector != query.connector)
            or (query.code and record.code != query.code)
            or (query.by and record.by != query.by)
            or (self._is_in is not None and not self._is_in(peer))
            or (query.q and query.q.lower() not in f"{record.session} {record.user} {peer}".lower())
        ):
            return
        self._matched += 1
        if query.cursor and record.number >= query.cursor:
            return
        if len(self._rows) == self._limit:
            self._has_more = True
            return
        if session is not None:
            self._inspector.node.sessions.count_carried(session)
        counts = record.counts(session)
        ended = record.closed or self._inspector.facts.wall()
        self._rows.append(
            ConnectionRow(
                number=record.number,
                connector=record.connector,
                peer=peer,
                session=session.runtime if session is not None else record.session,
                user=session.identity if session is not None else record.user,
                opened=round(record.opened, 3),
                lifetime=max(0.0, round(ended - record.opened, 3)),
                in_messages=counts[0],
                in_bytes=counts[1],
                out_messages=counts[2],
                out_bytes=counts[3],
                is_current=session is not None and session.connection is connection,
                paused=connection is not None and connection.write_paused,
                closed=round(record.closed, 3) if connection is None else None,
                code=record.code if connection is None else None,
                reason=record.reason,
                by=record.by,
            )
        )

    def result(self) -> ConnectionList:
        following = self._rows[-1].number if self._rows and self._has_more else None
        return ConnectionList(self._total, self._matched, self._rows, following)
