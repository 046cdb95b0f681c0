"""
Messages that a stub posts: they are believed for its own domain only, and go to clients here only.
"""

import re
from collections.abc import Callable
from copy import copy
from hashlib import blake2b
from time import time_ns
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.bus.receipts import is_awaited, wants_answer
from msgnode.foreign.host_names import HostNames
from msgnode.links.exchange.envelopes import without_via
from msgnode.links.exchange.node_parts import NodeParts
from msgnode.policy.enforcement.points import IN
from msgnode.protocol.address import TOPICS, Domain
from msgnode.protocol.errors import FAILED, Blocked, Malformed, NoRoute, Rejected, failure_code
from msgnode.protocol.message import NO_TOKEN, Message, decode
from msgnode.protocol.token_redaction import may_hold_token, redacted, without_secrets
from msgnode.sessions.access.asserted_identity import with_asserted_identity
from msgnode.sessions.session import Session
from msgnode.sessions.session_table import TrafficRecorder
from msgnode.structures.log_limits import FailureLog, StrangerLog, printable
from msgnode.structures.recent_keys import RecentKeys
from msgnode.transport.cork import corked

# Senders that others could take for another domain's: with a user, a backslash, or a scheme of the node.
_OTHERWISE_READ = re.compile(r"[^/?#]*:/*[^/?#]*[@\\]|(mn|global):", re.IGNORECASE)
REPEATED_SECONDS = 30.0
MAX_RECENT = 10_000

log = Logger()


class Taker(Protocol):
    """
    A part that takes some messages of the stub before the bus does.
    """

    def __call__(self, message: Message) -> bool:
        """
        Takes the message; False if it is for others.
        """


class Inbound:
    """
    The entry point of one stub's messages. `takers` are asked before the bus; `note` counts by a word.
    """

    def __init__(
        self,
        domain: str,
        node: NodeParts,
        session: Session,
        names: HostNames,
        traffic_recorder: TrafficRecorder,
        takers: Callable[[], list[Taker]],
        note: Callable[[str], None],
        seconds: Callable[[], float],
    ) -> None:
        self._domain = domain
        self._node = node
        self._session = session
        self._names = names
        self._traffic_recorder = traffic_recorder
        self._takers = takers
        self._note = note
        self._seconds = seconds
        self._recent, self._before = self._make_recent(), self._make_recent()
        self._own = Domain(node.config.domain)
        self._failures = FailureLog(log)
        self._strangers = StrangerLog(log, seconds)

    def _make_recent(self) -> RecentKeys[bytes]:
        return RecentKeys(REPEATED_SECONDS, MAX_RECENT, self._seconds)

    def started_again(self) -> None:
        """
        Notes that another process of the stub speaks: its node may send again what the one before it had.
        """
        self._before, self._recent = self._recent, self._make_recent()

    def receive(self, data: bytes) -> int:
        """
        Receives what the stub has posted; returns the number of its recipients. Never raises.
        """
        with self._node.ingress.together:
            try:
                return self._receive(data)
            except Exception:
                self._note("failed")
                self._failures.note(
                    "a message of the stub of {domain} failed", Failure(), domain=self._domain
                )
        return 1

    def _receive(self, data: bytes) -> int:
        try:
            message = self._read(data)
        except Malformed as why:
            self._drop(why.reason or "malformed")
            return 1
        self._take(message)
        return 1 if isinstance(message.to, str) else len(message.to)

    def _take(self, message: Message) -> None:
        if self._is_echo(message):
            self._note("echo")
            return
        digest = blake2b(message.data, digest_size=16).digest()
        self._recent.add(digest)
        if digest in self._before:
            self._note("repeated")
            return
        if any(take(message) for take in self._takers()):
            return
        try:
            later = self._route(message)
        except Rejected as why:
            self._refuse(why, message)
        except Exception:
            self._fail(Failure(), message)
        else:
            if later is not None:
                later.addErrback(self._failed_later, message)
                later.addBoth(lambda over: self._finished(message))
                return
        self._finished(message)

    def _is_echo(self, message: Message) -> bool:
        """
        Is it what a client here has sent to an address there? Some nodes send it to all that listen, and the
        clients here that listen have it.
        """
        home, to = self._names.home(message.from_), message.to
        return home == self._names.own and isinstance(to, str) and self._names.home(to) == self._domain

    def _read(self, data: bytes) -> Message:
        """
        The message without `via`, without tokens, and without an identity that only this node may assert.
        """
        origin = self._session.connection
        message = decode(data, origin)
        if message.has_via:
            message = decode(without_via(message), origin)
        if may_hold_token(message.data) or message.token is not NO_TOKEN:
            message = redacted(message)
            message.origin = origin
        without_identity = with_asserted_identity(message, self._session)  # the session of a stub has none
        if without_identity is not message.data:
            message = decode(without_identity, origin)
        message.received_at = time_ns()
        return message

    # -- checks ------------------------------------------------------------------------

    def _route(self, message: Message) -> Deferred[Any] | None:
        self._check_addresses(message)
        check_record = self._node.ingress.check_record
        if message.record is not None and check_record is not None:
            check_record(message, self._session)
        identify = self._node.ingress.identify
        wait = identify(message) if identify is not None else None
        if wait is not None:
            wait = corked(self._node.ingress.together, wait)
            return wait.addCallback(lambda done: self._pass(message))
        return self._pass(message)

    def _check_addresses(self, message: Message) -> None:
        """
        Raises Rejected for a sender of another domain, and for an address that is neither of this node's
        clients nor of the stub's domain.
        """
        if self._names.home(message.from_) != self._domain or _OTHERWISE_READ.match(message.from_):
            raise Rejected(
                f"the stub of {self._domain} may not send from {message.from_!r}"[:300], 403, "peer"
            )
        addresses = [message.to] if isinstance(message.to, str) else message.to
        for to in addresses:
            if to.startswith(("mn:", "global:")) or to in TOPICS:
                raise Rejected(f"{to!r} is not open to other domains"[:300], 403, "reserved-address")
            if self._names.home(to) not in (self._domain, self._names.own):
                raise Rejected(f"{to!r} is not of this domain"[:300], 403, "peer")
            if self._own.owns(to):
                self._check_service(message, to)

    def _check_service(self, message: Message, to: str) -> None:
        """
        Without a rule that names it, no service of this node is open to other domains, but for reading the
        registry.
        """
        if not isinstance(message.to, str):
            raise Blocked("a list with a service in it is not open to other domains")
        host = to[9:].partition("/")[0].lower()
        if host == f"registry.{self._names.own}" and message.type.lower() == "read":
            return
        if not self._node.enforcement.names(IN, message, self._session, "domain://"):
            raise Blocked("this service is not open to other domains")

    def _pass(self, message: Message) -> Deferred[Any] | None:
        reply = self._node.router.route(message, self._session)
        if isinstance(reply, Deferred):
            reply = corked(self._node.ingress.together, reply)
            return reply.addCallback(self._answer)
        self._answer(reply)
        return None

    def _answer(self, reply: Any) -> None:
        filtered = self._node.ingress.filter_reply
        if isinstance(reply, Message) and filtered is not None:
            reply = filtered(reply, self._session)
        if isinstance(reply, Message):
            self._session.deliver(reply)

    # -- outcomes ------------------------------------------------------------------------

    def _finished(self, message: Message) -> None:
        if message.outcome:
            message.handling_us = (time_ns() - message.received_at) // 1000
            self._traffic_recorder.message(message, self._session)
        self._note("received")

    def _drop(self, reason: str) -> None:
        self._note(reason)
        self._strangers.note(
            "a message of the stub of {domain} was dropped: {reason}", domain=self._domain, reason=reason
        )

    def _failed_later(self, why: Failure, message: Message) -> None:
        if isinstance(why.value, Rejected):
            self._refuse(why.value, message)
        else:
            self._fail(why, message)

    def _fail(self, why: Failure, message: Message) -> None:
        self._failures.note("a message of a foreign domain could not be routed", why)
        self._refuse(Rejected(FAILED, failure_code(message.to), "failed"), message)

    def _refuse(self, why: Rejected, message: Message) -> None:
        """
        Counts a refusal, and answers a sender that waits for an answer.
        """
        without_secrets(message)
        message.code, message.reason = why.code, why.reason
        message.outcome = "no-route" if isinstance(why, NoRoute) else "refused"
        self._node.counts.refuse(why.code, why.reason)
        self._note(why.reason)
        if why.reason == "peer":
            text = "the stub of {domain} may not send this: {why}"
            self._strangers.note(text, domain=self._domain, why=printable(str(why)))
            return  # the answer would go to another domain
        for to in [message.to] if isinstance(message.to, str) else message.to:
            about = copy(message)
            about.to = to
            if is_awaited(about) or wants_answer(about):
                from_ = to if self._names.home(to) == self._names.own else self._own.node
                self._session.deliver(about.reply({**why.body(), "reason": why.reason}, from_))
