"""
Subscriptions: which callback gets the messages of which sid, and what a new connection is sent to have them
again.
"""

from collections.abc import Callable
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from msgnode.nats.wire import commands
from msgnode.nats.wire.message import Message

log = Logger()

Callback = Callable[[Message], object]


class Sender(Protocol):
    """
    The client, as subscriptions need it.
    """

    def send_control(self, command: bytes) -> None:
        """
        Send a command if there is a connection.
        """

    def flush(self, timeout: float = ...) -> Deferred[None]: ...


class Subscription:
    """
    A subscription of a client. `received` counts its messages.
    """

    def __init__(
        self, table: "Subscriptions", sid: bytes, subject: str, queue: str, callback: Callback
    ) -> None:
        self.subject = subject
        self.queue = queue
        self.callback = callback
        self.received = 0
        self.max_messages = 0  # after which it ends; 0: never
        self.sid = sid
        self.is_open = True
        self._table = table

    def unsubscribe(self, max_messages: int = 0) -> None:
        """
        End it now, or after so many messages in all, counted from its start.
        """
        self._table.unsubscribe(self, max_messages)

    def drain(self, timeout: float = 30.0) -> Deferred[None]:
        """
        End it, and fire when the messages that were under way have been delivered. RequestTimeout after so
        many seconds.
        """
        return self._table.drain(self, timeout)


class Subscriptions:
    """
    The table of subscriptions by sid.
    """

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._by_sid: dict[bytes, Subscription] = {}
        self._made = 0

    def __len__(self) -> int:
        return len(self._by_sid)

    def add(self, subject: str, queue: str, callback: Callback) -> Subscription:
        """
        Subscribe. SubjectError if the subject or the queue group cannot be written.
        """
        words = commands.encode_subject(subject), commands.encode_word(queue, "queue group") if queue else b""
        self._made += 1
        sid = b"%d" % self._made
        subscription = self._by_sid[sid] = Subscription(self, sid, subject, queue, callback)
        self._sender.send_control(commands.subscribe(*words, sid))
        return subscription

    def unsubscribe(self, subscription: Subscription, max_messages: int) -> None:
        if not subscription.is_open:
            return
        if max_messages > subscription.received:
            subscription.max_messages = max_messages
            self._sender.send_control(commands.unsubscribe(subscription.sid, max_messages))
            return
        self._remove(subscription)
        self._sender.send_control(commands.unsubscribe(subscription.sid))

    def drain(self, subscription: Subscription, timeout: float) -> Deferred[None]:
        self.start_drain(subscription)
        return self._sender.flush(timeout).addBoth(self._drained, subscription)

    def start_drain(self, subscription: Subscription) -> None:
        """
        Ask the server for no more. Messages that come are still delivered.
        """
        self._sender.send_control(commands.unsubscribe(subscription.sid))

    def start_drain_all(self) -> None:
        for subscription in list(self._by_sid.values()):
            self.start_drain(subscription)

    def _drained(self, result: None, subscription: Subscription) -> None:
        self._remove(subscription)
        return result

    def _remove(self, subscription: Subscription) -> None:
        subscription.is_open = False
        self._by_sid.pop(subscription.sid, None)

    def clear(self) -> None:
        for subscription in list(self._by_sid.values()):
            self._remove(subscription)

    def restoring(self) -> bytes:
        """
        The commands with which a new connection has all subscriptions again.
        """
        lines = []
        for sid, each in self._by_sid.items():
            subject, queue = each.subject.encode("utf-8", "surrogateescape"), each.queue.encode()
            lines.append(commands.subscribe(subject, queue, sid))
            if each.max_messages:
                lines.append(commands.unsubscribe(sid, each.max_messages - each.received))
        return b"".join(lines)

    def deliver(self, subject: bytes, sid: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        """
        Pass a message to its callback. Messages of a subscription that has ended are dropped.
        """
        subscription = self._by_sid.get(sid)
        if subscription is None:
            return
        subscription.received += 1
        if subscription.received == subscription.max_messages:
            self._remove(subscription)
        try:
            message = Message(subject.decode(), reply.decode(), payload, headers)
        except UnicodeDecodeError:
            names = str(subject, "utf-8", "surrogateescape"), str(reply, "utf-8", "surrogateescape")
            message = Message(*names, payload, headers)
        try:
            subscription.callback(message)
        except Exception:
            log.failure("the callback of a subscription to {subject} failed", subject=subscription.subject)
