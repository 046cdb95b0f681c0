"""
The client's side of a session: connected, or about to connect again.

It opens the session, re-opens it when the connection is lost, and delivers
each message once and in order, as long as the session exists.  docs/protocol.md
has the rules: "Acknowledged resume", "Closing and close codes".
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from twisted.application.internet import ClientService
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.client.endpoint import Backoff, Endpoint
from msgnode.client.errors import CannotConnect, Closed, Full
from msgnode.client.login import Login
from msgnode.client.message import decode, encode
from msgnode.client.resume_state import ResumeState
from msgnode.client.transports import QUIET_SECONDS, Keepalive, Link
from msgnode.protocol.address import SESSION
from msgnode.protocol.close_codes import OPEN_TIMEOUT, Closing

log = Logger()

ACK_AFTER = 64  # messages
ACK_SECONDS = 0.5
OPEN_SECONDS = 10.0  # for the node to answer `open`, or to close
RENEWAL = "renewal"  # the id of the message with a newer identity token
MAX_KEPT_BYTES = 64 * 1024 * 1024  # bytes of unacknowledged messages
TOO_LONG, TOKEN = 1009, 4401
# Close codes after which it is useless to try again, unless the node says when.
_FINAL = frozenset({1003, 4401, 4403, 4409, 4410})


class ConnectionOwner(Protocol):
    """
    The client that owns the connection.
    """

    def received(self, data: bytes) -> None:
        """
        Called with each message, as it arrived.
        """

    def renewal(self) -> list[bytes]:
        """
        Returns the messages that a new session needs before all others.
        """

    def unsent(self, data: bytes) -> None:
        """
        Called when the node refuses this message.
        """

    def changed(self, is_open: bool) -> None:
        """
        Called when the session is open, and when its connection is lost.
        """

    def ended(self, why: Exception) -> None:
        """
        Called when the client has stopped for good.
        """


class ClientConnection:
    """
    The client's side of a session: connected, or about to connect again.

    `resume_state` has the counters and the unacknowledged messages, `token` is the session token.
    """

    def __init__(
        self,
        reactor: Any,
        endpoint: Endpoint,
        owner: ConnectionOwner,
        runtime: str,
        token: str,
        login: Login | None,
        resume: bool,
        chance: Callable[[], float],
    ) -> None:
        self.runtime = runtime
        self.token = token
        self.resume_state = ResumeState()
        self.opened = 0  # number of times
        self._reactor = reactor
        self._endpoint = endpoint
        self._login = login
        self._resume = resume
        self._owner = owner
        self._backoff = Backoff(chance)
        self._service = ClientService(endpoint.endpoint, endpoint.factory(self), self._wait, reactor)
        self._link: Link | None = None  # the link of the open session
        self._opening: Link | None = None
        self._asking = False  # waits for an identity token, before the session can be opened
        self._since = self._arrived = 0.0
        self._too_long = False
        self._complaint = ""  # why we closed the connection ourselves
        self._first: Deferred[None] | None = None
        self._closing: Deferred[None] | None = None
        self._flushing: list[tuple[int, Deferred[None]]] = []
        self._timer: IDelayedCall | None = None
        self._ack: IDelayedCall | None = None
        self._keepalive: Keepalive | None = None

    @property
    def is_open(self) -> bool:
        return self._link is not None

    # -- called by the client ------------------------------------------------

    def start(self, retry: bool) -> Deferred[None]:
        """
        Connect; fires when the session is open.  Unless `retry`, fails when the first attempt does.
        """
        first: Deferred[None] = Deferred()
        self._first = first
        self._patient = retry
        if not retry:
            self._service.whenConnected(failAfterFailures=1).addErrback(self._failed)
        self._service.startService()
        return first

    def send(self, data: bytes) -> None:
        """
        Send the data, now or when there is a connection.
        """
        state, link = self.resume_state, self._link
        if link is None or state.counting:
            if state.size > MAX_KEPT_BYTES:
                raise Full(f"{len(state.kept)} messages wait for the node; wait for flushed()")
            state.keep(data)
        if link is not None:
            link.send(data)

    def ping(self, id_: int) -> bool:
        """
        Ask the node to answer at once, with a response of this id; False if there is no connection.
        """
        if self._link is None:
            return False
        self._link.send(encode({"id": id_, "type": "ping", "from": self.runtime, "to": SESSION}))
        return True

    def flushed(self) -> Deferred[None]:
        """
        Fires when the node has acknowledged all messages; if it does not acknowledge, when they are written.
        """
        done: Deferred[None] = Deferred()
        self._flushing.append((self.resume_state.total, done))
        self._look_flushed()
        return done

    def close(self, end: bool) -> Deferred[None]:
        """
        Close the connection; with `end`, the session and its addresses, too.
        """
        if self._closing is not None:
            return self._closing
        done: Deferred[None] = Deferred()
        self._closing = done
        link = self._link
        if link is None:
            self._stop()
            return done
        # Without this the senders of the last messages get receipts that they were not delivered.
        self._acknowledge()
        if end:
            link.send(encode({"id": 0, "type": "close", "from": self._from, "to": SESSION}))
        else:
            link.leave()
        self._timer = self._reactor.callLater(OPEN_SECONDS, link.abort)
        return done

    # -- called by a link ----------------------------------------------------

    def arrived(self, link: Link) -> None:
        """
        Open the session on a new connection.
        """
        self._opening, self._asking, self._arrived = link, False, self._reactor.seconds()
        late = (
            f"'open' was not answered within {OPEN_SECONDS:g} s; is this the node's port for {link.speaks}?"
        )
        self._timer = self._reactor.callLater(OPEN_SECONDS, self._drop, link, late)
        if self._login is None:
            self._open(link, {})
            return
        self._asking = True
        asked = self._login.token()
        asked.addCallbacks(lambda token: self._open(link, {"token": token}), self._not_known, (), {}, (link,))
        asked.addErrback(lambda why: log.failure("the session could not be opened", why))

    def _open(self, link: Link, body: dict[str, Any]) -> None:
        if self._opening is not link:
            return  # the link was lost meanwhile
        self._asking = False
        kind = "re-open" if self.token else "open"
        request: dict[str, Any] = {"id": 0, "type": kind, "to": SESSION}
        if self._from:
            request["from"] = self._from
        if self._resume:
            body["resume"] = self.resume_state.request
        if body:
            request["body"] = body
        link.send(encode(request))

    def _not_known(self, why: Failure, link: Link) -> None:
        """
        Drop the connection: there is no identity token to open the session with.
        """
        if self._first is None:
            log.warn("{why}; trying again later", why=why.getErrorMessage())
        if self._opening is link:
            self._asking = False
            self._drop(link, why.getErrorMessage())

    def heard(self, data: bytes) -> None:
        """
        Handle a message that arrived.
        """
        # All known nodes write it like this; the rest of the message is decoded once, by the client.
        if (self._link is None or b'"mn:/session"' in data) and self._from_node(data):
            return
        state = self.resume_state
        state.received += 1
        self._owner.received(data)
        if not state.counting:
            return
        if state.received - state.acked >= ACK_AFTER:
            self._acknowledge()
        elif self._ack is None:
            self._ack = self._reactor.callLater(ACK_SECONDS, self._late)

    def lost(self, link: Link, why: Closing | None, text: str) -> None:
        """
        Handle the loss of the connection.
        """
        was_open, self._link, self._opening = self._link is not None, None, None
        # The connection was closed before there was an identity token.
        nobody = self._asking and (bool(self._complaint) if why is None else why.code == OPEN_TIMEOUT.code)
        text, self._complaint = self._complaint or text, ""
        self._cancel()
        if nobody:
            text = f"no identity token: none came within {self._reactor.seconds() - self._arrived:.0f} s"
        if was_open:
            self._backoff.ended(self._reactor.seconds() - self._since)
        if self._closing is not None:
            self._stop()
            return
        if was_open:
            self._owner.changed(False)
        self._too_long = why is not None and why.code == TOO_LONG
        final = why is not None and why.code in _FINAL and why.retry_after is None
        # The token has expired; the next may be valid, unless this was the first.
        stale = final and why is not None and why.code == TOKEN and self._renews and self.opened > 0
        final = final and not stale
        if why is not None and why.retry_after is not None:
            self._backoff.ask(why.retry_after)
        if final:
            assert why is not None
            self._give_up(Closed(why.code, why.word))
        elif self._first is not None and not self._patient:
            reason = text if why is None or nobody else f"{why.code} {why.word}"
            self._give_up(CannotConnect(f"{self._endpoint.url}: {reason}"))
        elif was_open:
            log.info(
                "lost the node at {url}: {text}", url=self._endpoint.url, text=why.reason if why else text
            )
        elif nobody and self._first is None:
            log.warn("{why}; trying again later", why=text)
        elif stale:
            log.warn("the node refused the identity token; trying again later with another")

    # -- opening -------------------------------------------------------------

    @property
    def _from(self) -> str:
        return f"{self.runtime}/{self.token}" if self.token else self.runtime

    def _from_node(self, data: bytes) -> bool:
        """
        Handle a message from mn:/session; False if it only mentions that address.
        """
        message = decode(data)
        if message is None and self._opening is not None:
            self._drop(self._opening, "the peer is not a messaging node, or this is another of its ports")
        if message is None or message.get("from") != SESSION:
            return message is None
        body = message.get("body") or {}
        if message.get("type") == "ack":
            self.resume_state.forget(body["received"])
            self._look_flushed()
        elif message.get("type") == "response" and self._opening is not None:
            self._answered(message, body)
        elif message.get("type") == "response" and message.get("id") == RENEWAL and body.get("code") != 200:
            log.warn("the node refused the new identity token: {why}", why=body.get("desc"))
        elif message.get("type") == "response" and isinstance(message.get("id"), int) and message["id"] > 0:
            self._owner.received(data)  # the answer to a ping
        elif message.get("type") == "update" and body.get("attribute") == "token":
            self._renew(body.get("value"))
        return True

    def _answered(self, message: dict[str, Any], body: dict[str, Any]) -> None:
        link, self._opening = self._opening, None
        assert link is not None
        if body.get("code") != 200:
            self._drop(link, f"'open' was answered {body.get('code')} {body.get('desc', '')}".rstrip())
            return
        self._cancel()
        self.runtime = self.runtime or str(message["to"])
        fresh = self.opened > 0 and "runtimeToken" in body
        self.token = body.get("runtimeToken", self.token)
        self.opened += 1
        self._since = self._reactor.seconds()
        self._catch_up(link, body.get("resume"), self._owner.renewal() if fresh else [])
        self._link = link
        if not link.pings:
            silent = f"the node said nothing for {2 * QUIET_SECONDS:g} s"
            self._keepalive = Keepalive(self._reactor, link, self.runtime, partial(self._drop, link, silent))
        first, self._first = self._first, None
        if first is not None:
            first.callback(None)
        self._owner.changed(True)
        self._look_flushed()

    def _catch_up(self, link: Link, told: dict[str, Any] | None, first: list[bytes]) -> None:
        """
        Send unacknowledged messages again.
        """
        state = self.resume_state
        state.negotiate(told, first)
        self._flushing = [(number + len(first), waiting) for number, waiting in self._flushing]
        if self._too_long and state.kept:
            self._owner.unsent(state.drop_first())
        for data in list(state.kept) if state.counting else state.released():
            link.send(data)

    # -- identity --------------------------------------------------------------

    @property
    def _renews(self) -> bool:
        return self._login is not None and self._login.renews

    def _renew(self, left: Any) -> None:
        """
        The identity token expires in so many seconds: send a newer one.
        """
        login, link = self._login, self._link
        if login is None or link is None:
            return
        if not login.renews:
            log.warn("the identity token expires in {left} s, and there is no other", left=left)
            return
        asked = login.token()
        asked.addCallback(self._show, link)
        asked.addErrback(lambda why: log.warn("{why}", why=why.getErrorMessage()))

    def _show(self, token: str, link: Link) -> None:
        if self._link is link:
            body = {"token": token}
            update = {"id": RENEWAL, "type": "update", "from": self.runtime, "to": SESSION, "body": body}
            link.send(encode(update))

    # -- the rest --------------------------------------------------------------

    def _late(self) -> None:
        self._ack = None
        if self.resume_state.received > self.resume_state.acked:
            self._acknowledge()

    def _acknowledge(self) -> None:
        state = self.resume_state
        if self._link is None or not state.counting:
            return
        state.acked = state.received
        body = {"received": state.received}
        self._link.send(encode({"id": 0, "type": "ack", "from": self.runtime, "to": SESSION, "body": body}))

    def _look_flushed(self) -> None:
        gone = self.resume_state.gone
        done = [waiting for number, waiting in self._flushing if number <= gone]
        self._flushing = [(number, waiting) for number, waiting in self._flushing if number > gone]
        for waiting in done:
            waiting.callback(None)

    def _drop(self, link: Link, complaint: str) -> None:
        self._complaint = complaint
        self._opening = None
        link.abort()

    def _failed(self, why: Failure) -> None:
        """
        The first attempt to connect failed.
        """
        if self._first is not None:
            # The service cannot be stopped from its own callback.
            text = "connection refused" if why.check(ConnectionRefusedError) else why.getErrorMessage()
            error = CannotConnect(f"{self._endpoint.url}: {text}")
            self._timer = self._reactor.callLater(0, self._give_up, error)

    def _wait(self, attempt: int) -> float:
        return self._backoff.next()

    def _give_up(self, why: Exception) -> None:
        """
        Stop for good.
        """
        first, self._first = self._first, None
        if self._closing is None:
            self._closing = Deferred()
        self._stop()
        self._owner.ended(why)
        if first is not None:
            first.errback(why)

    def _stop(self) -> None:
        self._cancel()
        closing = self._closing
        assert closing is not None
        self._service.stopService().addBoth(lambda _: None if closing.called else closing.callback(None))

    def _cancel(self) -> None:
        for call in (self._timer, self._ack):
            if call is not None and call.active():
                call.cancel()
        self._timer = self._ack = None
        if self._keepalive is not None:
            self._keepalive.stop()
            self._keepalive = None
