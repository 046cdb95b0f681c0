"""
A runtime in Python: it asks, publishes, listens and answers.  It stays
connected by itself; connection.py sees to that.
"""

import random
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable
from itertools import count
from secrets import token_urlsafe
from typing import Any, Self

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.client.connection import ClientConnection
from msgnode.client.endpoint import Endpoint, place
from msgnode.client.errors import Closed, Refused
from msgnode.client.login import Login, Source
from msgnode.client.message import WAIT, Message, decode, encode, send_answer
from msgnode.client.pending_requests import PendingRequests
from msgnode.client.registration import EXPIRES, Registration, entry, question, registry
from msgnode.client.subscriptions import Handler, Subscriptions

log = Logger()

PASSED_ON = 1000  # requests of others' whose refusal by the node is told to their senders


class Client:
    """
    A client of a messaging node.

    `url` says where the node is: ws://, wss://, tcp://, tls:// or unix://.

    `runtime` is the runtimeURL; without one the node makes one up.  With a
    `token` an earlier session goes on.  `identity` shows who the client is,
    where the node looks at that: an identity token, or a function that gives
    one, as str, Deferred or coroutine.  It is called for each connection, and
    when the node says that the last one is about to end.  `domain` is that of the node, and taken
    from `runtime` if it is not given.  `heard` gets what no handler is for;
    without it requests to such an address are answered 404.  `changed` is told
    of each connection and its loss.
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
        self.stopped: Exception | None = None  # why it has given up
        self._domain = domain
        self._changed = changed
        self._run = run
        self._ids = count(1)
        self._addresses = Subscriptions(self)
        self._answers, self._receipts = PendingRequests(reactor), PendingRequests(reactor)
        self._passed_on: OrderedDict[tuple[str, Any], dict[str, Any]] = OrderedDict()  # by `from` and `id`
        where = place(url, reactor, ca, certificate) if isinstance(url, str) else url
        login = Login(identity, run) if identity else None
        self._attachment = ClientConnection(reactor, where, self, runtime, token, login, resume, chance)

    # -- the session -----------------------------------------------------------

    @property
    def runtime(self) -> str:
        return self._attachment.runtime

    @property
    def token(self) -> str:
        """
        With it another client can go on with this session.  A secret.
        """
        return self._attachment.token

    @property
    def domain(self) -> str:
        return self._domain or self.runtime.partition("://")[2].partition("/")[0]

    @property
    def is_open(self) -> bool:
        """
        Is there a connection now?
        """
        return self._attachment.is_open

    @property
    def missed(self) -> int:
        """
        How many messages the node said are gone for good.
        """
        return self._attachment.tally.missed

    def connect(self, retry: bool = False) -> Deferred[None]:
        """
        Fires when the session is open; from then on the client stays connected by itself.

        Fails with CannotConnect if the first attempt does; with `retry` it goes on trying instead.
        """
        return self._attachment.start(retry)

    def flushed(self) -> Deferred[None]:
        """
        Fires when the node has everything that was sent until now.
        """
        return self._attachment.flushed()

    def close(self, end: bool = True) -> Deferred[None]:
        """
        Leave.  Unless `end`, the session waits at the node for someone with its token.
        """
        self._abandon(Closed(1000, "by this client"))
        return self._attachment.close(end)

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
        self._attachment.send(encode(message))

    def publish(
        self, to: str | list[str], body: Any = None, *, type: str = "update", from_: str = "", **header: Any
    ) -> None:
        """
        Send what nobody answers.  `header` may be `priority`, `ttl`, `bulk`, `log`, `transaction`.
        """
        self.send(self._compose(next(self._ids), type, to, body, from_, header))

    def deliver(
        self,
        to: str,
        body: Any = None,
        *,
        type: str = "update",
        from_: str = "",
        timeout: float = WAIT,
        **header: Any,
    ) -> Deferred[Message]:
        """
        Publish, and fire with the receipt: what became of it.
        """
        id_ = next(self._ids)
        self.send(self._compose(id_, type, to, body, from_, {**_traced(header), "receipt": True}))
        return self._receipts.expect(id_, to, timeout)

    def request(
        self,
        to: str,
        body: Any = None,
        *,
        type: str = "read",
        from_: str = "",
        timeout: float = WAIT,
        **header: Any,
    ) -> Deferred[Message]:
        """
        Ask, and fire with the answer.  Fails with Refused if its code is 300 or more, with TimedOut if
        none comes.  With `forward=True` in the header whoever gets it may have another answer; the
        `transaction` shows that it is the answer to this.
        """
        id_ = next(self._ids)
        header = _traced(header)
        self.send(self._compose(id_, type, to, body, from_, header))
        passed_on = header["transaction"] if header.get("forward") else None
        return self._answers.expect(id_, to, timeout, passed_on)

    def pass_on(self, request: dict[str, Any], to: str) -> None:
        """
        Send a request of another's on.  What the node says of that is for its sender.
        """
        self.send({**request, "to": to})
        self._passed_on[str(request.get("from")), request.get("id")] = request
        while len(self._passed_on) > PASSED_ON:
            self._passed_on.popitem(last=False)

    def _compose(
        self, id_: int, type_: str, to: Any, body: Any, from_: str, header: dict[str, Any]
    ) -> dict[str, Any]:
        message = {"id": id_, "type": type_, "from": from_ or self.runtime, "to": to, **header}
        if body is not None:
            message["body"] = body if isinstance(body, dict) else {"value": body}
        return message

    # -- addresses ---------------------------------------------------------------

    def on(self, address: str, handler: Handler) -> None:
        """
        Handle what comes for this address and those below it.  It must be bound here: by `subscribe`, by
        `allocate`, or because it is at or below the runtimeURL.
        """
        self._addresses.handle([address], handler)

    def subscribe(self, addresses: str | Iterable[str], handler: Handler | None = None) -> Deferred[None]:
        """
        Bind addresses to this session, whoever made them.
        """
        return self._addresses.subscribe(_listed(addresses), handler)

    def unsubscribe(self, addresses: str | Iterable[str]) -> Deferred[None]:
        return self._addresses.unsubscribe(_listed(addresses))

    def allocate(
        self, number: int = 1, *, scheme: str = "hyperty", handler: Handler | None = None
    ) -> Deferred[list[str]]:
        """
        New addresses, made by the node and bound to this session.
        """
        return self._addresses.allocate(number, scheme, handler)

    def free(self, addresses: str | Iterable[str]) -> Deferred[None]:
        """
        Give back what was allocated.
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
        expires: int = EXPIRES,
    ) -> Deferred[Registration]:
        """
        Tell the domain registry of a hyperty, and keep it alive there until its `end`.
        """
        kept = entry(url, self.runtime, user, descriptor, resources, schemes, expires)
        return Registration(self, url, kept).begin()

    def find(
        self, what: str, *, resources: Iterable[str] = (), schemes: Iterable[str] = (), timeout: float = WAIT
    ) -> Deferred[dict[str, Any]]:
        """
        Ask the domain registry for a hyperty, a data object or a user's hyperties; what it has.
        """
        body = question(what, resources, schemes)
        from_ = f"{self.runtime}/discovery/"
        asked = self.request(registry(self.domain), body, from_=from_, timeout=timeout)
        return asked.addCallback(lambda reply: reply.body.get("value") or {})

    # -- what comes ----------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """
        Called with whatever the node sends.
        """
        fields = decode(data)
        if fields is None:
            log.warn("{bytes} bytes came that are no message", bytes=len(data))
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
        if kind == "receipt" and self._receipts.heard(message):
            return
        handler = self._addresses.handler(message.to)
        if handler is not None:
            self._handle(message, handler)
        elif self.heard is not None:
            try:
                self.heard(message)
            except Exception:
                log.failure("hearing {type} for {to}", type=message.type, to=message.to)
        elif message.wants_answer:
            message.refuse(404, f"nobody answers at {message.to} in this runtime")

    def _handle(self, message: Message, handler: Handler) -> None:
        try:
            result = handler(message)
        except Exception:
            message.fail(Failure())
            return
        if isinstance(result, Coroutine):
            result = self._run(result)
        if isinstance(result, Deferred):
            result.addCallbacks(message.settle, message.fail)
        else:
            message.settle(result)

    def changed(self, is_open: bool) -> None:
        """
        Called when the connection is there, and when it is lost.
        """
        if self._changed is not None:
            self._changed(is_open)

    def renewal(self) -> list[bytes]:
        """
        Called when the node has forgotten the session: all that was bound is bound again.
        """
        renewal = self._addresses.renewal()
        if renewal is None:
            return []
        to, addresses = renewal
        id_ = next(self._ids)
        told = self._answers.expect(id_, to, WAIT)
        told.addErrback(lambda why: log.warn("subscribing again: {why}", why=why.getErrorMessage()))
        return [encode(self._compose(id_, "subscribe", to, {"resources": addresses}, "", {}))]

    # -- the end ---------------------------------------------------------------------

    def unsent(self, data: bytes) -> None:
        """
        The node does not take messages as long as this one.
        """
        log.warn("a message of {bytes} bytes is too long for the node", bytes=len(data))
        id_ = (decode(data) or {}).get("id")
        for pending in (self._answers, self._receipts):
            pending.fail(id_, Refused(413, f"{len(data)} bytes are too long for the node"))

    def ended(self, why: Exception) -> None:
        """
        Called when the client has given up.
        """
        self.stopped = why
        self._abandon(why)

    def _abandon(self, why: Exception) -> None:
        self._answers.abandon(why)
        self._receipts.abandon(why)


def _traced(header: dict[str, Any]) -> dict[str, Any]:
    """
    With a transaction, which stands in the answer and in the node's log, unless it has one.
    """
    return header if "transaction" in header else {**header, "transaction": token_urlsafe(16)}


def _listed(addresses: str | Iterable[str]) -> list[str]:
    return [addresses] if isinstance(addresses, str) else list(addresses)
