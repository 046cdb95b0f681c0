"""
Ingress: the entry point of the messages that connectors receive from their clients.

This module has the only `try` on a message's path. No message from a client ends its session, or its
connection, except where docs/protocol.md says that the connection is closed.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from time import time_ns
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.bus.components import Reply
from msgnode.bus.handshake import Handshake
from msgnode.bus.refusals import Refusals
from msgnode.bus.router import Router
from msgnode.protocol.address import SESSION
from msgnode.protocol.errors import FAILED, Malformed, NoSession, Rejected, failure_code
from msgnode.protocol.message import NO_TOKEN, Message, decode
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
from msgnode.sessions.inbox import Inbox
from msgnode.sessions.input_order import InputOrder
from msgnode.sessions.session import Connection, Session
from msgnode.sessions.session_table import TrafficRecorder
from msgnode.structures.log_limits import FailureLog
from msgnode.transport.cork import corked

log = Logger()

OPENS = ("open", "re-open")


class Ingress:
    """
    The entry point of messages: it receives them, has them routed, and answers errors.

    `together` collects the output of a message that took more than one turn: the count of the message and all
    that it causes are one batch of the journal.

    The hooks below are None if the configuration needs no such check; the node sets them.
    """

    def __init__(
        self,
        handshake: Handshake,
        router: Router,
        refusals: Refusals,
        traffic_recorder: TrafficRecorder,
        counts: Counters,
        input_order: InputOrder,
    ) -> None:
        self.together: AbstractContextManager[Any] = nullcontext()
        self._failures = FailureLog(log)
        self._input_order = input_order
        self._pending_input = input_order.pending
        # Checks the sender's rate and its session token; raises Rejected.
        self.admit: Callable[[bytes, Session, Connection], None] | None = None
        # Applies the policies to a reply of the node's own; None: the reply is suppressed.
        self.filter_reply: Callable[[Message, Session], Message | None] | None = None
        # Returns the message with `body.assertedIdentity` as only the node may set it.
        self.stamp_identity: Callable[[Message, Session], bytes] | None = None
        # Validates the tokens in a message, and notes the result in it.
        self.identify: Callable[[Message], Deferred[None] | None] | None = None
        # Takes a message of a connection whose session is at another node; False: it is none of those.
        self.relay: Callable[[bytes, Connection], bool] | None = None
        # Checks a message that names a record; raises Rejected.
        self.check_record: Callable[[Message, Session], None] | None = None
        self._refusals = refusals
        self._handshake = handshake
        self._router = router
        self._traffic_recorder = traffic_recorder
        self._counts = counts

    def receive(self, data: bytes, connection: Connection) -> None:
        """
        Receives one message, a JSON object in UTF-8, from a client.
        """
        if self._pending_input and connection in self._pending_input:
            self._input_order.buffer(data, connection)  # behind a message that is still being processed
            return
        received_at = time_ns()
        counts, size = self._counts, len(data)
        counts.received += 1
        counts.received_bytes += size
        counts.received_by[connection.connector] += 1
        session = connection.session
        if session is not None:
            session.in_messages += 1
            session.in_bytes += size
            session.last_in = received_at
        # Messages on a superseded connection are not in the newer one's counts.
        inbox = None if session is None or session.connection is not connection else session.mailbox.inbox
        message = None
        try:
            message = decode(data, connection)
            message.received_at = received_at
            if message.to == SESSION:
                session = self._session_control(message, connection)
            else:
                if inbox is not None and not inbox.count_received():
                    return  # a duplicate
                if session is None:
                    if self.relay is not None and self.relay(data, connection):
                        self._uncount(data, connection)  # the other node counts it
                        return
                    raise NoSession(f"open a session before you send to {message.to}")
                if self.admit is not None:
                    self.admit(data, session, connection)
                # From here on, the message is as its recipients will get it.
                if (
                    (UNDERSCORE in data and may_hold_token(data))
                    or (BACKSLASH in data and SPELT_LINE in data)
                    or message.token is not NO_TOKEN
                ):
                    message = redacted(message)
                if self.stamp_identity is not None:
                    message = self._stamped(message, session)
                if not message.from_:
                    raise Malformed("'from' is missing", message.id)
                if message.record is not None and self.check_record is not None:
                    self.check_record(message, session)
                if self.identify is None:
                    reply = self._router.route(message, session)
                else:
                    reply = self._identify_and_route(message, session, connection)
                if reply is not None and not self._answered_now(reply, message, session, inbox):
                    return
        except Rejected as why:
            self._reject(why, message, data, connection, inbox)
        except Exception:
            self._failed(Failure(), message, connection)
        else:
            if message.outcome:  # the copies of a message to a list are logged separately
                self._log_outcome(message, session)

    def _stamped(self, message: Message, session: Session) -> Message:
        assert self.stamp_identity is not None
        stamped = self.stamp_identity(message, session)
        if stamped is message.data:
            return message
        again = decode(stamped, message.origin)
        again.received_at = message.received_at
        return again

    def _identify_and_route(self, message: Message, session: Session, connection: Connection) -> Reply:
        assert self.identify is not None
        wait = self.identify(message)
        if wait is None:
            return self._router.route(message, session)
        return self._route_later(wait, message, session, connection)

    def _route_later(
        self, wait: Deferred[None], message: Message, session: Session, connection: Connection
    ) -> Deferred[Any]:
        """
        Routes the message when its tokens are validated; the sender's later messages wait.
        """
        over: Deferred[Any] = Deferred()
        work = self._input_order.hold(connection)

        def route(known: None) -> None:
            reply = self._router.route(message, session)
            if isinstance(reply, Deferred):
                reply.addBoth(over.callback)  # later messages need not wait for the answer
            else:
                over.callback(reply)

        wait = corked(self.together, wait)
        wait.addCallbacks(route, over.errback)
        wait.addErrback(over.errback)
        wait.addBoth(lambda done: self._input_order.release(work))
        return over

    def _answered_now(
        self,
        reply: Message | Deferred[Message],
        message: Message,
        session: Session,
        inbox: Inbox | None,
    ) -> bool:
        """
        Answers the sender with this reply; False if the reply is still pending.
        """
        if isinstance(reply, Message):
            self.answer(reply, session, message.origin)
            return True
        self._await(reply, message, session, inbox)
        return False

    def answer(self, reply: Message, session: Session, connection: Connection | None) -> None:
        """
        Sends a reply; without a connection, to where the session is now.
        """
        if self.filter_reply is not None:
            filtered = self.filter_reply(reply, session)
            if filtered is None:
                return
            reply = filtered
        if connection is None:
            session.deliver(reply)
        else:
            session.answer(reply, connection)

    def _log_outcome(self, message: Message, session: Session | None) -> None:
        message.handling_us = handling_us = (time_ns() - message.received_at) // 1000
        self._counts.handed_over[handling_us.bit_length()] += 1
        self._traffic_recorder.message(message, session)

    def reject_undecodable(self, data: bytes, why: str, connection: Connection, code: int = 400) -> None:
        """
        Refuses bytes that are not text, or too long; `data` is the part of them that was received.
        """
        if self._pending_input and connection in self._pending_input:
            self._input_order.buffer(
                data, connection, partial(self.reject_undecodable, data, why, connection, code)
            )
            return
        self._counts.receive(len(data), connection.connector)
        session = connection.session
        if session is not None and session.connection is connection and session.mailbox.inbox is not None:
            session.mailbox.inbox.count_received()
        refusal = Malformed(why, code=code, reason="too-long" if code == 413 else "malformed")
        self._refusals.reject(refusal, None, data, connection)

    def refused(self, message: Message, session: Session, why: Rejected) -> None:
        """
        Records a message that its connector refused, and whose sender the connector answers.
        """
        connector = message.origin.connector if message.origin is not None else "node"
        self._counts.receive(len(message.data), connector)
        message.received_at = time_ns()
        self._refusals.record(why, message, session)

    def _session_control(self, message: Message, connection: Connection) -> Session | None:
        """
        Handles a message to mn:/session; returns the session that it concerns.
        """
        session = self._handshake.respond(message, connection)
        without_secrets(message)
        if session is not None:
            message.from_ = session.runtime
            if self._pending_input:
                self._input_order.follow(session, connection)
        if not message.outcome:  # it will be received again
            self._uncount(message.data, connection)
        return session

    def _uncount(self, data: bytes, connection: Connection) -> None:
        self._counts.received -= 1
        self._counts.received_bytes -= len(data)
        self._counts.received_by[connection.connector] -= 1

    def _await(
        self, reply: Deferred[Message], message: Message, session: Session, inbox: Inbox | None
    ) -> None:
        number = 0 if inbox is None else inbox.position
        if inbox is not None:
            inbox.pending.add(number)
        reply = corked(self.together, reply)
        reply.addBoth(self._finished, inbox, number)
        reply.addCallback(self._answered, message, session)
        reply.addErrback(self._answer_failed, message, session)

    @staticmethod
    def _finished(result: Message | Failure, inbox: Inbox | None, number: int) -> Message | Failure:
        # Before the answer is sent, so that the message is not answered twice.
        if inbox is not None:
            inbox.finish(number)
        return result

    def _answered(self, reply: Any, message: Message, session: Session) -> None:
        # A message whose routing was only delayed has no reply; a responder must give one.
        if reply is not None or message.outcome == "answered":
            self.answer(reply, session, message.origin)
        if message.outcome:  # the copies of a message to a list are logged separately
            self._log_outcome(message, session)

    def _answer_failed(self, why: Failure, message: Message, session: Session) -> None:
        if isinstance(why.value, Rejected):
            self._refusals.reject(why.value, message, message.data, message.origin, session)
        else:
            self._failed(why, message, message.origin, session)

    def _failed(
        self, why: Failure, message: Message | None, connection: Connection, session: Session | None = None
    ) -> None:
        to = message.to if message is not None else None
        self._failures.note("a message to {to} could not be routed", why, to=loggable(str(to))[:200])
        if message is not None and to == SESSION and message.type.lower() in OPENS:
            self._handshake.close_failed(connection)
            without_secrets(message)
            message.outcome, message.code, message.reason = "refused", 503, "failed"
            self._log_outcome(message, None)
            return
        sorry = Rejected(FAILED, failure_code(to), "failed")
        self._refusals.reject(sorry, message, b"", connection, session)

    def _reject(
        self,
        why: Rejected,
        message: Message | None,
        data: bytes,
        connection: Connection,
        inbox: Inbox | None,
    ) -> None:
        if message is None and inbox is not None:
            inbox.count_received()  # a message that cannot be decoded is counted, too
        self._refusals.reject(why, message, data, connection)
