"""
Memory by owner, and the sessions that hold most.

Most owners are counted in bytes. The others are estimated by their number, with the size of one as measured.
"""

import heapq

import msgspec
from twisted.internet.defer import Deferred

from msgnode.admin.reads.inspector import Inspector
from msgnode.admin.reads.node.listeners import list_listeners
from msgnode.admin.survey import each_of
from msgnode.sessions.limits.memory_budget import SESSION
from msgnode.sessions.session import Session
from msgnode.transport.sockets import held_bytes

MAX_SESSIONS = 20
# Measured bytes of one: of an idle connection without its session, of what TLS adds, and of a remembered
# decision or token. A compiled policy takes about so many times the bytes of its document.
LINE_BYTES, CONNECTION_BYTES, TLS_BYTES = 2 * 1024, 7 * 1024, 55 * 1024
DECISION_BYTES, TOKEN_BYTES, PROGRAM_FACTOR = 400, 1700, 14


class SessionMemory(msgspec.Struct):
    """
    The bytes that a session holds: queued, unacknowledged, and its addresses and keys.
    """

    runtime: str
    bytes: int
    waiting_bytes: int
    unacked_bytes: int
    state_bytes: int


class MemoryReport(msgspec.Struct):
    """
    The memory of the process in bytes, and by owner, with the 20 sessions that hold most.

    `waiting` and `unacked` are messages in memory, `output` is what the kernel does not take for clients.
    `sessions`, and `routes` (their addresses, keys and registrations) count for the limits of `state_bytes`.
    `connections`, `policies`, `decisions` (remembered ones) and `tokens` (checked ones) are estimates, by
    their number. `other` is the rest: Python, the code, and what has no owner here. `journal` is the memory
    of all undelivered messages; those on disk only are in none of these.
    """

    rss: int
    by_owner: dict[str, int]
    journal: int
    sessions: list[SessionMemory]


def report_memory(inspector: Inspector) -> Deferred[MemoryReport]:
    """
    The report. Raises Busy.
    """
    found = _Holders()

    def result() -> MemoryReport:
        rss = inspector.process.memory()[1]
        owners = owners_of(inspector, found)
        owners["other"] = max(0, rss - sum(owners.values()))
        rows = [row for _, _, row in sorted(found.heap, reverse=True)]
        return MemoryReport(rss, owners, inspector.node.sessions.journal.bytes_in_memory, rows)

    return inspector.walk(each_of(inspector.node.sessions, found.look), result)


class _Holders:
    """
    The sessions that hold most, and sums over all of them.
    """

    def __init__(self) -> None:
        self.heap: list[tuple[int, str, SessionMemory]] = []
        self.unacked = self.output = 0

    def look(self, session: Session) -> None:
        outbox, mailbox = session.mailbox.outbox, session.mailbox
        sent = outbox.sent_bytes if outbox is not None else 0
        self.unacked += sent
        if session.connection is not None:
            self.output += held_bytes(session.connection)
        whole = mailbox.queued_bytes + sent + session.account.bytes
        if len(self.heap) < MAX_SESSIONS or whole > self.heap[0][0]:
            row = SessionMemory(session.runtime, whole, mailbox.queued_bytes, sent, session.account.bytes)
            push = heapq.heappush if len(self.heap) < MAX_SESSIONS else heapq.heapreplace
            push(self.heap, (whole, session.runtime, row))


def owners_of(inspector: Inspector, found: _Holders) -> dict[str, int]:
    """
    The bytes of each owner but `other`.
    """
    node = inspector.node
    in_memory, waiting = node.sessions.journal.bytes_in_memory, node.sessions.queued.bytes
    # Messages that are on disk only are among the bytes that wait: the memory is shared out as these are.
    of_waiting = in_memory * waiting // max(1, waiting + found.unacked)
    sessions = SESSION * node.budget.node.sessions
    return {
        "waiting": of_waiting,
        "unacked": in_memory - of_waiting,
        "output": found.output,
        "connections": _connections(inspector),
        "sessions": sessions,
        "routes": max(0, node.budget.node.bytes - sessions),
        "policies": PROGRAM_FACTOR * node.enforcement.document_bytes,
        "decisions": DECISION_BYTES * node.enforcement.remembered,
        "tokens": TOKEN_BYTES
        * (node.message_identity.remembered if node.message_identity is not None else 0),
    }


def _connections(inspector: Inspector) -> int:
    by_connector = inspector.node.sessions.connections.by_connector
    of_tls = sum(each.connections or 0 for each in list_listeners(inspector) if each.tls)
    lines = by_connector["line"]
    others = by_connector.total() - lines
    return LINE_BYTES * lines + CONNECTION_BYTES * others + TLS_BYTES * of_tls
