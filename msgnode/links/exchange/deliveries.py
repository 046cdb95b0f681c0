"""
Deliveries to other nodes: what the bus sends to the session of a node goes to its stream.

These are publications that the node's clients are subscribed to, answers of this node, and receipts.
"""

from collections.abc import Callable
from time import time_ns

from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.bus.receipts import RECEIPT
from msgnode.links.exchange.counts import ExchangeCounts
from msgnode.links.exchange.domains import HomeDomains
from msgnode.links.exchange.envelopes import MessageIds, envelope_of, identity_of, without_via
from msgnode.links.exchange.node_parts import ExchangeOptions
from msgnode.links.exchange.passing.origins import Origins
from msgnode.links.exchange.receipts import Path, digest_of, short_path, to_remote
from msgnode.links.exchange.status import ACKNOWLEDGED, told
from msgnode.links.stream.streams import Envelope, NoRoom, Outcome, Streams
from msgnode.protocol.errors import Rejected, error_body
from msgnode.protocol.message import Message, recall
from msgnode.sessions.access.address_ownership import AddressOwnership
from msgnode.structures.bounded_cache import BoundedCache
from msgnode.structures.log_limits import FailureLog

MAX_PATHS = 10_000  # of messages whose senders want receipts

log = Logger()


class Deliveries:
    """
    The sender of messages, answers and receipts to other nodes. It never raises.

    `answer_lost` is called for an answer of this node that another node has not got. `is_exposed`: are
    foreign senders told that a policy refused them?
    """

    def __init__(
        self,
        streams: Streams,
        homes: HomeDomains,
        ids: MessageIds,
        origins: Origins,
        owners: AddressOwnership,
        options: ExchangeOptions,
        is_exposed: Callable[[], bool],
        counts: ExchangeCounts,
        node: str,
    ) -> None:
        self._node = node
        self._streams = streams
        self._homes = homes
        self._ids = ids
        self._origins = origins
        self._owners = owners
        self._options = options
        self._is_exposed = is_exposed
        self._counts = counts
        self._relays: BoundedCache[bytes, str] = BoundedCache(MAX_PATHS)
        self._paths: BoundedCache[bytes, tuple[Path, int]] = BoundedCache(MAX_PATHS)
        self.answer_lost: Callable[[str, Message, Outcome], None] = lambda node, answer, outcome: None
        self._failures = FailureLog(log)

    def note_path(self, message: Message, path: Path) -> None:
        """
        Notes by which nodes a message came whose sender wants a receipt.
        """
        self._paths.put(digest_of((message.from_, message.id)), (short_path(path), message.received_at))

    def note_relay(self, message: Message, node: str) -> None:
        """
        Notes that the node which passed a message on gets its receipt, and tells the sender.
        """
        self._relays.put(digest_of((message.from_, message.id)), node)

    def carry(self, node: str, data: bytes) -> None:
        """
        Sends a message that was delivered to the session of the node.
        """
        try:
            self._carry(node, recall(data))
        except Rejected as why:
            self._counts.note(node, why.reason)
        except Exception:
            self._counts.note(node, "failed")
            self._failures.note("a message for {node} could not be sent", Failure(), node=node)

    def carry_error(self, node: str, data: bytes) -> None:
        """
        Sends an error answer of this node, which says no more than a foreign sender may know.
        """
        message = recall(data)
        if message.type.lower() == "response":
            body = message.fields()
            code = body.get("code", 0)
            if isinstance(code, int):
                text, reason = str(body.get("desc", "")), str(body.get("reason", ""))
                code, text, reason = told(code, text, reason, self._is_exposed())
                more = {"reason": reason} if reason else {}
                kept = {key: value for key, value in body.items() if key not in ("desc", "description")}
                data = _answer(message, {**kept, **error_body(code, text), **more})
        self.carry(node, data)

    def receipt(self, node: str, receipt: Message) -> None:
        """
        Sends the final receipt for a message of the node.
        """
        to = receipt.to if isinstance(receipt.to, str) else receipt.to[0]
        node = self._relays.pop(digest_of((to, receipt.id))) or node
        path = self._path(to, receipt)
        envelope, payload = to_remote(receipt, self._ids.next(), self._is_exposed(), path)
        envelope.ttl_millis = int(1000 * self._options.max_wait_seconds)
        try:
            self._streams.send(node, envelope, payload)
        except NoRoom:
            self._counts.note(node, "overflow")

    def _path(self, to: str, receipt: Message) -> Path:
        """
        The path of the message that a receipt is about, with the time that it stayed here at the end.

        That time would tell a refusal from an unknown address, so it is 0 in an error.
        """
        path, received_at = self._paths.get(digest_of((to, receipt.id))) or ((), 0)
        if not path:
            return path
        is_error = int(receipt.fields().get("code", 0)) >= 400
        return *path, (self._node, 0 if is_error else max(0, time_ns() - received_at) // 1000)

    def _carry(self, node: str, message: Message) -> None:
        if message.type.lower() == "receipt" and message.from_ == RECEIPT:
            self.receipt(node, message)
            return
        if not isinstance(message.to, str) or message.to.startswith("mn:"):
            self._counts.note(node, "reserved-address")
            return
        if self._homes.home(message.from_) == self._homes.own:
            owner = self._owners.owner(message.from_)
            envelope = envelope_of(message, self._ids.next(), self._options)
            envelope.identity = identity_of(owner, self._homes.own)
            sender = owner.runtime if owner is not None else message.from_
            if message.type.lower() == "response":
                self._answer(node, envelope, message, sender)
            else:
                self._streams.send(node, envelope, without_via(message), sender=sender)
            return
        self._pass_on(node, message)

    def _answer(self, node: str, envelope: Envelope, answer: Message, sender: str) -> None:
        def done(envelope: Envelope, outcome: Outcome) -> None:
            if outcome.reason != ACKNOWLEDGED:
                self.answer_lost(node, answer, outcome)

        try:
            self._streams.send(node, envelope, without_via(answer), done, sender, is_answer=True)
        except NoRoom as why:
            self.answer_lost(node, answer, Outcome(why.code, why.reason, str(why)))
            raise

    def _pass_on(self, node: str, message: Message) -> None:
        """
        Passes on what a client of another domain published here, if its node signed it.
        """
        passed = self._origins.passed(message)
        if passed is None:
            self._counts.note(node, "peer")
            return
        envelope: Envelope = envelope_of(message, passed.id, self._options)
        envelope.origin = passed.origin
        self._streams.send(node, envelope, passed.payload, sender=self._homes.home(message.from_))


def _answer(message: Message, body: dict[str, object]) -> bytes:
    """
    The bytes of the answer with another body.
    """
    request = Message(message.id, "", message.from_, message.to if isinstance(message.to, str) else "")
    request.transaction, request.log = message.transaction, message.log
    return request.reply(body).data
