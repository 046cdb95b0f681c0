"""
The numbers of a session by which a list can be sorted.
"""

from collections.abc import Callable

from msgnode.admin.reads.inspector import Inspector
from msgnode.admin.reads.session_rows import expires_at, oldest_waiting, reconnects
from msgnode.sessions.session import Session
from msgnode.transport.sockets import rtt_ms, unsent_bytes


def _unacked(session: Session, inspector: Inspector) -> int:
    outbox = session.mailbox.outbox
    return outbox.sent_bytes if outbox is not None else 0


def _unacked_messages(session: Session, inspector: Inspector) -> int:
    outbox = session.mailbox.outbox
    return len(outbox.sent) if outbox is not None else 0


def _token_expiry(session: Session, inspector: Inspector) -> float:
    return (session.proof.until or 0.0) if session.proof is not None else 0.0


# Numbers of a session that a list can be sorted by; one that is not known counts as 0.
KEYS: dict[str, Callable[[Session, Inspector], float]] = {
    "since": lambda session, i: session.since,
    "opened_at": lambda session, i: session.opened_at,
    "expires_at": lambda session, i: expires_at(session, i) or 0.0,
    "token_expires_at": _token_expiry,
    "addresses": lambda session, i: len(session.bindings),
    "learned": lambda session, i: session.learned,
    "state_bytes": lambda session, i: session.account.bytes,
    "waiting": lambda session, i: session.mailbox.queued,
    "waiting_bytes": lambda session, i: session.mailbox.queued_bytes,
    "oldest_waiting_s": oldest_waiting,
    "unacked": _unacked_messages,
    "unacked_bytes": _unacked,
    "socket_buffer_bytes": lambda session, i: unsent_bytes(session.connection) or 0,
    "rtt_ms": lambda session, i: rtt_ms(session.connection) or 0.0,
    "missed": lambda session, i: session.mailbox.missed,
    "reconnects_1h": reconnects,
    "in_messages": lambda session, i: session.in_messages,
    "in_bytes": lambda session, i: session.in_bytes,
    "out_messages": lambda session, i: session.out_messages,
    "out_bytes": lambda session, i: session.out_bytes,
    "refused": lambda session, i: session.refused,
    "last_in": lambda session, i: session.last_in,
}
RUNTIME = "runtime"
# Of these the data plane has a part, which is counted first.
CARRIED = {"in_messages", "in_bytes", "out_messages", "out_bytes", "last_in"}
