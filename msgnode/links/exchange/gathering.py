"""
Gathering: short messages that one read of a client's socket brings, from one address to another one, leave
together.

They have one envelope, one record on disk and one number in their stream.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.bus.receipts import is_awaited
from msgnode.bus.router import Router
from msgnode.links.exchange.counts import ExchangeCounts
from msgnode.links.exchange.envelopes import MessageIds, envelope_of, identity_of, reason_of
from msgnode.links.exchange.node_parts import ExchangeOptions
from msgnode.links.overlay.network import Network
from msgnode.links.stream.streams import (
    MAX_SEVERAL,
    MAX_SEVERAL_BYTES,
    SEVERAL,
    Envelope,
    IfReplaced,
    Outcome,
    Streams,
)
from msgnode.links.wire.node_name import domain_of
from msgnode.policy.enforcement.points import OUT
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message, recall
from msgnode.sessions.session import Session
from msgnode.structures.log_limits import FailureLog

log = Logger()

MAX_BYTES = 1024  # of a message: a longer one may be compressed, and is sent alone
# Names that other code looks for in the bytes of a message.
_VIA, _ANSWER, _COMPRESS, _ENCRYPT, _ESCAPED = b'"via"', b'"answer"', b'"compress"', b'"encrypt"', b"\\u00"


class Sending(Protocol):
    """
    The sender of a message that is alone, and of what became of each that was gathered (Outgoing).
    """

    def send_alone(
        self, message: Message, session: Session, node: str, id: tuple[bytes, int] | None = None
    ) -> None:
        """
        Sends one message, with an id of its own unless one is given. Raises Rejected.
        """

    def refused(self, message: Message, sid: int, why: Rejected) -> None:
        """
        Tells the session `sid` that its message was not sent.
        """

    def lost(self, message: Message, sid: int, outcome: Outcome) -> None:
        """
        Tells the session `sid` that its message was lost.
        """


class Gathered(msgspec.Struct, gc=False):
    """
    The messages of one session for one address, in the order in which they came; `far` is the session of the
    node that they go to, if policies decide about what leaves for it.
    """

    session: Session
    node: str
    far: Session | None
    first: Message
    identity: dict[str, str]
    payloads: list[bytes]
    size: int
    id: tuple[bytes, int] | None = None  # of the first, if the messages have ids that follow each other


class Gathering:
    """
    The messages that are being gathered, none of which waits for an answer. They leave before the batch of
    the journal is written, and before anything else that the exchange sends for a client.

    `may_gather`: may a message to that node be one of several? `own` is this node's domain. `is_open`: is the
    output of this turn collected, so that the batch is written at its end? `before_write` is that of the
    journal. `if_replaced` is that of the streams.
    """

    def __init__(
        self,
        sending: Sending,
        streams: Streams,
        network: Network,
        router: Router,
        own: str,
        may_gather: Callable[[Message, str], bool],
        ids: MessageIds,
        is_open: Callable[[], bool],
        before_write: Callable[[Callable[[], object]], None],
        options: ExchangeOptions,
        counts: ExchangeCounts,
        if_replaced: IfReplaced,
    ) -> None:
        self._sending = sending
        self._if_replaced: IfReplaced = if_replaced
        self._streams = streams
        self._network = network
        self._router = router
        self._own = own
        self._may_gather = may_gather
        self._ids = ids
        self._is_open = is_open
        self._before_write = before_write
        self._options = options
        self._counts = counts
        self._gathered: Gathered | None = None
        self._failures = FailureLog(log)

    def join(self, message: Message, session: Session, id: tuple[bytes, int] | None = None) -> bool:
        """
        Takes the message if it is like those that are gathered, and its id follows theirs; else they leave.
        Raises Rejected if a policy refuses it.
        """
        gathered = self._gathered
        if gathered is None:
            return False
        first, size = gathered.first, gathered.size + len(message.data)
        if (
            session is not gathered.session
            or message.to != first.to
            or message.from_ != first.from_
            or message.type != first.type
            or message.ttl != first.ttl
            or message.priority != first.priority
            or message.bulk != first.bulk
            or size > MAX_SEVERAL_BYTES
            or len(gathered.payloads) == MAX_SEVERAL
            or not _follows(id, gathered)
            or not _is_plain(message)
        ):
            self.leave()
            return False
        policy = self._router.policy
        if gathered.far is not None and policy is not None and policy.between_nodes:
            policy.check(OUT, message, gathered.far)
        gathered.payloads.append(message.data)
        gathered.size = size
        message.outcome, message.recipients = "delivered", 1
        return True

    def begin(
        self,
        message: Message,
        session: Session,
        node: str,
        far: Session | None,
        id: tuple[bytes, int] | None = None,
    ) -> bool:
        """
        Takes the first message, if others may join it.
        """
        size = len(message.data)
        if (
            not self._is_open()
            or not _is_plain(message)
            or not self._network.has_route(node)
            or not self._may_gather(message, node)
            or not self._streams.would_take(node, session.runtime, MAX_SEVERAL, MAX_SEVERAL_BYTES)
        ):
            return False
        identity = identity_of(session, self._own)
        self._gathered = Gathered(session, node, far, message, identity, [message.data], size, id)
        self._before_write(self._leave_now)
        message.outcome, message.recipients = "delivered", 1
        return True

    def leave(self) -> None:
        """
        Sends what is gathered. Messages that are refused all the same are answered.
        """
        gathered, self._gathered = self._gathered, None
        if gathered is None:
            return
        sending, session = self._sending, gathered.session
        try:
            if len(gathered.payloads) == 1:
                sending.send_alone(gathered.first, session, gathered.node, gathered.id)
            else:
                self._send(gathered)
        except Rejected as why:
            for payload in gathered.payloads:
                sending.refused(recall(payload), session.sid, why)

    def _leave_now(self) -> None:
        try:
            self.leave()
        except Exception:
            self._failures.note("messages for another domain could not be sent", Failure())

    def _send(self, gathered: Gathered) -> None:
        session, node, payloads = gathered.session, gathered.node, gathered.payloads
        id = gathered.id or self._ids.take(len(payloads))
        envelope = envelope_of(gathered.first, id, self._options)
        envelope.kind, envelope.compress, envelope.identity = SEVERAL, False, gathered.identity
        if self._own == domain_of(node):
            envelope.reason = reason_of(gathered.first, gathered.id is not None)
        sid = session.sid

        def ended(envelope: Envelope, payload: bytes, outcome: Outcome) -> None:
            self._sending.lost(recall(payload), sid, outcome)

        try:
            self._streams.send_several(node, envelope, payloads, ended, session.runtime, self._if_replaced)
        except Rejected as why:
            self._counts.note(node, why.reason, len(payloads))
            raise
        self._counts.note(node, "sent", len(payloads))


def _follows(id: tuple[bytes, int] | None, gathered: Gathered) -> bool:
    if id is None or gathered.id is None:
        return id is gathered.id
    instance, first = gathered.id
    return id == (instance, first + len(gathered.payloads))


def _is_plain(message: Message) -> bool:
    """
    Is it a short message for which nothing special is asked, and no answer?
    """
    data = message.data
    if message.receipt or message.forward or not message.log or message.transaction is not None:
        return False
    if len(data) > MAX_BYTES or _VIA in data or _ANSWER in data or is_awaited(message):
        return False
    return not (_COMPRESS in data or _ENCRYPT in data or _ESCAPED in data)
