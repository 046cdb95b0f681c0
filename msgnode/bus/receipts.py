"""
Delivery receipts: the outcome of a message, sent to a sender that asked with `receipt: true`.

There is one receipt for each address that the message was sent to. If the recipient acknowledges, the receipt
is sent when it has acknowledged (200); otherwise when the message was sent on its connection (202).
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.logger import Logger

from msgnode.bus.routing_table import RoutingTable
from msgnode.protocol.address import SESSION, is_multicast
from msgnode.protocol.errors import NoRoute
from msgnode.protocol.message import Message, compose, recall
from msgnode.sessions.queue import ANY_NODE
from msgnode.sessions.session import Session

log = Logger()

RECEIPT = "mn:/receipt"
_WANT_ROUTE = frozenset({"create", "read", "subscribe", "execute"})
# Responders that answer every type of request, `update` too, by each of their names.
_ALWAYS_ANSWER = (
    *("domain://registry.", "global://registry", "domain://idm.", "domain-idp://"),
    "domain://qos-broker.",
)
_ALIASES = ("/idm", "/idm/", "/qos-broker", "/qos-broker/", "/qos-broker/reservation")

TEXTS = {
    200: "the recipient has acknowledged the message",
    202: "delivered to a client that does not acknowledge",
    403: "refused",
    404: "no session is bound to this address",
    408: "its time to live ended while it was queued",
    410: "the recipient's session ended while it was queued",
    413: "too large",
    429: "too many messages; it was not accepted",
    503: "evicted, because the queue or the memory was full",
    507: "not queued: there is no room",
}

# Stable words, which do not change.
REASONS = {404: "no-route", 408: "stale", 410: "ended", 413: "too-long", 429: "rate", 507: "no-room"}
OVERFLOW = "overflow"
NEVER_DELIVERED = (408, 410, 503, 507)  # queued, and never delivered


class Receipts:
    """
    The sender of receipts, to the session that asked, whatever else is bound to its `from`.

    `answers`: is a request that reaches no session answered, even without a receipt?
    """

    def __init__(self, routes: RoutingTable, answers: Callable[[], bool] = lambda: False) -> None:
        # Sends a receipt or an answer to the other node of the domain to which its session has moved.
        self.send_elsewhere: Callable[[Message], object] = lambda message: None
        # False for an answer in place of another one that was given, perhaps by another node.
        self.is_expected: Callable[[Message, Session], bool] = lambda answer, session: True
        self._answers = answers
        self._routes = routes
        self._late: deque[tuple[bytes, int, int]] = deque()
        self._giving = False

    def give(
        self,
        message: Message,
        code: int,
        session: Session,
        recipients: int = 1,
        reason: str = "",
        text: str = "",
    ) -> None:
        """
        Sends a receipt, if the sender asked for one; `text` says why the message was refused.
        """
        if not message.receipt or message.type.lower() == "receipt":
            return
        receipt = _receipt(message, code, recipients, reason, text)
        if code == 202 and recipients > 1 and session.mailbox.outbox is None:
            # It may be queued for some of them: the receipt waits until that is in the journal.
            session.mailbox.journal.when_written(lambda: session.deliver(receipt))
        else:
            session.deliver(receipt)

    def give_late(self, data: bytes, code: int, asker: int) -> None:
        """
        Sends the receipt for a queued message, given as bytes; `asker` is the sid of its sender's session.

        A receipt may evict another message from a queue, whose receipt may evict one more: they are sent one
        after the other, without recursion.
        """
        self._late.append((data, code, asker))
        if self._giving:
            return
        self._giving = True
        while self._late:
            try:
                self._give_late(*self._late.popleft())
            except Exception:
                log.failure("a receipt could not be sent")
        self._giving = False

    def _give_late(self, data: bytes, code: int, asker: int) -> None:
        message = recall(data)
        reason = OVERFLOW if code == 503 else REASONS.get(code, "")
        if asker == ANY_NODE:
            self._answer_anywhere(message, code, reason)
            return
        session = self._routes.listener(message.from_, asker)
        if session is None:
            if message.receipt and message.type.lower() != "receipt":
                self.send_elsewhere(_receipt(message, code, 1, reason))
            if self._answers() and code in NEVER_DELIVERED and is_awaited(message):
                self.send_elsewhere(_undelivered(message, code, reason))
            return
        self.give(message, code, session, reason=reason)
        if code in NEVER_DELIVERED and self.answered(message, session):
            self._answer(message, code, reason, session)

    def _answer_anywhere(self, message: Message, code: int, reason: str) -> None:
        """
        Answers a request that came here with the session that it is for, wherever its sender's session is.
        """
        if code not in NEVER_DELIVERED or not is_awaited(message):
            return
        found = self._routes.resolve(message.from_)
        if found:
            self._answer(message, code, reason, found[0])
        else:
            self.send_elsewhere(_undelivered(message, code, reason))

    def answered(self, message: Message, session: Session, elsewhere: bool = False) -> bool:
        """
        Does the sender get a response if no session gets the message? A sender of another domain always does,
        and so does one who sends to another domain (`elsewhere`).
        """
        return (self._answers() or session.is_node or elsewhere) and is_awaited(message)

    def _answer(self, message: Message, code: int, reason: str, session: Session) -> None:
        """
        The code is 404: after 408 and 500 the deployed runtimes repeat the request ten times at once.

        A sender of another domain gets 507 if there is no room.
        """
        instead = 507 if session.is_node and code in (503, 507) else 404
        answer = _undelivered(message, code, reason, instead)
        if self.is_expected(answer, session):
            session.deliver(answer)


def _receipt(message: Message, code: int, recipients: int, reason: str = "", text: str = "") -> Message:
    body: dict[str, Any] = {"code": code, "description": text or TEXTS.get(code, "refused")}
    reason = reason or REASONS.get(code, "")
    if reason:
        body["reason"] = reason
    body |= {"to": message.to, "recipients": recipients}
    return compose(message.id, "receipt", RECEIPT, message.from_, body, message.transaction)


def _undelivered(message: Message, code: int, reason: str, instead: int = 404) -> Message:
    """
    The answer in the place of one to a request that is never delivered, with the code of its receipt.
    """
    body = NoRoute(f"this was not delivered to {message.to}: {TEXTS[code]}").body()
    return message.reply({**body, "code": instead, "reason": reason})


def is_awaited(message: Message) -> bool:
    """
    Is it a request to a client, whose sender waits for the response?
    """
    to = message.to
    return isinstance(to, str) and message.type.lower() in _WANT_ROUTE and not is_multicast(to)


def wants_answer(message: Message, by_validator: bool = False) -> bool:
    """
    Does the sender get an error if the message is refused?

    A response gets none; a publication gets none unless the validator refuses it, or it goes to a registry,
    to identity or to the QoS broker.
    """
    kind = message.type.lower()
    if kind == "response":
        return False
    if by_validator:
        return True
    if message.to == SESSION and kind == "update":
        return "token" in message.fields()
    if not isinstance(message.to, str):
        return False
    return (kind != "update" and not is_multicast(message.to)) or _always_answers(message.to)


def _always_answers(to: str) -> bool:
    return to.startswith(_ALWAYS_ANSWER) or (to.startswith("domain://msg-node.") and to.endswith(_ALIASES))
