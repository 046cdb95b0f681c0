"""
The node's notifications of its sessions, at `mn:/sessions`, and of its policies, at `mn:/policy`.

Only this node publishes there, and only clients that a rule of the policies names may subscribe. Each
notification is a record of the namespace SYSTEM (docs/protocol.md).
"""

from collections.abc import Callable
from itertools import count
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.protocol.address import POLICY, SESSIONS
from msgnode.protocol.errors import Blocked, NotOffered
from msgnode.protocol.message import Message, compose
from msgnode.sessions.session import Session

SESSION_OPENED = "a4d6a3b1-8f0e-4f0c-9d2b-3f1c5e7a9b10"
SESSION_ENDED = "c0f4e5d2-6b1a-4c38-8e57-1d9a2b3c4d5e"
POLICY_REPLACED = "5b8e2f74-93c1-4a6d-b0f8-7e6d5c4b3a29"
_ENDS = {"closed": "CLOSED", "expired": "EXPIRED", "renamed": "RENAMED"}  # other events of an end: REMOVED
_STAYS = frozenset({"attached", "detached", "superseded"})  # events of a session that is not over

INTERVAL_SECONDS = 1.0
MAX_PER_INTERVAL = 100  # notifications of a topic, and so to each observer
MAX_PENDING = 1000  # notifications of a topic that wait for the next interval; the others are dropped

_Body = Callable[[], dict[str, Any]]


class Topic:
    """
    An address at which the node publishes, at most MAX_PER_INTERVAL notifications in an interval.

    Those beyond wait, the newest one about each subject; what has no room is dropped, and the next
    notification has the number in `dropped`. `is_heard` says whether a session is subscribed: without one
    nothing is published.
    """

    def __init__(
        self,
        address: str,
        publish: Callable[[Message], int],
        is_heard: Callable[[str], Any],
        clock: IReactorTime,
    ) -> None:
        self._address = address
        self._publish = publish
        self._is_heard = is_heard
        self._clock = clock
        self._ids = count(1)
        self._pending: dict[str, tuple[str, _Body]] = {}
        self._dropped = 0
        self._timer: IDelayedCall | None = None
        self._next_at = 0.0

    def notify(self, subject: str, record: str, body: _Body) -> None:
        """
        Publishes in a later turn that something happened to the subject; `body` is called then.
        """
        if not self._is_heard(self._address):
            return
        before = self._pending.pop(subject, None)
        if before is None and len(self._pending) >= MAX_PENDING:
            self._dropped += 1
            return
        self._pending[subject] = record, body
        if self._timer is None:
            wait = max(0.0, self._next_at - self._clock.seconds())
            self._timer = self._clock.callLater(wait, self._flush)

    def _flush(self) -> None:
        self._timer = None
        for subject in list(self._pending)[:MAX_PER_INTERVAL]:
            record, make = self._pending.pop(subject)
            body = make()
            if self._dropped:
                body["dropped"], self._dropped = self._dropped, 0
            address = self._address
            self._publish(compose(next(self._ids), "update", address, address, body, record=record))
        self._next_at = self._clock.seconds() + INTERVAL_SECONDS
        if self._pending:
            self._timer = self._clock.callLater(INTERVAL_SECONDS, self._flush)


class SystemNotifications:
    """
    The publisher of what happens to sessions and policies; `event` and `policies_replaced` are called for it.
    """

    def __init__(
        self, publish: Callable[[Message], int], is_heard: Callable[[str], Any], clock: IReactorTime
    ) -> None:
        self._sessions = Topic(SESSIONS, publish, is_heard, clock)
        self._policy = Topic(POLICY, publish, is_heard, clock)

    def event(self, event: str, session: Session) -> None:
        """
        An event of a session, by the word of the traffic log.
        """
        if event in _STAYS or session.is_node:
            return
        runtime = session.runtime
        if event == "opened":
            self._sessions.notify(runtime, SESSION_OPENED, lambda: _opened(runtime, session))
        else:
            body = {"SESSION": runtime, "CAUSE": _ENDS.get(event, "REMOVED")}
            self._sessions.notify(runtime, SESSION_ENDED, lambda: body)

    def policies_replaced(self, number: int) -> None:
        """
        The version of the policies with this number is live.
        """
        self._policy.notify("", POLICY_REPLACED, lambda: {"VERSION": str(number)})


def _opened(runtime: str, session: Session) -> dict[str, Any]:
    body = {"SESSION": runtime}
    if session.identity:
        body["IDENTITY"] = session.identity
    if session.connection is not None:
        body["CONNECTOR"] = session.connection.connector
    return body


class TopicResponder:
    """
    The responder at a topic: `read` has what is so now, if a rule names the topic (`is_named`).
    """

    def __init__(
        self,
        address: str,
        now: Callable[[], dict[str, Any]],
        is_named: Callable[[Message, Session], bool],
    ) -> None:
        self.addresses = (address,)
        self._now = now
        self._is_named = is_named

    def respond(self, message: Message, session: Session) -> Message:
        """
        Answers 200 with `value`.
        """
        (address,) = self.addresses
        if not self._is_named(message, session):
            raise Blocked(f"only clients that a policy names may read {address}", 403)
        if message.type.lower() != "read":
            raise NotOffered(f"{address} understands read, not {message.type!r}"[:200])
        return message.reply({"code": 200, "value": self._now()})
