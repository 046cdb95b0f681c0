"""
The options of a client: bounds in bytes, times in seconds.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from twisted.internet.ssl import PrivateCertificate, optionsForClientTLS

from msgnode.nats.wire.commands import ServerInfo
from msgnode.nats.wire.credentials import Credentials

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True)
class TLS:
    """
    TLS to the servers, whose certificates must have the name or address of the URL.

    `trust`: the authorities, for instance of `trustRootFromCertificates`; None: those of the system.
    `certificate` is the client's own. `name` is expected in place of that of the URL. `first`: TLS before
    INFO, which the server must have with `handshake_first`.
    """

    trust: Any = None
    certificate: PrivateCertificate | None = None
    name: str = ""
    first: bool = False

    def creator(self, host: str) -> Any:
        """
        An object that makes TLS connections to this host and checks its certificate (service_identity).
        """
        return optionsForClientTLS(self.name or host, self.trust, self.certificate)


@dataclass(frozen=True, kw_only=True)
class Options:
    """
    How a client behaves.

    `credentials` are used where the URL of a server has none. `tls`: TLS is required of every server; without
    it TLS is used where the URL begins with `tls:` or the server requires it. `echo`: messages of this
    connection come back to its own subscriptions. `shuffle`: servers are tried in random order.

    `max_pending_bytes` bounds what waits to be written, also while there is no connection.
    `max_payload_bytes` bounds messages that come, whatever INFO says. `max_requests` bounds the requests
    without an answer.

    `connect_seconds` bounds an attempt up to the answer to CONNECT, `close_seconds` the last writes. A ping
    is sent every `ping_seconds`; a connection on which nothing came meanwhile is ended when `max_pings` are
    unanswered.

    The pause before a server list is tried again is random below a limit, which doubles from
    `first_retry_seconds` to `last_retry_seconds`; after the loss of a good connection it is at most
    `retry_jitter_seconds`. A client leaves a server in lame duck mode after a random time up to
    `lame_duck_seconds`.
    """

    name: str = ""
    credentials: Credentials | None = None
    tls: TLS | None = None
    echo: bool = True
    shuffle: bool = True
    max_pending_bytes: int = 8 * MEBIBYTE
    max_payload_bytes: int = 64 * MEBIBYTE
    max_requests: int = 65_536
    connect_seconds: float = 5.0
    close_seconds: float = 5.0
    ping_seconds: float = 10.0
    max_pings: int = 2
    first_retry_seconds: float = 0.5
    last_retry_seconds: float = 30.0
    retry_jitter_seconds: float = 0.1
    lame_duck_seconds: float = 5.0


class Listener(Protocol):
    """
    The owner of a client, which hears of its connection. No method may block.
    """

    def connected(self, info: ServerInfo) -> None:
        """
        A server accepted the client, and all subscriptions were sent to it again.
        """

    def disconnected(self, reason: Exception) -> None:
        """
        The connection is gone; the client connects again, unless it was closed.
        """

    def lame_duck(self, info: ServerInfo) -> None:
        """
        The server will stop. The client moves to another one, if it knows one.
        """

    def full(self) -> None:
        """
        A publication was refused, because `max_pending_bytes` wait.
        """

    def has_room(self) -> None:
        """
        After `full`: half of the buffer is free again.
        """

    def failed(self, error: Exception) -> None:
        """
        The server sent an error, or an attempt to connect failed.
        """


class NullListener:
    """
    A Listener that ignores everything; a base class for one that needs few of the methods.
    """

    def connected(self, info: ServerInfo) -> None:
        pass

    def disconnected(self, reason: Exception) -> None:
        pass

    def lame_duck(self, info: ServerInfo) -> None:
        pass

    def full(self) -> None:
        pass

    def has_room(self) -> None:
        pass

    def failed(self, error: Exception) -> None:
        pass
