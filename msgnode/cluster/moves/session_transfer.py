"""
The transfer of a session of one node to another, as bytes: its state, and its queued messages.

The state has the messages that were sent and not acknowledged, too: a client that comes back gets them with
their numbers before any other, and learns at once that none is missing.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from msgnode.cluster.copies.copy_marks import MAX_MARKS, Marks
from msgnode.cluster.directory.wire import Address, Counter
from msgnode.links.exchange.awaited import MAX_MOVED, MovedRequest
from msgnode.sessions.allocation_keys import Keys
from msgnode.sessions.inbox import Inbox
from msgnode.sessions.mailbox import sent_id
from msgnode.sessions.persistence import SessionMove, SessionStore
from msgnode.sessions.principal import read_proof
from msgnode.sessions.queue import ANY_NODE, FOREVER, QueuedMessage
from msgnode.sessions.session import Session
from msgnode.sessions.session_table import Sessions
from msgnode.structures.time_slices import ADDRESSES

MAX_INSTANCES = 1000  # of members that sent copies

Digest = Annotated[bytes, Meta(max_length=16)]
Instance = Annotated[bytes, Meta(max_length=64)]
Priority = Annotated[int, Meta(ge=0, le=9)]
CopyId = tuple[Annotated[bytes, Meta(max_length=64)], int]


class Message(msgspec.Struct, array_like=True):
    """
    An undelivered message. `number` is 0 unless it was sent; `ttl` in seconds, -1 without a limit. `copy` is
    the id that all copies of a message have, if others may have come to the new holder by themselves. A
    `late` one came after the session was released. `is_awaited`: a copy will come to the new holder by
    itself, for its sender's node knew of that. `is_asked`: its sender gets an answer if it is never
    delivered.
    """

    number: int
    priority: int
    ttl: float
    data: bytes
    copy: CopyId | None = None
    late: bool = False
    is_awaited: bool = False
    is_asked: bool = False


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
    A session without its queue. `received` counts the messages of its client; `told` are its requests that
    were answered in place of their recipients, `copies` the ids of messages that it has had, of which other
    copies may come, and `marks` the last ones of each member before that, by instance and priority.
    """

    record: Record
    used: bool
    last: int
    received: int
    sent: list[Message]
    bindings: list[tuple[Address, int]]
    keys: list[tuple[str, Address]]
    claims: dict[str, Counter] = {}
    registered: list[Address] = []
    asked: Annotated[list[MovedRequest], Meta(max_length=MAX_MOVED)] = []
    told: Annotated[list[Digest], Meta(max_length=MAX_MOVED)] = []
    copies: Annotated[list[tuple[Instance, list[Counter]]], Meta(max_length=MAX_INSTANCES)] = []
    marks: Annotated[list[tuple[Instance, Priority, Counter]], Meta(max_length=MAX_MARKS)] = []


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


def export_state(
    session: Session,
    sessions: Sessions,
    registered: list[str] | None = None,
    bindings: Mapping[str, int] | None = None,
    asked: list[MovedRequest] | None = None,
    told: list[bytes] | None = None,
    copies: list[tuple[bytes, list[int]]] | None = None,
    marks: Marks | None = None,
) -> bytes:
    """
    The state of the session, with the addresses that it has registered, the requests that it `asked`, those
    that it was `told` about, the `copies` that it has had, the `marks` of those before, and its bindings
    unless others are given. OSError if a message cannot be read back.
    """
    bindings = session.bindings if bindings is None else bindings
    mailbox = session.mailbox
    outbox, inbox, keys = mailbox.outbox, mailbox.inbox, session.keys
    numbered = outbox.numbered() if outbox is not None else ()
    state = State(
        record=msgspec.convert(session.as_dict(), Record),
        used=session.used,
        last=outbox.last if outbox is not None else 0,
        received=inbox.received if inbox is not None else 0,
        sent=[_export(kept, number, sessions) for number, kept in numbered],
        bindings=list(bindings.items()),
        keys=[
            (key, address)
            for address in bindings
            if keys is not None and (key := keys.of(address)) is not None
        ],
        claims=session.move.claims if session.move is not None else {},
        registered=registered or [],
        asked=asked or [],
        told=told or [],
        copies=(copies or [])[:MAX_INSTANCES],
        marks=[(*place, number) for place, number in (marks or {}).items()][-MAX_MARKS:],
    )
    return msgspec.msgpack.encode(state)


def export_messages(
    session: Session,
    sessions: Sessions,
    after: int,
    most_bytes: int,
    released_at: int | None = None,
    awaited_above: int | None = None,
) -> list[tuple[int, bytes]]:
    """
    The queued messages with keys above `after`, in the order of their keys: of about `most_bytes` together,
    but at least one if there is one. Those with keys above `released_at` are late; of copies with keys above
    `awaited_above` another one will come to the new holder.
    """
    found: list[tuple[int, bytes]] = []
    size = 0
    for kept in sorted(session.mailbox.queued_messages(), key=lambda each: each.key):
        if kept.key <= after:
            continue
        size += kept.size
        if found and size > most_bytes:
            break
        message = _export(kept, 0, sessions)
        message.copy, message.late = kept.copy, released_at is not None and kept.key > released_at
        is_sure = awaited_above is not None and kept.key > awaited_above
        message.is_awaited = message.late and message.copy is not None and is_sure
        found.append((kept.key, msgspec.msgpack.encode(message)))
    return found


def _export(kept: QueuedMessage, number: int, sessions: Sessions) -> Message:
    ttl = -1.0 if kept.until == FOREVER else max(0.0, kept.until - sessions.now())
    data = bytes(sessions.journal.data(kept))  # not a subclass, such as that of a message to very many
    return Message(number, kept.priority, ttl, data, is_asked=kept.asker != 0)


def read_state(data: bytes) -> State:
    """
    The state that another node exported. ValueError, also as msgspec.DecodeError, if it is malformed.
    """
    state = _decoder.decode(data)
    bytes.fromhex(state.record.token)
    return state


def import_state(name: str, data: bytes, node: Parts, generation: int = 1) -> Session:
    """
    A session with that name and the state that another node exported. It waits for its client, as one that
    has just lost its connection. ValueError, also as msgspec.DecodeError, if the state is malformed.
    """
    session, bindings = begin_import(name, read_state(data), node, generation)
    for _ in bindings:
        pass
    return session


def begin_import(name: str, state: State, node: Parts, generation: int = 1) -> tuple[Session, Iterator[None]]:
    """
    A session with that name and state, and the steps that give it its addresses.
    """
    record, sessions = state.record, node.sessions
    token_hash, proof = bytes.fromhex(record.token), read_proof(record.proof)
    session = sessions.create(name, record.anonymous, record.host, generation)
    session.used, session.identity, session.proof = state.used, record.identity, proof
    sessions.adopt_token(session, token_hash)
    _restore(state, session, sessions)
    if state.claims:
        session.move = SessionMove(claims=dict(state.claims))
    sessions.start_grace_period(session, None)
    return session, bind(state, session, node)


def bind(state: State, session: Session, node: Parts) -> Iterator[None]:
    """
    Binds the session to the addresses of the state, in slices.
    """
    for done, (address, kinds) in enumerate(state.bindings, 1):
        if session.ended:
            return
        node.routes.bind(address, session, kinds & 0xFF, kinds >> _OBJECT)
        if done % ADDRESSES == 0:
            yield
    if state.keys and session.keys is None:
        session.keys = Keys(session.account)
    for done, (key, address) in enumerate(state.keys, 1):
        if session.ended or session.keys is None:
            return
        if address in session.bindings and session.keys.of(address) is None:
            session.keys.add(key, [address])
            node.session_store.keyed(session.sid, key, [address])
        if done % ADDRESSES == 0:
            yield


def merge_messages(state: State, session: Session, sessions: Sessions) -> None:
    """
    Queues what the session was sent at another node in an earlier epoch, and its client has not had.
    """
    if session.move is None:
        session.move = SessionMove()
    session.move.claims = {**state.claims, **session.move.claims}
    outbox = session.mailbox.outbox
    for epoch, received in state.claims.items():
        if outbox is not None and outbox.epoch == epoch and received > outbox.acknowledged:
            outbox.acknowledge(min(received, outbox.last))
        session.mailbox.drop_claimed(epoch, received)
    for message in state.sent:
        if state.record.outbox is not None:
            message.copy = sent_id(state.record.outbox.epoch, message.number)
        message.number = 0
        _import(message, session, sessions)


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
        import_message(read_message(data), session, sessions)


def read_message(data: bytes) -> Message:
    """
    A message that another node exported. msgspec.DecodeError if it is malformed.
    """
    return _message_decoder.decode(data)


def import_message(message: Message, session: Session, sessions: Sessions) -> QueuedMessage:
    """
    Queue a message that another node exported.
    """
    message.number = 0
    return _import(message, session, sessions)


def import_late(message: Message, session: Session, sessions: Sessions) -> QueuedMessage:
    """
    Queue a message that the other node got after it had released the session.
    """
    until = _until(message, sessions)
    asker = ANY_NODE if message.is_asked else 0
    return session.mailbox.adopt_late(message.data, until, message.priority, message.copy, asker)


def _import(message: Message, session: Session, sessions: Sessions) -> QueuedMessage:
    until = _until(message, sessions)
    asker = ANY_NODE if message.is_asked else 0
    return session.mailbox.adopt(message.data, until, message.priority, message.number, message.copy, asker)


def _until(message: Message, sessions: Sessions) -> float:
    return FOREVER if message.ttl < 0 else sessions.now() + message.ttl
