"""
Forwarding: who got a message whose sender allows it may pass it on, with `from` as it is.

A header with `"forward": true` allows it, so that the third can answer the
first directly.  Else a `from` that is another's is forged (address_ownership.py).
What is passed on keeps its type too, and goes to one address of a client: the
first sender's name is good for nothing else.
"""

from collections.abc import Callable, Hashable, Sequence
from hashlib import blake2b

from msgnode.protocol.message import Message, recall
from msgnode.sessions.session import Session
from msgnode.structures.fair_table import FairTable

ALLOWED_FOR = 60.0  # seconds from the delivery
MAX_DELIVERIES = 10_000  # deliveries that are remembered, in all
MAX_RECIPIENTS = 16  # of one message, in the order in which they bound its address

Delivered = tuple[int, bytes]  # the sid of the recipient, and the digest of `from`, `id` and `type`


class Forwards:
    """
    The table of messages delivered with `forward`: to which session, and until when each may be passed on.

    `is_node` tells the addresses at which the node answers.
    """

    def __init__(self, now: Callable[[], float], is_node: Callable[[str], bool]) -> None:
        self._now = now
        self._is_node = is_node
        self._until: FairTable[Delivered, float] = FairTable(MAX_DELIVERIES)

    def __len__(self) -> int:
        return len(self._until)

    def delivered(self, message: Message, recipients: Sequence[Session], sender: Session | None) -> None:
        """
        These get the message, and may pass it on.  The sender's share pays for it, else the recipient's.
        """
        if message.type.lower() == "response":
            return
        now, until = self._now(), self._until
        while until and until.oldest[1] <= now:
            until.remove(until.oldest[0])
        digest = _digest(message)
        # Who passes it on hands over what is left of the time, and does not begin it anew.
        left = until.get((sender.sid, digest)) if sender is not None else None
        ends = now + ALLOWED_FOR if left is None else left
        for session in recipients[:MAX_RECIPIENTS]:
            until.put((session.sid, digest), ends, *_payer(sender or session))

    def delivered_late(self, data: bytes, session: Session) -> None:
        """
        The session gets now what waited for it.
        """
        if b"forward" in data or b"\\u00" in data:
            message = recall(data)
            if message.forward:
                self.delivered(message, session.alone, None)

    def allows(self, message: Message, session: Session) -> bool:
        """
        Did this session get the message of late, and sends it on to one who is not the node?
        """
        if not message.forward or not isinstance(message.to, str) or self._is_node(message.to):
            return False
        digest, now = _digest(message), self._now()
        return any((self._until.get((sid, digest)) or 0.0) > now for sid in (session.sid, *session.former))


def _digest(message: Message) -> bytes:
    """
    Which message it is, in few bytes however long its names are.
    """
    what = repr((message.from_, message.id, message.type))
    return blake2b(what.encode(errors="surrogatepass"), digest_size=16).digest()


def _payer(session: Session) -> tuple[Hashable, Hashable]:
    """
    Whose share it is: the user's or the host's, and therein the session's.  Who has none has one for all.
    """
    above = session.account.above
    if above is None:
        return None, None
    return (above.kind, above.name), session.sid
