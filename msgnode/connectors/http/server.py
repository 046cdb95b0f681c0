"""
The web port: one Site, with bounds on time and memory for each client.

A client that sends byte by byte gains no time, and no body is accepted that is
larger than the connectors may use.
"""

import json
import math
from collections.abc import Callable
from io import BytesIO
from typing import Any, Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import connectionDone
from twisted.protocols.basic import LineReceiver
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel
from twisted.web.resource import IResource
from twisted.web.server import Request, Site

from msgnode.config.schema import Config
from msgnode.connectors.http.requests import headers
from msgnode.protocol.close_codes import OVER_CAPACITY
from msgnode.protocol.errors import Rejected, error_body
from msgnode.protocol.peer_address import peer_name
from msgnode.sessions.limits.connection_limits import ConnectionLimits
from msgnode.sessions.limits.partial_input import FREE_BYTES, PartialInput
from msgnode.transport.allowed_hosts import Hosts, Misdirected
from msgnode.transport.sockets import RejectedConnection, limit_read_size

MAX_LENGTH_DIGITS = 32  # characters of a Content-Length
IDLE_SECONDS = 60  # between two requests, and for one body


class BoundedRequest(Request):
    """
    A request whose body stays in memory, and within the node's limit.
    """

    channel: "DeadlineChannel"
    content: BytesIO

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        if not self.channel.deaf:
            # Twisted would parse a body that claims to be a form, as every body of curl does.
            self.requestHeaders.removeHeader(b"content-type")
            super().requestReceived(command, path, version)

    def __repr__(self) -> str:
        # Twisted's names the URI, and logs it; a client may have put its token there.
        return f"<{type(self).__name__} {self.method!r}>"

    def gotLength(self, length: int | None) -> None:
        self.content = BytesIO()
        if length is not None and length > self.channel.site.longest:
            self._refuse()

    def handleContentChunk(self, data: bytes) -> None:
        size = self.content.tell() + len(data)
        if size > self.channel.site.longest:
            self._refuse()
        elif size > FREE_BYTES and not self._has_room(size):
            self.content = BytesIO()
            text = "the node has no room for this body now"
            self.channel.refuse(503, b"Service Unavailable", text, OVER_CAPACITY.retry_after)
        else:
            super().handleContentChunk(data)

    def _has_room(self, size: int) -> bool:
        partial_input = self.channel.site.partial_input
        if partial_input is None:
            return True
        forwarded = ",".join(headers(self, b"X-Forwarded-For"))
        peer = peer_name(self.channel.transport.getPeer(), forwarded, self.channel.site.trusted_proxies)
        return partial_input.grow_untimed(self, size, peer)

    def finish(self) -> None:
        self._forget()
        super().finish()

    def connectionLost(self, reason: Failure) -> None:
        self._forget()
        super().connectionLost(reason)

    def _forget(self) -> None:
        partial_input = self.channel.site.partial_input
        if partial_input is not None:
            partial_input.done(self)

    def _refuse(self) -> None:
        self.channel.refuse(
            413, b"Content Too Large", f"a body has at most {self.channel.site.longest} bytes"
        )


class PendingRequest(Protocol):
    """
    A request that a fast path has taken, and not yet answered.
    """

    def lost(self) -> None: ...


class FastPath(Protocol):
    """
    A fast path that may take a request before Twisted's web server looks at it.
    """

    def try_handle(self, data: bytes, channel: "DeadlineChannel") -> bool: ...


class DeadlineChannel(HTTPChannel):
    """
    A channel with one deadline for a whole request, also if its bytes come one by one.
    """

    deaf = False  # a request was refused; the rest of it is thrown away
    host: str | None = None  # the host that the connection is counted for, while it is
    pending: PendingRequest | None = None
    site: "BoundedSite"
    transport: Any

    _behind = b""  # the bytes that came after a request that is held
    _unread = False  # more unread answers wait than the socket buffers
    _successor: Any = None  # the protocol that has the socket from now on

    def connectionMade(self) -> None:
        # Before it is scheduled: Twisted looks through all its timers to move one forward.
        self.timeOut = math.ceil(self.site.first)
        super().connectionMade()
        limit_read_size(self.transport)
        connection_limits = self.site.connection_limits
        if connection_limits is not None:
            self.host = connection_limits.host(self.transport.getPeer())
            connection_limits.enter(self.host)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        super().connectionLost(reason)
        self.leave()
        pending, self.pending, self._behind = self.pending, None, b""
        self._forget_behind()
        if pending is not None:
            pending.lost()

    def hold(self, pending: PendingRequest) -> None:
        """
        A fast path has taken a request, and will answer it later.
        """
        self.pending = pending
        self.setTimeout(None)

    def answered(self) -> None:
        """
        The held request is answered; continue with the bytes after it.
        """
        self.pending = None
        self.setTimeout(IDLE_SECONDS)
        if self._behind:
            self.callLater(0, self._go_on)

    def _go_on(self) -> None:
        behind, self._behind = self._behind, b""
        self._forget_behind()
        if behind:
            self.dataReceived(behind)

    def _has_room(self) -> bool:
        partial_input = self.site.partial_input
        if partial_input is None:
            return True
        return partial_input.grow_untimed(self, len(self._behind), peer_name(self.transport.getPeer()))

    def _forget_behind(self) -> None:
        if self.site.partial_input is not None:
            self.site.partial_input.done(self)

    def leave(self) -> None:
        """
        The socket is closed, or is a client's WebSocket from now on: do not count it any more.
        """
        if self.host is not None and self.site.connection_limits is not None:
            self.site.connection_limits.leave(self.host)
            self.host = None

    def give_way(self, successor: Any) -> None:
        """
        Give the socket to another protocol, with the bytes that came behind the request in the same read.
        """
        self._successor = successor

    def pauseProducing(self) -> None:
        self._unread = True
        super().pauseProducing()

    def resumeProducing(self) -> None:
        self._unread = False
        super().resumeProducing()

    def requestDone(self, request: Request) -> None:
        super().requestDone(request)
        # HTTPChannel stops reading only if unread answers fill the socket between two requests.
        if self._unread and not self.requests:
            self.transport.pauseProducing()

    def rawDataReceived(self, data: bytes) -> None:
        if self._successor is not None:
            self._successor.dataReceived(data)
        else:
            super().rawDataReceived(data)

    def dataReceived(self, data: bytes) -> None:
        if self.deaf:
            return
        if self.pending is not None or self._behind:
            self._behind += data
            if len(self._behind) > self.site.longest or not self._has_room():
                self.transport.abortConnection()
            return
        fast_path = self.site.fast_path
        between = self.persistent and not self.requests and not self._buffer and self.line_mode
        if fast_path is not None and between and fast_path.try_handle(data, self):
            if self.pending is None:
                self.setTimeout(IDLE_SECONDS)
            return
        # HTTPChannel's own would start the timeout again.
        LineReceiver.dataReceived(self, data)

    def refuse(self, status: int, phrase: bytes, text: str, retry_after: float | None = None) -> None:
        """
        Refuse a request that is not complete yet, without reading the rest.
        """
        if self.deaf:
            return
        body = json.dumps(error_body(status, text)).encode() + b"\n"
        later = b"" if retry_after is None else b"Retry-After: %d\r\n" % retry_after
        origins = b"Access-Control-Allow-Origin: *\r\n" if self.site.is_public else b""
        self.transport.write(
            b"HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Type: application/json\r\n" % (status, phrase)
            + later
            + origins
            + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        self.loseConnection()
        # The rest is read and thrown away until the client has read the answer.
        self.deaf = True

    def lineReceived(self, line: bytes) -> None:
        # After a refusal Twisted would parse the lines after it, without a request that they belong to.
        if not self.deaf:
            super().lineReceived(line)

    def headerReceived(self, line: bytes) -> bool:
        name, _, value = line.partition(b":")
        if len(value) > MAX_LENGTH_DIGITS and name.strip().lower() == b"content-length":
            # Python refuses to parse so many digits, and Twisted would log that as a failure.
            self.refuse(400, b"Bad Request", f"Content-Length has at most {MAX_LENGTH_DIGITS} characters")
            return False
        return bool(super().headerReceived(line))

    def lineLengthExceeded(self, line: bytes) -> None:
        most = f"a line of a request has at most {self.MAX_LENGTH} bytes"
        self.refuse(431, b"Request Header Fields Too Large", most)

    def allHeadersReceived(self) -> None:
        super().allHeadersReceived()
        self.setTimeout(IDLE_SECONDS)

    def timeoutConnection(self) -> None:
        self.loseConnection()

    def loseConnection(self) -> None:
        super().loseConnection()
        self.deaf = True
        # A client that does not read would keep the connection and the unsent bytes for ever.
        if self._abortingCall is None:
            self._abortingCall = self.callLater(IDLE_SECONDS, self._abort)

    def _abort(self) -> None:
        self._abortingCall = None
        self.transport.abortConnection()


class BoundedSite(Site):
    """
    A Site with these limits, and without a log line for each request.

    `hosts` makes the list of host names that it answers for; None: it answers for any. `misdirected` returns
    the resource that a request for another host gets; None: it gets the one that it names.
    """

    noisy = False
    requestFactory: Any = BoundedRequest
    protocol: Any = DeadlineChannel

    def __init__(
        self,
        root: IResource,
        config: Config,
        clock: IReactorTime,
        connection_limits: ConnectionLimits | None = None,
        hosts: Callable[[Config], Hosts] | None = None,
        partial_input: PartialInput | None = None,
        misdirected: Callable[[Request, Rejected], IResource | None] = lambda request, why: Misdirected(why),
    ) -> None:
        super().__init__(root, timeout=IDLE_SECONDS, reactor=clock)
        self.displayTracebacks = False
        self.fast_path: FastPath | None = None
        self.connection_limits = connection_limits  # None: no limit
        self.partial_input = partial_input  # None: incomplete bodies are not counted
        self._config = config
        self._make_hosts = hosts
        self._misdirected = misdirected
        self.apply()

    @property
    def is_public(self) -> bool:
        """
        Whether pages of any origin may read its refusals: it answers for any host name.
        """
        return self._make_hosts is None

    @property
    def trusted_proxies(self) -> list[str]:
        return self._config.trusted_proxies

    def apply(self) -> None:
        """
        Use the reloaded configuration.
        """
        # Bytes of a body: an array may be twice a message.
        self.longest = 2 * self._config.limits.message_bytes
        self.first = self._config.session.open_deadline_seconds  # seconds for the first headers

        self._hosts = None if self._make_hosts is None else self._make_hosts(self._config)

    def getResourceFor(self, request: Request) -> IResource:
        refusal = None if self._hosts is None else self._hosts.refusal(request)
        other = None if refusal is None else self._misdirected(request, refusal)
        return super().getResourceFor(request) if other is None else other

    def buildProtocol(self, addr: Any) -> Any:
        if self.connection_limits is not None and not self.connection_limits.may_accept(addr):
            return RejectedConnection()
        return super().buildProtocol(addr)

    def log(self, request: Any) -> None:
        pass
