"""
The transfer of a session of one node to another, as bytes: its state, and its queued messages.

The state has the messages that were sent and not acknowledged, too: a client that comes back gets them with
their numbers before any other, and learns at once that none is missing.
"""

from typing import Protocol

import msgspec

from msgnode.cluster.directory.wire import Address, Counter
from msgnode.sessions.allocation_keys import Keys
from msgnode.sessions.inbox import Inbox
from msgnode.sessions.persistence import SessionStore
from msgnode.sessions.principal import read_proof
from msgnode.sessions.queue import FOREVER, QueuedMessage
from msgnode.sessions.session import Session
from msgnode.sessions.session_table import Sessions


class Message(msgspec.Struct, array_like=True):
    """
    An undelivered message. `number` is 0 unless it was sent; `ttl` in seconds, -1 without a limit.
    """

    number: int
    priority: int
    ttl: float
    data: bytes


class Numbers(msgspec.Struct):
    """
    The state of an outbox (Outbox.as_dict).
    """

    epoch: str
    asked: bool
    acknowledged: Counter
    weeded: Counter


class Record(msgspec.Struct):
    """
    The state of a session that it writes to disk (Session.as_dict); its token is a hash.
    """

    token: str
    anonymous: bool
    identity: str
    host: str
    proof: str
    missed: Counter
    unsure: bool
    outbox: Numbers | None


class State(msgspec.Struct):
    """
    A session without its queue. `received` counts the messages of its client.
    """

    record: Record
    used: bool
    last: int
    received: int
    sent: list[Message]
    bindings: list[tuple[Address, int]]
    keys: list[tuple[str, Address]]


class Bindings(Protocol):
    """
    The routing table, as a transfer uses it.
    """

    def bind(self, address: str, session: Session, kind: int, object_length: int = 0) -> None: ...


class Parts(Protocol):
    """
    The parts of a node that a transfer needs.
    """

    sessions: Sessions
    session_store: SessionStore

    @property
    def routes(self) -> Bindings: ...


_decoder = msgspec.msgpack.Decoder(State)
_message_decoder = msgspec.msgpack.Decoder(Message)
_OBJECT = 8  # bits of a binding below the length of its object (bus/routing_table.py)


def export_state(session: Session, sessions: Sessions) -> bytes:
    """
    The state of the session. OSError if a message cannot be read back.
    """
    mailbox = session.mailbox
    outbox, inbox, keys = mailbox.outbox, mailbox.inbox, session.keys
    numbered = outbox.numbered() if outbox is not None else ()
    state = State(
        record=msgspec.convert(session.as_dict(), Record),
        used=session.used,
        last=outbox.last if outbox is not None else 0,
        received=inbox.received if inbox is not None else 0,
        sent=[_export(kept, number, sessions) for number, kept in numbered],
        bindings=list(session.bindings.items()),
        keys=[
            (key, address)
            for address in session.bindings
            if keys is not None and (key := keys.of(address)) is not None
        ],
    )
    return msgspec.msgpack.encode(state)


def export_messages(
    session: Session, sessions: Sessions, after: int, most_bytes: int
) -> list[tuple[int, bytes]]:
    """
    The queued messages with keys above `after`, in the order of their keys: of about `most_bytes` together,
    but at least one if there is one.
    """
    found: list[tuple[int, bytes]] = []
    size = 0
    for kept in sorted(session.mailbox.queued_messages(), key=lambda each: each.key):
        if kept.key <= after:
            continue
        size += kept.size
        if found and size > most_bytes:
            break
        found.append((kept.key, msgspec.msgpack.encode(_export(kept, 0, sessions))))
    return found


def _export(kept: QueuedMessage, number: int, sessions: Sessions) -> Message:
    ttl = -1.0 if kept.until == FOREVER else max(0.0, kept.until - sessions.now())
    return Message(number, kept.priority, ttl, sessions.journal.data(kept))


def import_state(name: str, data: bytes, node: Parts) -> Session:
    """
    A session with that name and the state that another node exported. It waits for its client, as one that
    has just lost its connection. ValueError, also as msgspec.DecodeError, if the state is malformed.
    """
    state = _decoder.decode(data)
    record, sessions = state.record, node.sessions
    token_hash, proof = bytes.fromhex(record.token), read_proof(record.proof)
    session = sessions.create(name, record.anonymous, record.host)
    session.used, session.identity, session.proof = state.used, record.identity, proof
    sessions.adopt_token(session, token_hash)
    _restore(state, session, sessions)
    for address, kinds in state.bindings:
        node.routes.bind(address, session, kinds & 0xFF, kinds >> _OBJECT)
    if state.keys:
        keys = session.keys = Keys(session.account)
        for key, address in state.keys:
            keys.add(key, [address])
            node.session_store.keyed(session.sid, key, [address])
    sessions.start_grace_period(session, None)
    return session


def _restore(state: State, session: Session, sessions: Sessions) -> None:
    """
    Restore the numbers, and what was sent.
    """
    mailbox, numbers = session.mailbox, state.record.outbox
    mailbox.missed, mailbox.uncertain = state.record.missed, state.record.unsure
    if numbers is None:
        session.write_state()
        return
    mailbox.outbox = outbox = sessions.make_outbox(mailbox, numbers.asked)
    mailbox.inbox = inbox = Inbox(mailbox)
    outbox.restore(msgspec.to_builtins(numbers), numbers.acknowledged)
    inbox.restore(state.received, set())
    session.write_state()
    inbox.write_state()
    for message in state.sent:
        _import(message, session, sessions)
    outbox.finish_restore(state.last)


def import_messages(messages: list[bytes], session: Session, sessions: Sessions) -> None:
    """
    Queue messages that another node exported.
    """
    for data in messages:
        _import(_message_decoder.decode(data), session, sessions)


def _import(message: Message, session: Session, sessions: Sessions) -> None:
    until = FOREVER if message.ttl < 0 else sessions.now() + message.ttl
    session.mailbox.adopt(message.data, until, message.priority, message.number)
