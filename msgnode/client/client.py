"""
A client in Python: it sends requests and answers, publishes and subscribes.
connection.py keeps it connected.
"""

import random
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from itertools import count
from secrets import token_urlsafe
from typing import Any, Self

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from msgnode.client.connection import ClientConnection
from msgnode.client.delivery import Delivery
from msgnode.client.endpoint import Endpoint, make_endpoint
from msgnode.client.errors import ClientError, Closed, Refused, TimedOut
from msgnode.client.handlers import Handler, Handlers
from msgnode.client.login import Login, Source
from msgnode.client.message import WAIT_SECONDS, Message, decode, encode, send_answer
from msgnode.client.pending_requests import PendingRequests
from msgnode.client.records import RecordClass, is_record
from msgnode.client.registration import EXPIRES_SECONDS, Registration, entry, question, registry
from msgnode.client.subscriptions import Subscriptions
from msgnode.protocol.address import SESSION

log = Logger()

MAX_PASSED_ON = 1000  # forwarded requests whose refusal by the node is sent to their senders


class Client:
    """
    A client of a messaging node.

    `url` is the URL of the node: ws://, wss://, tcp://, tls://, unix://, http:// or https://.

    `runtime` is the runtimeURL; without one the node makes one up.  With the
    session token `token` an earlier session continues.  `identity` authenticates
    the client: an identity token, or a function that gives one, as str, Deferred
    or coroutine.  It is called for each connection, and when the node says that
    the last token is about to expire.  `domain` is that of the node, and taken
    from `runtime` if it is not given.  `heard` gets messages that have no handler;
    without it requests to such an address are answered 404.  `changed` is called
    with True for each connection, and with False for its loss.
    """

    def __init__(
        self,
        reactor: Any,
        url: str | Endpoint,
        runtime: str = "",
        *,
        token: str = "",
        identity: Source | None = None,
        domain: str = "",
        resume: bool = True,
        ca: str | None = None,
        certificate: str | None = None,
        heard: Handler | None = None,
        changed: Callable[[bool], Any] | None = None,
        run: Callable[[Coroutine[Any, Any, Any]], Deferred[Any]] = Deferred.fromCoroutine,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.reactor = reactor
        self.heard = heard
        self.stopped: Exception | None = None  # why the client has stopped for good
        self._domain = domain
        self._changed = changed
        self._ids = count(1)
        self._handlers = Handlers(run)
        self._addresses = Subscriptions(self, self._handlers)
        self._answers: PendingRequests[Message] = PendingRequests(reactor)
        self._receipts: PendingRequests[Delivery] = PendingRequests(reactor)
        self._passed_on: OrderedDict[tuple[str, Any], dict[str, Any]] = OrderedDict()  # by `from` and `id`
        where = make_endpoint(url, reactor, ca, certificate) if isinstance(url, str) else url
        login = Login(identity, run) if identity else None
        self._connection = ClientConnection(reactor, where, self, runtime, token, login, resume, chance)

    # -- the session -----------------------------------------------------------

    @property
    def runtime(self) -> str:
        return self._connection.runtime

    @property
    def token(self) -> str:
        """
        The session token, by which another client can continue this session.  A secret.
        """
        return self._connection.token

    @property
    def domain(self) -> str:
        return self._domain or self.runtime.partition("://")[2].partition("/")[0]

    @property
    def is_open(self) -> bool:
        """
        Is the session open on a connection?
        """
        return self._connection.is_open

    @property
    def missed(self) -> int:
        """
        The number of messages that are lost, as the node reports it.
        """
        return self._connection.resume_state.missed

    def connect(self, retry: bool = False) -> Deferred[None]:
        """
        Fires when the session is open; from then on the client stays connected by itself.

        Fails with CannotConnect if the first attempt does; with `retry` it keeps trying instead.
        """
        return self._connection.start(retry)

    def flushed(self) -> Deferred[None]:
        """
        Fires when the node has everything that was sent until now.
        """
        return self._connection.flushed()

    def close(self, end: bool = True) -> Deferred[None]:
        """
        Close the connection.  Unless `end`, the session stays at the node until a client continues it.
        """
        self._abandon(Closed(1000, "by this client"))
        return self._connection.close(end)

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    # -- sending ---------------------------------------------------------------

    def send(self, message: dict[str, Any]) -> None:
        """
        Send a message as it is, now or when there is a connection.
        """
        if self.stopped is not None:
            raise self.stopped
        self._connection.send(encode(message))

    def publish(
        self, to: str | list[str], body: Any = None, *, type: str = "update", from_: str = "", **header: Any
    ) -> None:
        """
        Send a message that needs no answer.  `header` may be `priority`, `ttl`, `bulk`, `log`, `transaction`.
        """
        self.send(self._compose(next(self._ids), type, to, body, from_, header))

    def deliver(
        self,
        to: str,
        body: Any = None,
        *,
        type: str = "update",
        from_: str = "",
        timeout: float = WAIT_SECONDS,
        waiting: Callable[[Delivery], Any] | None = None,
        **header: Any,
    ) -> Deferred[Delivery]:
        """
        Publish, and fire with the receipt, which says whether the message was delivered, and, for another
        domain, by which nodes it went (`path`).

        While no route leads to the other domain, `waiting` is called with a receipt whose `is_final` is
        False; if the final one does not come in time, the result is that one.  Fails with TimedOut if none
        comes.
        """
        id_ = next(self._ids)
        self.send(self._compose(id_, type, to, body, from_, {**_traced(header), "receipt": True}))
        return self._receipts.expect(id_, to, timeout, waiting=waiting)

    def request(
        self,
        to: str,
        body: Any = None,
        *,
        type: str = "read",
        from_: str = "",
        timeout: float = WAIT_SECONDS,
        **header: Any,
    ) -> Deferred[Message]:
        """
        Send a request, and fire with the answer.  Fails with Refused if its code is 300 or more, with
        TimedOut if none comes.  With `forward=True` in the header the recipient may let another client
        answer; the `transaction` shows that the answer belongs to this request.
        """
        id_ = next(self._ids)
        header = _traced(header)
        self.send(self._compose(id_, type, to, body, from_, header))
        passed_on = header["transaction"] if header.get("forward") else None
        asked = self._answers.expect(id_, to, timeout, passed_on)
        return asked.addCallback(Message.answers, body) if is_record(body) else asked

    def ping(self, timeout: float = WAIT_SECONDS) -> Deferred[Message]:
        """
        Fires when the node has answered.  Fails with TimedOut, also if there is no connection.
        """
        id_ = next(self._ids)
        answered = self._answers.expect(id_, SESSION, timeout)
        if not self._connection.ping(id_):
            self._answers.fail(id_, TimedOut("there is no connection to the node"))
        return answered

    def pass_on(self, request: dict[str, Any], to: str) -> None:
        """
        Forward a request of another client.  An answer of the node to that is sent to its sender.
        """
        self.send({**request, "to": to})
        self._passed_on[str(request.get("from")), request.get("id")] = request
        while len(self._passed_on) > MAX_PASSED_ON:
            self._passed_on.popitem(last=False)

    def _compose(
        self, id_: int, type_: str, to: Any, body: Any, from_: str, header: dict[str, Any]
    ) -> dict[str, Any]:
        message = {"id": id_, "type": type_, "from": from_ or self.runtime, "to": to, **header}
        if is_record(body):
            message |= {"record": body.ID, "body": body.to_body()}
        elif body is not None:
            message["body"] = body if isinstance(body, dict) else {"value": body}
        return message

    # -- addresses ---------------------------------------------------------------

    def handle(self, what: str | RecordClass, handler: Handler | None = None, *, serial: bool = False) -> Any:
        """
        Handle messages with a record, given its class, or messages to an address and those below it;
        `"*"` is asked last, for messages that no other handler handles.  Without a handler it is a decorator.

        The address must be bound to this session: by `subscribe`, by `allocate`, or because it is at or below
        the runtimeURL.  A coroutine that is `serial` gets one message after another, never two at once.
        """
        if handler is None:
            return partial(self._decorate, what, serial)
        return self._decorate(what, serial, handler)

    def _decorate(self, what: str | RecordClass, serial: bool, handler: Handler) -> Handler:
        self._handlers.add([what], handler, serial)
        return handler

    def subscribe(
        self, addresses: str | Iterable[str], handler: Handler | None = None, *, serial: bool = False
    ) -> Deferred[None]:
        """
        Bind addresses to this session.

        Fails with Refused. Of the code 504 the subscription stands: the domain of an address has not answered
        yet, and the node goes on asking it.
        """
        return self._addresses.subscribe(_listed(addresses), handler, serial)

    def unsubscribe(self, addresses: str | Iterable[str]) -> Deferred[None]:
        return self._addresses.unsubscribe(_listed(addresses))

    def allocate(
        self,
        number: int = 1,
        *,
        scheme: str = "hyperty",
        handler: Handler | None = None,
        serial: bool = False,
    ) -> Deferred[list[str]]:
        """
        Allocate new addresses, which the node makes and binds to this session.
        """
        return self._addresses.allocate(number, scheme, handler, serial)

    def free(self, addresses: str | Iterable[str]) -> Deferred[None]:
        """
        Give back allocated addresses.
        """
        return self._addresses.free(_listed(addresses))

    def register(
        self,
        url: str,
        *,
        user: str,
        descriptor: str = "",
        resources: Iterable[str] = (),
        schemes: Iterable[str] = (),
        expires: int = EXPIRES_SECONDS,
    ) -> Deferred[Registration]:
        """
        Register a hyperty at the domain registry, and renew the entry until its `end`.
        """
        kept = entry(url, self.runtime, user, descriptor, resources, schemes, expires)
        return Registration(self, url, kept).begin()

    def find(
        self,
        what: str,
        *,
        resources: Iterable[str] = (),
        schemes: Iterable[str] = (),
        timeout: float = WAIT_SECONDS,
    ) -> Deferred[dict[str, Any]]:
        """
        Look up a hyperty, a data object or a user's hyperties at the domain registry; fires with the entry.
        """
        body = question(what, resources, schemes)
        from_ = f"{self.runtime}/discovery/"
        asked = self.request(registry(self.domain), body, from_=from_, timeout=timeout)
        return asked.addCallback(lambda reply: reply.body.get("value") or {})

    # -- receiving -----------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """
        Called with each message from the node.
        """
        fields = decode(data)
        if fields is None:
            log.warn("{bytes} bytes came that are not a message", bytes=len(data))
            return
        message = Message(fields, self)
        kind = message.type.lower()
        if kind == "response":
            request = self._passed_on.pop((message.to, message.id), None)
            if request is not None:
                send_answer(self, request, message.body)
                return
            if self._answers.heard(message):
                return
        if kind == "receipt" and self._receipts.heard(Delivery(fields, self)):
            return
        try:
            if self._handlers.offer(message):
                return
        except ClientError as why:
            log.warn("{type} for {to} is not answered: {why}", type=message.type, to=message.to, why=why)
            return
        if self.heard is not None:
            try:
                self.heard(message)
            except Exception:
                log.failure(
                    "the handler of other messages failed on {type} for {to}",
                    type=message.type,
                    to=message.to,
                )
        elif message.wants_answer:
            message.refuse(404, f"nobody answers at {message.to} in this runtime")

    def changed(self, is_open: bool) -> None:
        """
        Called when the session is open, and when its connection is lost.
        """
        if self._changed is not None:
            self._changed(is_open)

    def renewal(self) -> list[bytes]:
        """
        Called when the node has lost the session: the messages that bind all addresses again.
        """
        renewal = self._addresses.renewal()
        if renewal is None:
            return []
        to, addresses = renewal
        id_ = next(self._ids)
        told = self._answers.expect(id_, to, WAIT_SECONDS)
        told.addErrback(
            lambda why: log.warn("addresses could not be bound again: {why}", why=why.getErrorMessage())
        )
        return [encode(self._compose(id_, "subscribe", to, {"resources": addresses}, "", {}))]

    # -- the end ---------------------------------------------------------------------

    def unsent(self, data: bytes) -> None:
        """
        Called when the node refuses a message because it is too long.
        """
        log.warn("a message of {bytes} bytes is too long for the node", bytes=len(data))
        id_ = (decode(data) or {}).get("id")
        refused = Refused(413, f"{len(data)} bytes are too long for the node")
        self._answers.fail(id_, refused)
        self._receipts.fail(id_, refused)

    def ended(self, why: Exception) -> None:
        """
        Called when the connection has stopped for good.
        """
        self.stopped = why
        self._abandon(why)

    def _abandon(self, why: Exception) -> None:
        self._answers.abandon(why)
        self._receipts.abandon(why)


def _traced(header: dict[str, Any]) -> dict[str, Any]:
    """
    The header with a transaction, which is repeated in the answer and in the node's log.
    """
    return header if "transaction" in header else {**header, "transaction": token_urlsafe(16)}


def _listed(addresses: str | Iterable[str]) -> list[str]:
    return [addresses] if isinstance(addresses, str) else list(addresses)
