"""
Sending to members: messages of clients here, and receipts and answers of this node.
"""

from collections.abc import Callable, Iterable
from functools import partial

from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.bus.receipts import RECEIPT
from msgnode.bus.router import Router
from msgnode.cluster.copies.copy_marks import CopyMarks
from msgnode.cluster.exchange.arrival import MemberArrival
from msgnode.links.exchange.counts import ExchangeCounts
from msgnode.links.exchange.envelopes import ASKED, COPY, MessageIds, envelope_of, identity_of, reason_of
from msgnode.links.exchange.gathering import Gathering
from msgnode.links.exchange.node_parts import ExchangeOptions
from msgnode.links.exchange.outgoing import Outgoing
from msgnode.links.exchange.receipts import to_remote
from msgnode.links.overlay.network import Network
from msgnode.links.stream.streams import Envelope, NoRoom, Outcome, Streams
from msgnode.policy.decision.context import Peer
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message, recall
from msgnode.sessions.session import Session
from msgnode.structures.log_limits import FailureLog

log = Logger()

CopyId = tuple[bytes, int]
MAX_HOPS = 4  # members that forward a message whose session moves again and again


class MemberSending:
    """
    The sender of messages to members. `own` is this domain. `is_open`: is the output of this turn collected?
    `before_write` is that of the journal.
    """

    def __init__(
        self,
        streams: Streams,
        network: Network,
        outgoing: Outgoing,
        router: Callable[[], Router],
        own: str,
        ids: MessageIds,
        is_open: Callable[[], bool],
        before_write: Callable[[Callable[[], object]], None],
        options: ExchangeOptions,
        counts: ExchangeCounts,
    ) -> None:
        self._streams = streams
        self._network = network
        self._outgoing = outgoing
        self._router = router
        self._own = own
        self._ids = ids
        self._is_open = is_open
        self._before_write = before_write
        self._options = options
        self._counts = counts
        self._gatherings: dict[str, Gathering] = {}  # by member
        self.marks = CopyMarks()
        self._failures = FailureLog(log)

    def send(self, message: Message, session: Session, node: str) -> None:
        gathering = self._gathering(node)
        if not gathering.join(message, session) and not gathering.begin(message, session, node, None):
            self.send_alone(message, session, node)

    def _gathering(self, node: str) -> Gathering:
        """
        The short messages to a member that leave together at the end of this turn.
        """
        found = self._gatherings.get(node)
        if found is None:
            found = self._gatherings[node] = Gathering(
                self,
                self._streams,
                self._network,
                self._router(),
                self._own,
                _may_gather,
                self._ids,
                self._is_open,
                self._before_write,
                self._options,
                self._counts,
                "wait",  # no other member has the sessions that it has
            )
        return found

    # -- Sending, of what is gathered -----------------------------------------------------------

    def send_alone(self, message: Message, session: Session, node: str, id: CopyId | None = None) -> None:
        """
        Sends one message, after those that are gathered. Raises Rejected.
        """
        self._gathering(node).leave()
        envelope = self._envelope(message, session)
        if id is not None:
            envelope.id, envelope.reason = id, reason_of(message, True)
        if message.receipt:
            envelope.kind = ASKED
        self._outgoing.send_to(message, session, node, envelope, message.data, "wait")

    def refused(self, message: Message, sid: int, why: Rejected) -> None:
        self._outgoing.refused(message, sid, why)

    def lost(self, message: Message, sid: int, outcome: Outcome) -> None:
        self._outgoing.lost(message, sid, outcome)

    # -- copies ------------------------------------------------------------------------------

    @staticmethod
    def copy_id(message: Message) -> CopyId | None:
        """
        The id that all copies of a message have; None if there is only one.
        """
        if message.copy_id:
            return message.copy_id
        origin = message.origin
        return origin.id if isinstance(origin, MemberArrival) and origin.is_copy else None

    def send_copies(self, message: Message, session: Session, nodes: Iterable[str]) -> int:
        reached = 0
        message.copy_id = id = self._ids.next()
        self.marks.note(id, message.effective_priority)
        for node in nodes:
            gathering = self._gathering(node)
            try:
                if not gathering.join(message, session, id) and not gathering.begin(
                    message, session, node, None, id
                ):
                    self._send_copy(message, session, node, id)
            except Rejected as why:  # NoRoom
                self._counts.note(node, why.reason)
            else:
                reached += 1
        message.outcome, message.recipients = "", 0  # which the router adds up
        return reached

    def publish(self, message: Message, nodes: Iterable[str]) -> None:
        """
        Sends copies of a message of this node's own. Never raises.
        """
        message.copy_id = id = self._ids.next()
        self.marks.note(id, message.effective_priority)
        for node in nodes:
            self.carry(node, message.data, id)

    def forward(self, message: Message, session: Session, node: str) -> bool:
        """
        Sends what another member has routed on to the member where its session is now.
        """
        arrival = message.origin
        if not isinstance(arrival, MemberArrival) or arrival.is_copy or arrival.hops >= MAX_HOPS:
            return False
        self._gathering(node).leave()
        envelope = envelope_of(message, arrival.id or self._ids.next(), self._options)
        envelope.identity, envelope.code = arrival.sender_fields, arrival.hops + 1
        envelope.kind = ASKED if message.receipt else envelope.kind
        self._streams.send(node, envelope, message.data, partial(self._lost, node), session.runtime)
        message.outcome, message.recipients = "delivered", 1
        self._counts.note(node, "forwarded")
        return True

    def _send_copy(self, message: Message, session: Session, node: str, id: CopyId) -> None:
        self._gathering(node).leave()
        envelope = self._envelope(message, session)
        envelope.id, envelope.reason = id, reason_of(message, True)
        self._streams.send(node, envelope, message.data, partial(self._lost, node), session.runtime)
        self._counts.note(node, "sent")

    def _envelope(self, message: Message, session: Session) -> Envelope:
        envelope = envelope_of(message, self._ids.next(), self._options)
        envelope.reason = reason_of(message, False)
        envelope.identity = _asserted(message) if session.is_node else identity_of(session, self._own)
        return envelope

    def _lost(self, node: str, envelope: Envelope, outcome: Outcome) -> None:
        """
        Counts a copy that did not get to its member. The sender is not notified of one of several.
        """
        if outcome.reason != "acknowledged":
            self._counts.note(node, outcome.reason)

    # -- what the bus delivers to a member's session ------------------------------------------

    def carry(self, node: str, data: bytes, id: CopyId | None = None) -> None:
        """
        Sends a receipt, an answer or another message of this node to the member that it is for; `id` is that
        of all copies, if there are several. It leaves after what is gathered: copies keep the order of their
        ids. Never raises.
        """
        try:
            self._gathering(node).leave()
            message = recall(data)
            if message.type.lower() == "receipt" and message.from_ == RECEIPT:
                self.send_receipt(node, message)
            else:
                envelope = envelope_of(message, id or self._ids.next(), self._options)
                envelope.reason = COPY if id is not None else envelope.reason
                self._streams.send(node, envelope, message.data, is_answer=True)
        except Rejected as why:
            self._counts.note(node, why.reason)
        except Exception:
            self._counts.note(node, "failed")
            self._failures.note("a message for {node} could not be sent", Failure(), node=node)

    def follow(self, message: Message, node: str, reason: str = "") -> None:
        """
        Sends a receipt or an answer as it is, to the member where its asker's session is now. Never raises.
        """
        envelope = envelope_of(message, self._ids.next(), self._options)
        envelope.reason = reason or envelope.reason
        envelope.ttl_millis = int(1000 * self._options.max_wait_seconds)
        try:
            self._streams.send(node, envelope, message.data, is_answer=True)
        except NoRoom:
            self._counts.note(node, "overflow")

    def send_receipt(self, node: str, receipt: Message) -> None:
        """
        Sends a final receipt to the member where its asker is.
        """
        envelope, payload = to_remote(receipt, self._ids.next(), True)
        envelope.ttl_millis = int(1000 * self._options.max_wait_seconds)
        try:
            self._streams.send(node, envelope, payload)
        except NoRoom:
            self._counts.note(node, "overflow")


def _asserted(message: Message) -> dict[str, str]:
    """
    The identity of a sender in another domain, as that domain says, or of one at another member.
    """
    came_from: Peer | None = getattr(message.origin, "came_from", None)
    if came_from is None or came_from.identity is None:
        return dict(getattr(message.origin, "sender_fields", ()))
    identity = came_from.identity
    return {"issuer": came_from.issuer, "user": identity.user, "idp": identity.provider}


def _may_gather(message: Message, node: str) -> bool:
    return not _asserted(message)
