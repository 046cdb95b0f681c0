"""
Forwarding: who got a message whose sender allows it may pass it on, with `from` as it is.

A header with `"forward": true` allows it, so that the third can answer the
first directly.  Else a `from` that is another's is forged (ownership.py).
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence

from msgnode.protocol.message import Message, recall
from msgnode.sessions.session import Session

ALLOWED_FOR = 60.0  # seconds from the delivery
MOST = 10_000  # deliveries that are remembered, in all
MOST_FOR_ONE = 100  # and for one recipient, so that nobody can push out those of others
MOST_RECIPIENTS = 16  # of one message, in the order in which they bound its address

Delivered = tuple[int, str, int | str]  # the sid of the recipient, `from` and `id`


class Forwards:
    """
    What was delivered with `forward`, to whom, and until when it may be passed on.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._until: OrderedDict[Delivered, float] = OrderedDict()  # oldest first
        self._number: Counter[int] = Counter()  # by recipient

    def __len__(self) -> int:
        return len(self._until)

    def delivered(self, message: Message, recipients: Sequence[Session]) -> None:
        """
        These get the message, and may pass it on.
        """
        now = self._now()
        while self._until and (len(self._until) >= MOST or next(iter(self._until.values())) <= now):
            self._forget(next(iter(self._until)))
        for session in recipients[:MOST_RECIPIENTS]:
            key = session.sid, message.from_, message.id
            if key in self._until:
                self._forget(key)
            elif self._number[session.sid] >= MOST_FOR_ONE:
                continue
            self._until[key] = now + ALLOWED_FOR
            self._number[session.sid] += 1

    def delivered_late(self, data: bytes, session: Session) -> None:
        """
        The session gets now what waited for it.
        """
        if b"forward" in data or b"\\u00" in data:
            message = recall(data)
            if message.forward:
                self.delivered(message, session.alone)

    def allows(self, message: Message, session: Session) -> bool:
        """
        Did this session get a message of that `from` and `id` of late, to pass on?
        """
        return self._until.get((session.sid, message.from_, message.id), 0.0) > self._now()

    def _forget(self, key: Delivered) -> None:
        del self._until[key]
        self._number[key[0]] -= 1
        if not self._number[key[0]]:
            del self._number[key[0]]
