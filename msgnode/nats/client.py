"""
The client: publications, subscriptions and requests.

    client = NatsClient(reactor, ["nats://127.0.0.1:4222"])
    await client.connect()
    client.subscribe("weather.*", lambda message: print(message.subject, message.payload))
    client.publish("weather.berlin", b"rain")
    await client.flush()
    await client.close()

NATS delivers at most once: what was written to a connection that is lost may be lost with it. What still
waits in the client is sent by the next connection, after all subscriptions.
"""

import random
import secrets
from collections.abc import Sequence
from typing import Any, Protocol

from twisted.internet.defer import Deferred, fail

from msgnode.nats.connection import Deliver
from msgnode.nats.dialer import EndpointFor, hostname_endpoint
from msgnode.nats.errors import BufferFull, Closed, NatsError, PayloadTooLarge, SubjectError
from msgnode.nats.link import Link
from msgnode.nats.options import Listener, NullListener, Options
from msgnode.nats.requests import Requests
from msgnode.nats.servers import Server, Servers
from msgnode.nats.subscriptions import Callback, Subscription, Subscriptions
from msgnode.nats.wire import commands
from msgnode.nats.wire.commands import ServerInfo, Subjects
from msgnode.nats.wire.message import Headers, Message, encode_headers


class Chance(Protocol):
    """
    A source of random numbers, such as `random.Random`.
    """

    def random(self) -> float: ...


class NatsClient:
    """
    A client of a NATS server or cluster.

    `urls` are those of `servers.parse_url`. `listener` hears of the connection. `inbox` is the subject below
    which answers to requests come; others must not guess it. `endpoint_for` gives the endpoint of a server.
    """

    def __init__(
        self,
        reactor: Any,
        urls: Sequence[str],
        options: Options | None = None,
        listener: Listener | None = None,
        *,
        chance: Chance | None = None,
        inbox: str = "",
        endpoint_for: EndpointFor | None = None,
    ) -> None:
        options = options or Options()
        number = (chance or random.SystemRandom()).random
        endpoint_for = endpoint_for or hostname_endpoint(reactor, options.connect_seconds)
        servers = Servers(urls, options, number, reactor.seconds)
        self._subjects = Subjects()
        self._link = Link(self, servers, endpoint_for, options, listener or NullListener(), number, reactor)
        self._subscriptions = Subscriptions(self)
        self._requests = Requests(reactor, inbox or f"_INBOX.{secrets.token_hex(11)}", options.max_requests)
        self._hears_answers = False
        self._draining: Deferred[None] | None = None

    @property
    def info(self) -> ServerInfo:
        """
        The INFO of the newest connection; before the first one, all fields have their defaults.
        """
        return self._link.info

    @property
    def server(self) -> Server | None:
        """
        The server of the connection; None if there is none.
        """
        return self._link.server

    @property
    def servers(self) -> list[Server]:
        """
        The servers that the client may connect to, those that INFO named among them.
        """
        return list(self._link.servers)

    @property
    def pending_bytes(self) -> int:
        """
        The bytes that wait to be written.
        """
        return self._link.outgoing.bytes

    def connect(self, retry: bool = False) -> Deferred[ServerInfo]:
        """
        Connect, and stay connected until `close`; fires when the first connection is up.

        Unless `retry`, it fails with NoServer, and the client is closed, when each server was tried once.
        """
        return self._link.start(retry)

    def close(self) -> Deferred[None]:
        """
        End the connection, after what was written has left; fires when it is over. What still waits is
        dropped.
        """
        self._subscriptions.clear()
        stopped = self._link.close()
        self._requests.fail_all(Closed("the client was closed"))
        return stopped

    def drain(self, timeout: float = 30.0) -> Deferred[None]:
        """
        End all subscriptions, deliver what was under way, send what waits, and close.

        It fails with RequestTimeout after so many seconds, or ConnectionLost; the client is closed then, too.
        """
        if self._draining is None:
            self._draining = Deferred()  # a callback may look at it before the coroutine has begun to wait
            Deferred.fromCoroutine(self._drain(timeout)).chainDeferred(self._draining)
        return self._draining

    async def _drain(self, timeout: float) -> None:
        try:
            self._subscriptions.start_drain_all()
            await self.flush(timeout)
            await self.flush(timeout)  # callbacks may have published answers meanwhile
        finally:
            await self.close()

    def pause_reading(self) -> None:
        """
        Read no more, after the messages of the newest read, until `resume_reading`, also from the next
        connection.

        Messages wait at the server, which closes the connection when it holds too many (a slow consumer).
        """
        self._link.pause_reading()

    def resume_reading(self) -> None:
        self._link.resume_reading()

    def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: Headers | None = None
    ) -> None:
        """
        Publish a message. It leaves at the end of this turn of the event loop, or when there is a connection.

        SubjectError, PayloadTooLarge or Closed if it cannot be sent; BufferFull if it has no room now.
        """
        link = self._link
        if link.is_closed:
            raise Closed("the client is closed")
        to = self._subjects.to_publish(subject)
        back = self._subjects.to_publish(reply) if reply else b""
        if headers is None:
            size, command = len(payload), commands.publish(to, back, payload)
        else:
            block = self._header_block(headers)
            size = len(block) + len(payload)
            command = commands.publish_with_headers(to, back, block, payload)
        if size > link.info.max_payload:
            raise PayloadTooLarge(f"expected at most {link.info.max_payload} bytes, found {size}")
        if not link.outgoing.put(command):
            outgoing = link.outgoing
            raise BufferFull(f"{outgoing.bytes} bytes wait to be sent, of at most {outgoing.max_bytes}")

    def _header_block(self, headers: Headers) -> bytes:
        if self._link.server is not None and not self._link.info.headers:
            raise SubjectError("expected no headers: the server does not support them")
        return encode_headers(headers)

    def subscribe(self, subject: str, callback: Callback, queue: str = "") -> Subscription:
        """
        Have `callback` called with each Message of a subject, which may have wildcards.

        Of the subscriptions of one `queue` group, one gets each message. A callback that raises is logged.
        """
        self._check_open()
        return self._subscriptions.add(subject, queue, callback)

    def _check_open(self) -> None:
        if self._link.is_closed or self._draining is not None:
            raise Closed("the client is closed, or is being drained")

    def request(
        self, subject: str, payload: bytes = b"", timeout: float = 5.0, headers: Headers | None = None
    ) -> Deferred[Message]:
        """
        Publish a message, and fire with the first answer. Cancelling forgets it.

        It fails with RequestTimeout after so many seconds, NoResponders, or an error of `publish`.
        """

        def publish(reply: str) -> None:
            self.publish(subject, payload, reply, headers)

        try:
            self._check_open()
            if not self._hears_answers:
                self._subscriptions.add(self._requests.subject, "", self._requests.received)
                self._hears_answers = True
            return self._requests.send(publish, subject, timeout)
        except NatsError as why:
            return fail(why)

    def flush(self, timeout: float = 10.0) -> Deferred[None]:
        """
        Fires when the server has processed all that was sent before, and its messages until then were
        delivered.

        It fails with ConnectionLost, for then messages may be lost, with RequestTimeout after so many
        seconds, or with BufferFull if a thousand flushes wait.
        """
        if self._link.is_closed:
            return fail(Closed("the client is closed"))
        return self._link.ping(timeout)

    # -- for its parts -------------------------------------------------------

    @property
    def deliver(self) -> Deliver:
        return self._subscriptions.deliver

    def restoring(self) -> bytes:
        return self._subscriptions.restoring()

    def send_control(self, command: bytes) -> None:
        self._link.send_control(command)
