"""
The door: what every connector hands its bytes to.

Here is the one `try` on a message's path.  Whatever comes, the session
survives it, and so does the connection, unless docs/protocol.md says that it
is closed.
"""

from collections.abc import Callable
from functools import partial
from time import time_ns
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.bus.handshake import Handshake
from msgnode.bus.receipts import Receipts, wants_answer
from msgnode.bus.responder import Reply
from msgnode.protocol.address import SESSION
from msgnode.protocol.errors import FAILED, Claimed, Malformed, NoRoute, NoSession, Rejected, failure_code
from msgnode.protocol.message import NO_TOKEN, Message, compose, decode
from msgnode.protocol.token_redaction import (
    BACKSLASH,
    SPELT_LINE,
    UNDERSCORE,
    loggable,
    may_hold_token,
    redacted,
    without_secrets,
)
from msgnode.sessions.counters import Counters
from msgnode.sessions.input_order import InputOrder
from msgnode.sessions.outbox import Outbox
from msgnode.sessions.session import Connection, Session
from msgnode.sessions.session_table import TrafficRecorder
from msgnode.structures.log_limits import FailureLog

log = Logger()

VALIDATOR = "mn:/validator"
OPENS = ("open", "re-open")


class Ingress:
    """
    Takes what came, has it carried, and tells the sender what went wrong.
    """

    def __init__(
        self,
        handshake: Handshake,
        route: Callable[[Message, Session], Reply],
        tell: Callable[[Connection, bytes], None],
        traffic_recorder: TrafficRecorder,
        counts: Counters,
        receipts: Receipts,
        input_order: InputOrder,
    ) -> None:
        self._failures = FailureLog(log)
        self._input_order = input_order
        self._held = input_order.held
        # What the operator has each message looked at for: rates, tokens.
        self.check: Callable[[bytes, Session, Connection], None] | None = None
        # What the operator has each answer of the node looked at for; None: it must not leave.
        self.leaving: Callable[[Message, Session], Message | None] | None = None
        # Where tokens are looked at: no message says who its sender is but by the node's own word.
        self.vouch: Callable[[Message, Session], bytes] | None = None
        # Where the operator has the tokens in messages looked at: what they prove is noted in the message.
        self.identify: Callable[[Message], Deferred[None] | None] | None = None
        self._receipts = receipts
        self._handshake = handshake
        self._route = route
        self._tell = tell
        self._traffic_recorder = traffic_recorder
        self._counts = counts

    def receive(self, data: bytes, connection: Connection) -> None:
        """
        One message, a JSON object in UTF-8, from a client.
        """
        if self._held and connection in self._held:
            self._input_order.keep(data, connection)  # behind a message that takes its time
            return
        came = time_ns()
        counts = self._counts
        counts.received += 1
        counts.received_bytes += len(data)
        session = connection.session
        # What comes by a connection that was superseded is not in the newer one's counts.
        outbox = None if session is None or session.connection is not connection else session.outbox
        message = None
        try:
            message = decode(data, connection)
            message.came = came
            if message.to == SESSION:
                session = self._greet(message, connection)
            else:
                if outbox is not None and not outbox.hear():
                    return  # sent again, and done already
                if self.check is not None and session is not None:
                    self.check(data, session, connection)
                if session is None:
                    raise NoSession(f"open a session before you send to {message.to}")
                # From here on the message is what its recipients will get.
                if (
                    (UNDERSCORE in data and may_hold_token(data))
                    or (BACKSLASH in data and SPELT_LINE in data)
                    or message.token is not NO_TOKEN
                ):
                    message = redacted(message)
                if self.vouch is not None:
                    with_asserted_identity = self.vouch(message, session)
                    if with_asserted_identity is not message.data:
                        message = _again(with_asserted_identity, message)
                if not message.from_:
                    raise Malformed("'from' is missing", message.id)
                wait = None if self.identify is None else self.identify(message)
                if wait is None:
                    reply = self._route(message, session)
                else:
                    reply = self._route_later(wait, message, session, connection)
                if isinstance(reply, Message):
                    self._answer(reply, session, connection)
                elif reply is not None:
                    self._await(reply, message, session, outbox)
                    return
        except Rejected as why:
            if message is None and outbox is not None:
                outbox.hear()  # what cannot be read counts too
            self._reject(why, message, data, connection)
        except Exception:
            self._failed(Failure(), message, connection)
        else:
            if message.outcome:  # a list of recipients is written down one by one
                self._settled(message, session)

    def _route_later(
        self, wait: Deferred[None], message: Message, session: Session, connection: Connection
    ) -> Deferred[Any]:
        """
        Carry it once it is known whose its tokens are; what its sender sends behind it waits until then.
        """
        over: Deferred[Any] = Deferred()
        work = self._input_order.hold(connection)

        def carry(known: None) -> None:
            reply = self._route(message, session)
            if isinstance(reply, Deferred):
                reply.addBoth(over.callback)  # what was sent behind it need not wait for the answer
            else:
                over.callback(reply)

        wait.addCallbacks(carry, over.errback)
        wait.addErrback(over.errback)
        wait.addBoth(lambda done: self._input_order.release(work))
        return over

    def _answer(self, reply: Message, session: Session, connection: Connection) -> None:
        if self.leaving is not None:
            leaving = self.leaving(reply, session)
            if leaving is None:
                return
            reply = leaving
        session.answer(reply, connection)

    def _settled(self, message: Message, session: Session | None) -> None:
        message.micros = micros = (time_ns() - message.came) // 1000
        self._counts.handed_over[micros.bit_length()] += 1
        self._traffic_recorder.message(message, session)

    def reject_undecodable(self, data: bytes, why: str, connection: Connection, code: int = 400) -> None:
        """
        What came is not even text, or too long; `data` is what there is of it.
        """
        if self._held and connection in self._held:
            self._input_order.keep(
                data, connection, partial(self.reject_undecodable, data, why, connection, code)
            )
            return
        self._counts.received += 1
        self._counts.received_bytes += len(data)
        session = connection.session
        if session is not None and session.connection is connection and session.outbox is not None:
            session.outbox.hear()
        refusal = Malformed(why, code=code, reason="too-long" if code == 413 else "malformed")
        self._reject(refusal, None, data, connection)

    def refused(self, message: Message, session: Session, why: Rejected) -> None:
        """
        A message did not come as far as here; its connector says so to its sender.
        """
        self._counts.received += 1
        self._counts.received_bytes += len(message.data)
        message.came = time_ns()
        self._note(why, message, session)

    def _greet(self, message: Message, connection: Connection) -> Session | None:
        session = self._handshake.respond(message, connection)
        without_secrets(message)
        if session is not None:
            message.from_ = session.runtime
            if self._held:
                self._input_order.follow(session, connection)
        if not message.outcome:  # it will be received once more
            self._counts.received -= 1
            self._counts.received_bytes -= len(message.data)
        return session

    def _await(
        self, reply: Deferred[Message], message: Message, session: Session, outbox: Outbox | None
    ) -> None:
        number = 0 if outbox is None else outbox.at
        if outbox is not None:
            outbox.pending.add(number)
        reply.addBoth(self._finished, outbox, number)
        reply.addCallback(self._answered, message, session)
        reply.addErrback(self._answer_failed, message, session)

    @staticmethod
    def _finished(result: Message | Failure, outbox: Outbox | None, number: int) -> Message | Failure:
        # Before the answer leaves: it must not be given twice.
        if outbox is not None:
            outbox.finish(number)
        return result

    def _answered(self, reply: Any, message: Message, session: Session) -> None:
        # Without one it was carried, later than others; but who was asked must answer.
        if reply is not None or message.outcome == "answered":
            self._answer(reply, session, message.origin)
        if message.outcome:  # a list of recipients is written down one by one
            self._settled(message, session)

    def _answer_failed(self, why: Failure, message: Message, session: Session) -> None:
        if isinstance(why.value, Rejected):
            self._reject(why.value, message, message.data, message.origin, session)
        else:
            self._failed(why, message, message.origin, session)

    def _failed(
        self, why: Failure, message: Message | None, connection: Connection, session: Session | None = None
    ) -> None:
        to = message.to if message is not None else None
        self._failures.note("carrying a message for {to}", why, to=loggable(str(to))[:200])
        if message is not None and to == SESSION and message.type.lower() in OPENS:
            self._handshake.give_up(connection)
            without_secrets(message)
            message.outcome, message.code, message.reason = "refused", 503, "failed"
            self._settled(message, None)
            return
        sorry = Rejected(FAILED, failure_code(to), "failed")
        self._reject(sorry, message, b"", connection, session)

    def _reject(
        self,
        why: Rejected,
        message: Message | None,
        data: bytes,
        connection: Connection,
        session: Session | None = None,
    ) -> None:
        """
        Write it down, and tell the sender unless nobody waits for an answer.

        `session` asked, if its connection may be another's by now.
        """
        session = session or connection.session
        if message is not None and isinstance(why, Malformed) and not why.is_of(message.id, message.from_):
            # Something in it is wrong, and it is the message itself that is answered.
            why = Rejected(str(why), why.code, why.reason)
        if isinstance(why, Malformed) or message is None:
            message = _what_could_be_read(why, message, data, connection)
        to = loggable(message.from_) or (session.runtime if session is not None else None)
        self._note(why, message, session)
        if session is not None and not isinstance(why, NoRoute | NoSession):
            self._receipts.give(message, why.code, session, 0, why.reason, loggable(str(why)))
        body = {key: loggable(value) if type(value) is str else value for key, value in why.body().items()}
        if isinstance(why, Malformed) and why.id is None:
            self._counts.unreadable += 1
            connection.unreadable(body["desc"], why.code)
            return
        by_validator = isinstance(why, Malformed | NoSession | Claimed)
        if not wants_answer(message, by_validator):
            return
        sender = VALIDATOR if by_validator or not isinstance(message.to, str) else message.to
        reply = compose(message.id, "response", sender, to, body, message.transaction)
        if session is None:
            self._tell(connection, reply.data)
        else:
            session.answer(reply, connection)

    def _note(self, why: Rejected, message: Message, session: Session | None) -> None:
        without_secrets(message)
        message.code, message.reason = why.code, why.reason
        message.outcome = "no-route" if isinstance(why, NoRoute) else "refused"
        self._counts.refuse(why.code, why.reason)
        self._traffic_recorder.message(message, session)


def _again(data: bytes, message: Message) -> Message:
    """
    What the node made of the message.
    """
    again = decode(data, message.origin)
    again.came = message.came
    return again


def _what_could_be_read(
    why: Rejected, message: Message | None, data: bytes, connection: Connection
) -> Message:
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
        came=time_ns(),
        origin=connection,
    )
