"""
The fields of a session as operators see them.
"""

import msgspec

from msgnode.admin.reads.inspector import Inspector
from msgnode.sessions.session import HOUR_SECONDS, Session
from msgnode.transport.sockets import rtt_ms, sent_before_ms, unsent_bytes

ATTACHED, AWAY, SLOW, SUPERSEDING = "attached", "away", "slow", "superseding"
ANONYMOUS = "anonymous"


class SessionRow(msgspec.Struct, kw_only=True):
    """
    A session. Times are in seconds since 1970, null if they are unknown; `since` is when its connection
    opened or was lost, `opened_at` when the session was first opened, unknown for one from before a
    restart.

    `slow`: it has a connection, and messages wait for it to be read. `superseding`: an older connection of it
    is still open. Counters begin when the node starts. `in_rate` and `out_rate` are messages a second in the
    last minute, while `top` is asked, else null. `last_out` is when bytes were last sent on its TCP
    connection, also for a ping.
    `user_agent` is the program of the client, as it names itself. `oldest_waiting_s` is how long the oldest
    message waits, null if that is not known. `reconnects_1h` is about how often the client came back in the
    last hour. `rtt_ms` and `socket_buffer_bytes` are those of the connection's socket. `labels` are the words
    that operators gave it.
    """

    runtime: str
    state: str
    since: float
    opened_at: float | None
    expires_at: float | None
    connector: str
    peer: str
    origin: str
    user_agent: str
    user: str
    provider: str
    token_expires_at: float | None
    anonymous: bool
    resume: bool
    addresses: int
    learned: int
    state_bytes: int
    waiting: int
    waiting_bytes: int
    oldest_waiting_s: float | None
    socket_buffer_bytes: int | None
    rtt_ms: float | None
    reconnects_1h: int
    unacked: int
    unacked_bytes: int
    missed: int
    in_messages: int
    in_bytes: int
    out_messages: int
    out_bytes: int
    refused: int
    last_in: float | None
    last_out: float | None
    in_rate: float | None
    out_rate: float | None
    labels: list[str]


def state_of(session: Session, inspector: Inspector) -> str:
    connection = session.connection
    if connection is None:
        return AWAY
    if connection.acks_by_request or session.ready is not None or not session.mailbox.queued:
        return SUPERSEDING if inspector.node.sessions.is_superseding(session) else ATTACHED
    return SLOW


def last_out(session: Session, inspector: Inspector) -> float | None:
    """
    When its client was last sent something, as the kernel knows it.
    """
    before = sent_before_ms(session.connection)
    return None if before is None else round(inspector.facts.wall() - before / 1000, 3)


def user_agent(session: Session) -> str:
    found: str = getattr(session.connection, "user_agent", "")
    return found


def oldest_waiting(session: Session, inspector: Inspector) -> float:
    """
    For how many seconds the oldest message waits; 0 if none does, or it is not known.
    """
    came = session.mailbox.oldest_came
    return max(0.0, inspector.facts.wall() - came / 1e9) if came else 0.0


def reconnects(session: Session, inspector: Inspector) -> int:
    is_new = bool(session.opened_at) and inspector.facts.wall() - session.opened_at < HOUR_SECONDS
    return session.reconnects(inspector.clock.seconds(), is_new)


def expires_at(session: Session, inspector: Inspector) -> float | None:
    """
    When the session ends if its client does not come back, in seconds since 1970; None if it does not.
    """
    expiry = session.expiry
    if expiry is None or not expiry.active():
        return None
    return round(inspector.wall_of(expiry.getTime()), 3)


def row_of(session: Session, inspector: Inspector) -> SessionRow:
    """
    The fields of this session now.
    """
    inspector.node.sessions.count_carried(session)
    connection, proof, mailbox = session.connection, session.proof, session.mailbox
    outbox = mailbox.outbox
    in_rate, out_rate = inspector.rates(session)
    return SessionRow(
        runtime=session.runtime,
        state=state_of(session, inspector),
        since=round(inspector.wall_of(session.since), 3),
        opened_at=round(session.opened_at, 3) if session.opened_at else None,
        expires_at=expires_at(session, inspector),
        connector=connection.connector if connection is not None else "",
        peer=connection.peer if connection is not None else "",
        origin=getattr(connection, "origin", ""),
        user_agent=user_agent(session),
        user=session.identity or (proof.user if proof is not None else ""),
        provider=proof.idp if proof is not None else "",
        token_expires_at=proof.until if proof is not None else None,
        anonymous=session.anonymous,
        resume=outbox is not None and outbox.client_requested,
        addresses=len(session.bindings),
        learned=session.learned,
        state_bytes=session.account.bytes,
        waiting=mailbox.queued,
        waiting_bytes=mailbox.queued_bytes,
        oldest_waiting_s=round(oldest_waiting(session, inspector), 3) if mailbox.oldest_came else None,
        socket_buffer_bytes=unsent_bytes(connection),
        rtt_ms=rtt_ms(connection),
        reconnects_1h=reconnects(session, inspector),
        unacked=len(outbox.sent) if outbox is not None else 0,
        unacked_bytes=outbox.sent_bytes if outbox is not None else 0,
        missed=mailbox.missed,
        in_messages=session.in_messages,
        in_bytes=session.in_bytes,
        out_messages=session.out_messages,
        out_bytes=session.out_bytes,
        refused=session.refused,
        last_in=round(session.last_in / 1e9, 3) if session.last_in else None,
        last_out=last_out(session, inspector),
        in_rate=in_rate,
        out_rate=out_rate,
        labels=inspector.labels(session.runtime),
    )
