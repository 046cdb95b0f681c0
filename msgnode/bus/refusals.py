"""
Refusals: the counters, log lines and answers for refused messages.
"""

from collections.abc import Callable
from time import time_ns

from msgnode.bus.receipts import Receipts, wants_answer
from msgnode.protocol.errors import Blocked, Claimed, IllTyped, Malformed, NoRoute, NoSession, Rejected
from msgnode.protocol.message import Message, compose
from msgnode.protocol.token_redaction import loggable, without_secrets
from msgnode.sessions.counters import Counters
from msgnode.sessions.history.refusals import RefusalRing, name
from msgnode.sessions.session import Connection, Session
from msgnode.sessions.session_table import TrafficRecorder

MAX_TO_CHARS = 300  # of an address that is refused
VALIDATOR = "mn:/validator"  # answers messages that are malformed, or whose `from` is not the sender's


class Refusals:
    """
    The answers to refused messages, for senders that wait for one.

    `tell` sends to a connection that has no session (Connections.send_or_close). `is_awaited`: does a
    connector wait for the response to this message, whatever its type?
    """

    def __init__(
        self,
        tell: Callable[[Connection, bytes], None],
        traffic_recorder: TrafficRecorder,
        counts: Counters,
        receipts: Receipts,
        ring: RefusalRing,
        is_awaited: Callable[[Message], bool] = lambda message: False,
    ) -> None:
        self._ring = ring
        self._is_awaited = is_awaited
        self._tell = tell
        self._traffic_recorder = traffic_recorder
        self._counts = counts
        self._receipts = receipts

    def reject(
        self,
        why: Rejected,
        message: Message | None,
        data: bytes,
        connection: Connection,
        session: Session | None = None,
    ) -> None:
        """
        Records the refusal, and answers it unless the sender waits for no answer.

        `message` is None if `data` could not be decoded. `session` is the sender's, if the connection may
        have another one now.
        """
        session = session or connection.session
        if message is not None and isinstance(why, Malformed) and not why.is_of(message.id, message.from_):
            # The error is about something inside the message; the message itself is answered.
            why = Rejected(str(why), why.code, why.reason)
        if isinstance(why, Malformed) or message is None:
            message = _what_could_be_read(why, message, data, connection)
        to = loggable(message.from_) or (session.runtime if session is not None else None)
        self.record(why, message, session)
        if session is not None and not isinstance(why, NoRoute | NoSession):
            self._receipts.give(message, why.code, session, 0, why.reason, loggable(str(why)))
        body = {key: loggable(value) if type(value) is str else value for key, value in why.body().items()}
        if isinstance(why, Malformed) and why.id is None:
            self._counts.unreadable += 1
            connection.report_undecodable(body["desc"], why.code)
            return
        by_validator = isinstance(why, Malformed | NoSession | Claimed | IllTyped)
        if not wants_answer(message, by_validator) and not self._is_awaited(message):
            return
        sender = VALIDATOR if by_validator or not isinstance(message.to, str) else message.to
        reply = compose(message.id, "response", sender, to, body, message.transaction)
        if session is None:
            self._tell(connection, reply.data)
        else:
            session.answer(reply, connection)

    def record(self, why: Rejected, message: Message, session: Session | None) -> None:
        """
        Counts the refusal and writes it to the traffic log.
        """
        without_secrets(message)
        message.code, message.reason = why.code, why.reason
        if isinstance(why, IllTyped):
            message.slot = why.slot_name
        message.outcome = "no-route" if isinstance(why, NoRoute) else "refused"
        self._counts.refuse(why.code, why.reason)
        note_refusal(self._ring, why, message, session)
        self._traffic_recorder.message(message, session)


def note_refusal(ring: RefusalRing, why: Rejected, message: Message, session: Session | None) -> None:
    """
    Notes the refusal in the ring, for operators, and counts it for the sender's session.
    """
    origin = message.origin
    who = origin.peer if origin is not None else ""
    if session is not None:
        session.refused += 1
        who = session.runtime
    to = message.to
    names = to if isinstance(to, str) else f"a list of {len(to)} addresses"
    text, id = loggable(str(why)), message.id if isinstance(message.id, int) else name(message.id)
    made = ring.add(who, why.code, why.reason, text, loggable(names[:MAX_TO_CHARS]), id)
    if made is None:
        return
    if origin is not None:
        made.connector, made.peer = origin.connector, origin.peer
    if session is not None:
        made.session, made.user = name(session.runtime), name(session.identity)
    if isinstance(why, Blocked):
        made.rule = why.rule
    made.outcome = "no-route" if isinstance(why, NoRoute) else "refused"
    made.type, made.from_ = name(message.type), name(loggable(message.from_))
    made.id = id


def _what_could_be_read(
    why: Rejected, message: Message | None, data: bytes, connection: Connection
) -> Message:
    """
    A message with the header fields that could be decoded from a malformed one.
    """
    read = why if isinstance(why, Malformed) else Malformed("")
    id, from_, transaction = read.id, read.from_, read.transaction
    if transaction is None and message is not None:
        transaction = message.transaction
    return Message(
        id="" if id is None else id,
        type=message.type if message is not None else "",
        to=message.to if message is not None else "",
        from_=from_ or "",
        log=read.log if message is None else message.log,
        transaction=transaction,
        data=data,
        received_at=time_ns(),
        origin=connection,
    )
