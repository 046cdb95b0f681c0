"""
Memory by owner, and the sessions that hold most.
"""

import heapq

import msgspec
from twisted.internet.defer import Deferred

from msgnode.admin.reads.inspector import Inspector
from msgnode.admin.survey import each_of
from msgnode.sessions.session import Session

MAX_SESSIONS = 20


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
    The memory of the process in bytes, and by owner: `waiting` and `unacked` messages, the `state` of
    sessions (addresses, keys, subscriptions), and `other`, which is Python, the code, connections and caches.
    The 20 largest sessions.
    """

    rss: int
    by_owner: dict[str, int]
    journal: int
    sessions: list[SessionMemory]


def report_memory(inspector: Inspector) -> Deferred[MemoryReport]:
    """
    The report. Raises Busy.
    """
    node = inspector.node
    heap: list[tuple[int, str, SessionMemory]] = []
    unacked = 0

    def look(session: Session) -> None:
        nonlocal unacked
        outbox, mailbox = session.mailbox.outbox, session.mailbox
        sent = outbox.sent_bytes if outbox is not None else 0
        unacked += sent
        whole = mailbox.queued_bytes + sent + session.account.bytes
        if len(heap) < MAX_SESSIONS or whole > heap[0][0]:
            row = SessionMemory(session.runtime, whole, mailbox.queued_bytes, sent, session.account.bytes)
            push = heapq.heappush if len(heap) < MAX_SESSIONS else heapq.heapreplace
            push(heap, (whole, session.runtime, row))

    def result() -> MemoryReport:
        rss = inspector.process.memory()[1]
        owners = {
            "waiting": node.sessions.queued.bytes,
            "unacked": unacked,
            "state": node.budget.node.bytes,
        }
        owners["other"] = max(0, rss - sum(owners.values()))
        rows = [row for _, _, row in sorted(heap, reverse=True)]
        return MemoryReport(rss, owners, node.sessions.journal.bytes_in_memory, rows)

    return inspector.walk(each_of(node.sessions, look), result)
