"""
The client's side of a session: connected, or about to be again.

It opens the session, comes back to it when the connection is lost, and sees
to it that what is sent arrives once and in order, as long as the session
lives.  docs/protocol.md has the rules: "Acknowledged resume", "Closing and close codes".
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

from msgnode.client.backoff import Backoff
from msgnode.client.endpoint import Endpoint
from msgnode.client.errors import CannotConnect, Closed, Full
from msgnode.client.keepalive import QUIET, Keepalive
from msgnode.client.login import Login
from msgnode.client.message import decode, encode
from msgnode.client.resume_state import ResumeState
from msgnode.client.transports import Link
from msgnode.protocol.address import SESSION
from msgnode.protocol.close_codes import OPEN_TIMEOUT, Closing

log = Logger()

ACK_AFTER = 64  # messages
ACK_WITHIN = 0.5  # seconds
PATIENCE = 10.0  # seconds for the node to answer `open`, or to close
RENEWAL = "renewal"  # the id of what shows a newer identity token
MAX_KEPT = 64 * 1024 * 1024  # bytes that are not acknowledged
TOO_LONG, TOKEN = 1009, 4401
# Trying again is useless, whatever a node forgot to say about it.
_FINAL = frozenset({1003, 4401, 4403, 4409})


class ConnectionOwner(Protocol):
    """
    The client whose connection it is.
    """

    def received(self, data: bytes) -> None:
        """
        A message, as it came.
        """

    def renewal(self) -> list[bytes]:
        """
        What a new session must be told before anything else.
        """

    def unsent(self, data: bytes) -> None:
        """
        The node will not take this message.
        """

    def changed(self, is_open: bool) -> None:
        """
        There is a connection now, or none.
        """

    def ended(self, why: Exception) -> None:
        """
        The client has stopped for good.
        """


class ClientConnection:
    """
    The client's session: connected, or about to be again.

    `tally` has what is counted, `token` what the node gave out.
    """

    def __init__(
        self,
        reactor: Any,
        place: Endpoint,
        holder: ConnectionOwner,
        runtime: str,
        token: str,
        login: Login | None,
        resume: bool,
        chance: Callable[[], float],
    ) -> None:
        self.runtime = runtime
        self.token = token
        self.tally = ResumeState()
        self.opened = 0  # times
        self._reactor = reactor
        self._place = place
        self._login = login
        self._resume = resume
        self._holder = holder
        self._backoff = Backoff(chance)
        self._service = ClientService(place.endpoint, place.factory(self), self._wait, reactor)
        self._link: Link | None = None  # once the session is open on it
        self._opening: Link | None = None
        self._asking = False  # who we are, before the session can be opened
        self._since = self._arrived = 0.0
        self._too_long = False
        self._complaint = ""  # why we cut the connection ourselves
        self._first: Deferred[None] | None = None
        self._closing: Deferred[None] | None = None
        self._flushing: list[tuple[int, Deferred[None]]] = []
        self._timer: IDelayedCall | None = None
        self._ack: IDelayedCall | None = None
        self._pulse: Keepalive | None = None

    @property
    def is_open(self) -> bool:
        return self._link is not None

    # -- what the client does ------------------------------------------------

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
        Send, now or when there is a connection.
        """
        tally, link = self.tally, self._link
        if link is None or tally.counting:
            if tally.size > MAX_KEPT:
                raise Full(f"{len(tally.kept)} messages wait for the node; wait for flushed()")
            tally.keep(data)
        if link is not None:
            link.send(data)

    def flushed(self) -> Deferred[None]:
        """
        Fires when the node has all that was sent until now; where it does not acknowledge, when it left here.
        """
        done: Deferred[None] = Deferred()
        self._flushing.append((self.tally.total, done))
        self._look_flushed()
        return done

    def close(self, end: bool) -> Deferred[None]:
        """
        Leave; with `end`, the session ends too, with its addresses.
        """
        if self._closing is not None:
            return self._closing
        done: Deferred[None] = Deferred()
        self._closing = done
        link = self._link
        if link is None:
            self._stop()
            return done
        # Else the senders of what came last are told that it never did.
        self._acknowledge()
        if end:
            link.send(encode({"id": 0, "type": "close", "from": self._from, "to": SESSION}))
        else:
            link.leave()
        self._timer = self._reactor.callLater(PATIENCE, link.abort)
        return done

    # -- what a link tells ---------------------------------------------------

    def arrived(self, link: Link) -> None:
        """
        There is a connection: open the session on it.
        """
        self._opening, self._asking, self._arrived = link, False, self._reactor.seconds()
        late = f"'open' was not answered within {PATIENCE:g} s; is this the node's port for {link.speaks}?"
        self._timer = self._reactor.callLater(PATIENCE, self._drop, link, late)
        if self._login is None:
            self._open(link, {})
            return
        self._asking = True
        asked = self._login.token()
        asked.addCallbacks(lambda token: self._open(link, {"token": token}), self._not_known, (), {}, (link,))
        asked.addErrback(lambda why: log.failure("opening the session", why))

    def _open(self, link: Link, body: dict[str, Any]) -> None:
        if self._opening is not link:
            return  # it was lost meanwhile
        self._asking = False
        kind = "re-open" if self.token else "open"
        request: dict[str, Any] = {"id": 0, "type": kind, "to": SESSION}
        if self._from:
            request["from"] = self._from
        if self._resume:
            body["resume"] = self.tally.wish
        if body:
            request["body"] = body
        link.send(encode(request))

    def _not_known(self, why: Failure, link: Link) -> None:
        """
        There is no identity token to open with.
        """
        if self._first is None:
            log.warn("{why}; trying again later", why=why.getErrorMessage())
        if self._opening is link:
            self._asking = False
            self._drop(link, why.getErrorMessage())

    def heard(self, data: bytes) -> None:
        """
        Something came.
        """
        # Spelt as every node we know does; the rest of the message is decoded once, by the client.
        if (self._link is None or b'"mn:/session"' in data) and self._from_node(data):
            return
        tally = self.tally
        tally.received += 1
        self._holder.received(data)
        if not tally.counting:
            return
        if tally.received - tally.told >= ACK_AFTER:
            self._acknowledge()
        elif self._ack is None:
            self._ack = self._reactor.callLater(ACK_WITHIN, self._late)

    def lost(self, link: Link, why: Closing | None, text: str) -> None:
        """
        The connection is gone.
        """
        was_open, self._link, self._opening = self._link is not None, None, None
        # The node gave up, or we did, before anybody said who this is.
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
            self._holder.changed(False)
        self._too_long = why is not None and why.code == TOO_LONG
        final = why is not None and why.code in _FINAL and why.retry_after is None
        # What was shown has ended; the next may do, if not the first that is given.
        stale = final and why is not None and why.code == TOKEN and self._renews and self.opened > 0
        final = final and not stale
        if why is not None and why.retry_after is not None:
            self._backoff.ask(why.retry_after)
        if final:
            assert why is not None
            self._give_up(Closed(why.code, why.word))
        elif self._first is not None and not self._patient:
            reason = text if why is None or nobody else f"{why.code} {why.word}"
            self._give_up(CannotConnect(f"{self._place.url}: {reason}"))
        elif was_open:
            log.info("lost the node at {url}: {text}", url=self._place.url, text=why.reason if why else text)
        elif nobody and self._first is None:
            log.warn("{why}; trying again later", why=text)
        elif stale:
            log.warn("the node does not take this identity token; trying again later with another")

    # -- opening -------------------------------------------------------------

    @property
    def _from(self) -> str:
        return f"{self.runtime}/{self.token}" if self.token else self.runtime

    def _from_node(self, data: bytes) -> bool:
        """
        Deal with what mn:/session says; False for what only mentions it.
        """
        message = decode(data)
        if message is None and self._opening is not None:
            self._drop(self._opening, "what answers there is no messaging node, or another of its ports")
        if message is None or message.get("from") != SESSION:
            return message is None
        body = message.get("body") or {}
        if message.get("type") == "ack":
            self.tally.forget(body["received"])
            self._look_flushed()
        elif message.get("type") == "response" and self._opening is not None:
            self._answered(message, body)
        elif message.get("type") == "response" and message.get("id") == RENEWAL and body.get("code") != 200:
            log.warn("the node refused the new identity token: {why}", why=body.get("desc"))
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
        self._catch_up(link, body.get("resume"), self._holder.renewal() if fresh else [])
        self._link = link
        if not link.pings:
            silent = f"the node said nothing for {2 * QUIET:g} s"
            self._pulse = Keepalive(self._reactor, link, self.runtime, partial(self._drop, link, silent))
        first, self._first = self._first, None
        if first is not None:
            first.callback(None)
        self._holder.changed(True)
        self._look_flushed()

    def _catch_up(self, link: Link, told: dict[str, Any] | None, first: list[bytes]) -> None:
        """
        Send again what the node has not got.
        """
        tally = self.tally
        tally.agree(told, first)
        self._flushing = [(number + len(first), waiting) for number, waiting in self._flushing]
        if self._too_long and tally.kept:
            self._holder.unsent(tally.drop_first())
        for data in list(tally.kept) if tally.counting else tally.released():
            link.send(data)

    # -- who it is -------------------------------------------------------------

    @property
    def _renews(self) -> bool:
        return self._login is not None and self._login.renews

    def _renew(self, left: Any) -> None:
        """
        What was shown of who this is ends in so many seconds; show something newer.
        """
        login, link = self._login, self._link
        if login is None or link is None:
            return
        if not login.renews:
            log.warn("the identity token ends in {left} s, and nothing gives another", left=left)
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
        if self.tally.received > self.tally.told:
            self._acknowledge()

    def _acknowledge(self) -> None:
        tally = self.tally
        if self._link is None or not tally.counting:
            return
        tally.told = tally.received
        body = {"received": tally.received}
        self._link.send(encode({"id": 0, "type": "ack", "from": self.runtime, "to": SESSION, "body": body}))

    def _look_flushed(self) -> None:
        gone = self.tally.gone
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
        The first attempt to connect did.
        """
        if self._first is not None:
            # The service cannot be stopped from inside.
            text = "connection refused" if why.check(ConnectionRefusedError) else why.getErrorMessage()
            error = CannotConnect(f"{self._place.url}: {text}")
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
        self._holder.ended(why)
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
        if self._pulse is not None:
            self._pulse.stop()
            self._pulse = None
