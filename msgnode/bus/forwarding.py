"""
Forwarding: a recipient passes a message on with its `from` unchanged, if the sender allows it.

The header field `"forward": true` allows it, so that a third client can answer the first directly. Otherwise
a `from` that belongs to another session is refused (address_ownership.py). A forwarded message must also keep
its type, and go to one address of a client.
"""

from collections.abc import Callable, Hashable, Sequence
from hashlib import blake2b

from msgnode.protocol.message import Message, recall
from msgnode.sessions.session import Session
from msgnode.structures.fair_table import FairTable

ALLOWED_SECONDS = 60.0  # after the delivery
MAX_DELIVERIES = 10_000  # deliveries in the table, in all
MAX_RECIPIENTS = 16  # recipients of one message, in the order of their bindings

Delivered = tuple[int, bytes]  # the sid of the recipient, and the digest of `from`, `id` and `type`


class Forwards:
    """
    The table of messages delivered with `forward`: the recipients, and until when each may forward them.

    `is_node` says if the node answers at an address.
    """

    def __init__(self, now: Callable[[], float], is_node: Callable[[str], bool]) -> None:
        self._now = now
        self._is_node = is_node
        self._until: FairTable[Delivered, float] = FairTable(MAX_DELIVERIES)

    def __len__(self) -> int:
        return len(self._until)

    def delivered(self, message: Message, recipients: Sequence[Session], sender: Session | None) -> None:
        """
        Adds the recipients of a message; they count in the sender's share of the table, else in the
        recipient's.
        """
        if message.type.lower() == "response":
            return
        now, until = self._now(), self._until
        while until and until.oldest[1] <= now:
            until.remove(until.oldest[0])
        digest = _digest(message)
        # A session that forwards a message passes on the remaining time; the time does not start again.
        left = until.get((sender.sid, digest)) if sender is not None else None
        ends = now + ALLOWED_SECONDS if left is None else left
        for session in recipients[:MAX_RECIPIENTS]:
            until.put((session.sid, digest), ends, *_payer(sender or session))

    def delivered_late(self, data: bytes, session: Session) -> None:
        """
        Adds a recipient that gets a queued message now.
        """
        if b"forward" in data or b"\\u00" in data:
            message = recall(data)
            if message.forward:
                self.delivered(message, session.as_tuple, None)

    def allows(self, message: Message, session: Session) -> bool:
        """
        Did this session get the message recently, and is it sent to a client?
        """
        if not message.forward or not isinstance(message.to, str) or self._is_node(message.to):
            return False
        digest, now = _digest(message), self._now()
        return any((self._until.get((sid, digest)) or 0.0) > now for sid in (session.sid, *session.former))


def _digest(message: Message) -> bytes:
    """
    A digest of the fields that identify the message, short for names of any length.
    """
    what = repr((message.from_, message.id, message.type))
    return blake2b(what.encode(errors="surrogatepass"), digest_size=16).digest()


def _payer(session: Session) -> tuple[Hashable, Hashable]:
    """
    The share that is charged: the user's or the host's, and in it the session's; without these, a common one.
    """
    above = session.account.above
    if above is None:
        return None, None
    return (above.kind, above.name), session.sid
