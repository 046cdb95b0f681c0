"""
A connection to one server, from INFO to its end.

    INFO -> [TLS] -> CONNECT and PING -> PONG -> up

With `TLS.first` the TLS handshake comes before INFO. Credentials are sent only after the server's certificate
has been checked, and nothing may come between INFO and the TLS handshake: it could be from someone in the
middle.
"""

import enum
from collections.abc import Callable
from typing import Any
from typing import Protocol as Interface

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IDelayedCall, IHandshakeListener, IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from msgnode.nats.errors import (
    AuthorizationError,
    ConnectionLost,
    NatsError,
    ProtocolError,
    RequestTimeout,
    ServerError,
    TLSError,
)
from msgnode.nats.options import TLS, Options
from msgnode.nats.servers import Server
from msgnode.nats.wire import commands
from msgnode.nats.wire.commands import ServerInfo
from msgnode.nats.wire.parser import Parser

LANGUAGE, VERSION = "python-twisted", "1.0.0"
ADDED_BYTES = 64 * 1024  # of headers that a server may add to a message of the largest size
_HARMLESS = ("permissions violation", "invalid subject", "invalid publish subject")
_UNAUTHORIZED = ("authoriz", "authentic", "revoked")

Deliver = Callable[[bytes, bytes, bytes, bytes, bytes], None]


class Phase(enum.Enum):
    """
    How far a connection is.
    """

    INFO = "waits for INFO"
    TLS = "waits for the TLS handshake"
    CONNECT = "waits for the answer to CONNECT"
    UP = "is up"
    OVER = "is over"


class Owner(Interface):
    """
    The owner of a connection: the client.
    """

    def established(self, connection: "Connection") -> None: ...
    def data_came(self) -> None:
        """
        The commands of a read follow.
        """

    def data_handled(self) -> None:
        """
        All commands of a read have been passed on. It is not called if one is a protocol error.
        """

    def info_changed(self, connection: "Connection", info: ServerInfo) -> None: ...
    def pinged(self) -> None: ...
    def ponged(self) -> None: ...
    def server_failed(self, error: ServerError) -> None: ...
    def ended(self, connection: "Connection", reason: Exception) -> None: ...


@implementer(IHandshakeListener)
class Connection(Protocol):
    """
    The protocol of a connection. `deliver` gets the messages once it is up.
    """

    def __init__(
        self, owner: Owner, deliver: Deliver, server: Server, options: Options, clock: IReactorTime
    ) -> None:
        self.server = server
        self.info = ServerInfo()
        self.phase = Phase.INFO
        self.was_up = False
        self.message_received: Deliver = self._unexpected
        self._owner = owner
        self._deliver = deliver
        self._options = options
        self._clock = clock
        self._parser = Parser(self)
        self._reason: Exception | None = None
        self._is_secure = False
        self._timer: IDelayedCall | None = None

    # -- from the transport --------------------------------------------------

    def connectionMade(self) -> None:
        self._timer = self._clock.callLater(self._options.connect_seconds, self._too_late)
        set_no_delay = getattr(self.transport, "setTcpNoDelay", None)
        if set_no_delay is not None:
            set_no_delay(True)
        if self._options.tls is not None and self._options.tls.first:
            self._start_tls()

    def dataReceived(self, data: bytes) -> None:
        self._owner.data_came()
        try:
            if self.phase is Phase.INFO:
                data = self._feed_first_line(data)
            if data:
                self._parser.feed(data)
        except NatsError as why:
            self.fail(why)
            return
        self._owner.data_handled()

    def _feed_first_line(self, data: bytes) -> bytes:
        """
        Feed the parser up to the end of a line; the rest of the data.
        """
        line, end, rest = data.partition(b"\n")
        self._parser.feed(line + end)
        if self.phase is Phase.TLS:
            if rest:
                raise ProtocolError(
                    f"expected nothing between INFO and the TLS handshake, found {rest[:40]!r}"
                )
            self._start_tls()
        return rest

    def handshakeCompleted(self) -> None:
        """
        The TLS handshake is over, and the certificate is as expected, unless the connection is being ended.
        """
        self._is_secure = True
        if self.phase is Phase.TLS:
            self._send_connect()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.phase is Phase.OVER:
            return
        self.phase = Phase.OVER
        self._stop_timer()
        self._owner.ended(self, self._reason or _lost(reason, self.server))

    # -- for the client ------------------------------------------------------

    def fail(self, why: Exception) -> None:
        """
        End the connection at once, because of this.
        """
        self._reason = self._reason or why
        self._abort_transport()

    def close(self) -> None:
        """
        End the connection after what was written has left, or after `close_seconds`.
        """
        self._stop_timer()
        if self.phase is not Phase.OVER and self.transport is not None:
            self._timer = self._clock.callLater(self._options.close_seconds, self._abort)
            self.transport.loseConnection()

    # -- the start of a connection -------------------------------------------

    def _start_tls(self) -> None:
        tls: Any = self._options.tls or TLS()
        transport: Any = self.transport
        transport.startTLS(tls.creator(self.server.name))

    def _began(self, info: ServerInfo) -> None:
        """
        The first INFO came: go on with TLS, or with CONNECT.
        """
        wanted = self._options.tls is not None or self.server.tls
        if self._is_secure:
            self._send_connect()
        elif wanted and not (info.tls_required or info.tls_available):
            raise TLSError(f"expected TLS, which {self.server} does not offer")
        elif wanted or info.tls_required:
            self.phase = Phase.TLS
        else:
            self._send_connect()

    def _send_connect(self) -> None:
        options = {
            "verbose": False,
            "pedantic": False,
            "tls_required": self._is_secure,
            "name": self._options.name,
            "lang": LANGUAGE,
            "version": VERSION,
            "protocol": 1,
            "echo": self._options.echo,
            "headers": self.info.headers,
            "no_responders": self.info.headers,
        }
        credentials = self.server.credentials or self._options.credentials
        if credentials is not None:
            try:
                options |= credentials.fields(self.info.nonce)
            except NatsError as why:
                self.fail(why)
                return
        self.phase = Phase.CONNECT
        assert self.transport is not None
        self.transport.write(commands.connect(options) + commands.PING)

    def _too_late(self) -> None:
        self._timer = None
        seconds = self._options.connect_seconds
        self.fail(RequestTimeout(f"{self.server} {self.phase.value}, for more than {seconds:g} s"))

    def _abort(self) -> None:
        self._timer = None
        self._abort_transport()

    def _abort_transport(self) -> None:
        transport: Any = self.transport
        if transport is not None:
            transport.abortConnection()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- from the parser -----------------------------------------------------

    def _unexpected(self, subject: bytes, sid: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        raise ProtocolError("expected no message before the answer to CONNECT")

    def info_received(self, json: bytes) -> None:
        self.info = info = commands.decode_info(json)
        largest = min(max(info.max_payload, 0), self._options.max_payload_bytes)
        self._parser.max_payload = largest + ADDED_BYTES
        if self.phase is Phase.INFO:
            self._began(info)
        elif self.phase is Phase.UP:
            self._owner.info_changed(self, info)

    def ping_received(self) -> None:
        if self.phase is Phase.UP:
            self._owner.pinged()
        elif self.transport is not None:
            self.transport.write(commands.PONG)

    def pong_received(self) -> None:
        if self.phase is Phase.UP:
            self._owner.ponged()
        elif self.phase is Phase.CONNECT:
            self.phase, self.was_up = Phase.UP, True
            self._stop_timer()
            self.message_received = self._deliver
            self._owner.established(self)
        else:
            raise ProtocolError("expected INFO first, found PONG")

    def ok_received(self) -> None:
        """
        Answers of the verbose mode, which is not used.
        """

    def error_received(self, text: str) -> None:
        lower = text.lower()
        is_authorization = any(word in lower for word in _UNAUTHORIZED)
        error = AuthorizationError(text) if is_authorization else ServerError(text)
        if lower.startswith(_HARMLESS):
            self._owner.server_failed(error)
        else:
            self._reason = self._reason or error  # the server closes the connection now


def _lost(reason: Failure, server: Server) -> Exception:
    if reason.check(ConnectionDone):
        return ConnectionLost(f"{server} closed the connection")
    text = str(reason.value) or type(reason.value).__name__
    return ConnectionLost(f"the connection to {server} was lost: {text}"[:300])
