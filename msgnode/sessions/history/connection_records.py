"""
Connection records: since when each connection is open, and the last ones that closed, with the reason.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Protocol

from msgnode.protocol.close_codes import REMOVED, Closing

MAX_CLOSED = 1000
CLIENT, NODE, ADMIN = "client", "node", "admin"


class Counted(Protocol):
    """
    A session, with its counters of messages and bytes.
    """

    runtime: str
    identity: str
    in_messages: int
    in_bytes: int
    out_messages: int
    out_bytes: int


class Recorded(Protocol):
    """
    A connection, as its record needs it.
    """

    connector: str
    peer: str


class ConnectionRecord:
    """
    One connection: when it opened, and the session that it serves or served last.

    `local_address` is the address of this machine that it came to, if that is known. The four counters are
    those of this session while the connection served it. `opened` and `closed` are seconds since 1970. `by`
    says who closed it: CLIENT, NODE or ADMIN; `code` is 0 if the connection was lost without a close code.
    """

    __slots__ = (
        "by",
        "closed",
        "closing",
        "code",
        "connector",
        "in_bytes",
        "in_messages",
        "local_address",
        "number",
        "opened",
        "out_bytes",
        "out_messages",
        "peer",
        "reason",
        "session",
        "user",
    )

    def __init__(self, number: int, connection: Recorded, opened: float) -> None:
        self.number = number
        self.connector = connection.connector
        self.peer = connection.peer
        self.opened = opened
        self.session = self.user = self.reason = self.by = self.local_address = ""
        self.in_messages = self.in_bytes = self.out_messages = self.out_bytes = 0
        self.closing: Closing | None = None  # the reason, if the node closes it
        self.code = 0
        self.closed = 0.0

    def join(self, session: Counted) -> None:
        """
        The connection serves this session from now on.
        """
        self.session, self.user = session.runtime, session.identity
        self._count(session, -1)

    def leave(self, session: Counted) -> None:
        """
        The connection serves the session no longer.
        """
        self.user = session.identity or self.user
        self._count(session, 1)

    def counts(self, session: Counted | None) -> tuple[int, int, int, int]:
        """
        Messages and bytes in, messages and bytes out, until now; `session` is that which it serves now.
        """
        own = self.in_messages, self.in_bytes, self.out_messages, self.out_bytes
        if session is None:
            return own
        return (
            own[0] + session.in_messages,
            own[1] + session.in_bytes,
            own[2] + session.out_messages,
            own[3] + session.out_bytes,
        )

    def _count(self, session: Counted, sign: int) -> None:
        if sign < 0:
            self.in_messages = self.in_bytes = self.out_messages = self.out_bytes = 0
        self.in_messages += sign * session.in_messages
        self.in_bytes += sign * session.in_bytes
        self.out_messages += sign * session.out_messages
        self.out_bytes += sign * session.out_bytes


class ClosedConnections:
    """
    The records of the last MAX_CLOSED connections that closed, oldest first.
    """

    def __init__(self, wall: Callable[[], float]) -> None:
        self.wall = wall
        self.by: Counter[str] = Counter(dict.fromkeys((CLIENT, NODE, ADMIN), 0))
        self._records: deque[ConnectionRecord] = deque(maxlen=MAX_CLOSED)

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[ConnectionRecord]:
        return iter(self._records)

    def __reversed__(self) -> Iterator[ConnectionRecord]:
        return reversed(self._records)

    def add(self, record: ConnectionRecord, code: int, reason: str) -> None:
        """
        Notes that a connection is closed; `code` and `reason` are the client's, if it closed it.
        """
        record.closed = self.wall()
        closing, record.closing = record.closing, None
        if closing is not None:
            record.code, record.reason = closing.code, closing.word
            record.by = ADMIN if closing.code == REMOVED.code else NODE
        else:
            record.code, record.reason, record.by = code, reason[:100], CLIENT
        self.by[record.by] += 1
        self._records.append(record)
