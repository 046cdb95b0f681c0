"""
Receipts: what became of a message whose sender asked with `receipt: true`.

One for each address the message was sent to.  A client that acknowledges is
waited for (200); handing it to one that does not is all that can be said of it
(202).
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.logger import Logger

from msgnode.bus.routing_table import RoutingTable
from msgnode.protocol.address import SESSION, is_multicast
from msgnode.protocol.errors import NoRoute
from msgnode.protocol.message import Message, compose, recall
from msgnode.sessions.session import Session

log = Logger()

RECEIPT = "mn:/receipt"
_WANT_ROUTE = frozenset({"create", "read", "subscribe", "execute"})
# Who answers whatever is asked, an update too: registries, and identity by each of its names.
_ALWAYS_ANSWER = ("domain://registry.", "global://registry", "domain://idm.", "domain-idp://")
_IDENTITY = ("/idm", "/idm/")

TEXTS = {
    200: "the recipient has it",
    202: "delivered to a client that does not acknowledge",
    403: "refused",
    404: "nobody is bound to this address",
    408: "its time ran out while it waited",
    410: "the recipient's session ended while it waited",
    413: "too large",
    429: "too many messages; it was not taken",
    503: "dropped, because too much waited",
    507: "not kept: there is no room for what waits",
}

# One word each, which does not change.
REASONS = {404: "no-route", 408: "stale", 410: "ended", 413: "too-long", 429: "rate", 507: "no-room"}
OVERFLOW = "overflow"
NEVER_CAME = (408, 410, 503, 507)  # what waited, and will not be delivered


class Receipts:
    """
    Written by the node, and given to the session that asked, whatever else is bound to its `from`.

    `answers`: a request that nobody will get is answered, receipt or not.
    """

    def __init__(self, routes: RoutingTable, answers: Callable[[], bool] = lambda: False) -> None:
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
        Tell the sender, if it asked; never about a receipt.  `text` says why it was refused.
        """
        if not message.receipt or message.type.lower() == "receipt":
            return
        body: dict[str, Any] = {"code": code, "description": text or TEXTS.get(code, "refused")}
        reason = reason or REASONS.get(code, "")
        if reason:
            body["reason"] = reason
        body |= {"to": message.to, "recipients": recipients}
        receipt = compose(message.id, "receipt", RECEIPT, message.from_, body, message.transaction)
        if code == 202 and recipients > 1 and session.outbox is None:
            # For some of them it may wait: not before that is written down.
            session.journal.when_written(lambda: session.deliver(receipt))
        else:
            session.deliver(receipt)

    def give_late(self, data: bytes, code: int, asker: int) -> None:
        """
        The same for what was kept, as bytes; `asker` is the sid of the session that sent it.

        A receipt may push out another message, whose receipt may push out one
        more: they are given one after the other, not one within the other.
        """
        self._late.append((data, code, asker))
        if self._giving:
            return
        self._giving = True
        while self._late:
            try:
                self._give_late(*self._late.popleft())
            except Exception:
                log.failure("giving a receipt")
        self._giving = False

    def _give_late(self, data: bytes, code: int, asker: int) -> None:
        message = recall(data)
        reason = OVERFLOW if code == 503 else REASONS.get(code, "")
        session = self._routes.listener(message.from_, asker)
        if session is not None:
            self.give(message, code, session, reason=reason)
            if code in NEVER_CAME and self.answered(message):
                self._answer(message, TEXTS[code], reason, session)

    def answered(self, message: Message) -> bool:
        """
        Is its sender told by a response that nobody gets it?
        """
        return self._answers() and is_awaited(message)

    @staticmethod
    def _answer(message: Message, text: str, reason: str, session: Session) -> None:
        """
        404, whatever it was: 408 and 500 are what today's runtimes repeat ten times at once.
        """
        body = NoRoute(f"nobody got this at {message.to}: {text}").body()
        session.deliver(message.reply({**body, "reason": reason}))


def is_awaited(message: Message) -> bool:
    """
    Does somebody wait for the response of one who is bound to its address?
    """
    to = message.to
    return isinstance(to, str) and message.type.lower() in _WANT_ROUTE and not is_multicast(to)


def wants_answer(message: Message, by_validator: bool = False) -> bool:
    """
    Is its sender told that it was refused?

    Never of a response; nor, but by the validator, of what is published, unless a registry is asked, or
    identity.
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
    return to.startswith(_ALWAYS_ANSWER) or (to.startswith("domain://msg-node.") and to.endswith(_IDENTITY))
