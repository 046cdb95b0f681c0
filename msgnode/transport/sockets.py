"""
Sockets of client connections: keepalive, read size, bearer tokens, the name in a client certificate, and the
figures that the kernel has.
"""

import os
import socket
import struct
from base64 import urlsafe_b64decode
from collections.abc import Iterable
from contextlib import suppress
from fcntl import ioctl
from termios import TIOCOUTQ
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory, Protocol
from twisted.protocols.policies import ProtocolWrapper

# Bytes read from one connection before the others have their turn.
READ_CHUNK_BYTES = 16 * 1024

# TCP keepalive: a vanished peer is detected after two minutes, one minute of silence and four probes.
# Unacknowledged output has the same timeout (in milliseconds).
KEEPALIVE = (
    ("TCP_KEEPIDLE", 60),
    ("TCP_KEEPINTVL", 15),
    ("TCP_KEEPCNT", 4),
    ("TCP_USER_TIMEOUT", 120_000),
)

MAX_WRAPPED = 3  # transports around a socket: TLS is one
RTT_AT = 68  # of tcpi_rtt in struct tcp_info, in microseconds
LAST_SENT_AT = 44  # of tcpi_last_data_sent, in milliseconds ago


def limit_read_size(transport: Any) -> None:
    """
    Limit the bytes that one connection is read in one turn of the event loop to `READ_CHUNK_BYTES`.
    """
    while isinstance(transport, ProtocolWrapper):  # TLS, the PROXY protocol
        transport = transport.transport
    transport.bufferSize = READ_CHUNK_BYTES


class SharedPorts:
    """
    A reactor for endpoints whose TCP ports are shared: several processes listen on one port, and the kernel
    gives each connection to one of them (socket(7), SO_REUSEPORT). All must be of the same user.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def listenTCP(
        self, port: int, factory: Factory, backlog: int = 50, interface: str = ""
    ) -> IListeningPort:
        family = socket.AF_INET6 if ":" in interface else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listening.setblocking(False)
            listening.bind((interface, port))
            listening.listen(backlog)
            adopted: IListeningPort = self._reactor.adoptStreamPort(listening.fileno(), family, factory)
        except OSError as why:
            raise CannotListenError(interface, port, why) from why
        finally:
            listening.close()  # the reactor has a descriptor of its own
        return adopted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)


def keep_alive(listening: socket.socket) -> None:
    """
    Enable TCP keepalive on a listening socket. Accepted sockets inherit it.
    """
    if listening.family == getattr(socket, "AF_UNIX", None):
        return
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE:
        option = getattr(socket, name, None)
        if option is not None:
            with suppress(OSError):  # Python has the option, this system does not
                listening.setsockopt(socket.IPPROTO_TCP, option, value)


def bearer_token(authorization: str) -> str | None:
    """
    The token in an Authorization header (RFC 6750, 2.1); None if the scheme is another.
    """
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def bearer(authorization: str, subprotocols: Iterable[str] = ()) -> str:
    """
    The bearer token of a request: from its Authorization header, else from a subprotocol
    `bearer.<base64url>`; or "".

    A browser cannot set headers on a WebSocket, only subprotocols.
    """
    token = bearer_token(authorization)
    if token is not None:
        return token
    for name in subprotocols:
        kind, _, encoded = name.partition(".")
        if kind == "bearer":
            with suppress(ValueError):
                return urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
            return encoded or name  # not base64: it is refused as an invalid token
    return ""


class RejectedConnection(Protocol):
    """
    A protocol that aborts a connection beyond the limits at once.
    """

    transport: Any

    def connectionMade(self) -> None:
        self.transport.abortConnection()


def verified_name(transport: Any) -> str:
    """
    The name in the client's verified certificate: its first URI, else DNS name, else common name; "" if it
    has none.

    Only listeners with `client_ca` request and verify client certificates.
    """
    try:
        certificate = transport.getPeerCertificate()
    except AttributeError:  # not TLS
        return ""
    return "" if certificate is None else name_of(certificate.to_cryptography())


def name_of(certificate: x509.Certificate) -> str:
    try:
        others = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names: list[str] = []
    except ValueError:  # an unreadable extension has no names
        return ""
    else:
        names = [
            *others.get_values_for_type(x509.UniformResourceIdentifier),
            *others.get_values_for_type(x509.DNSName),
        ]
    common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    names += [str(name.value) for name in common]
    return next((name for name in names if name), "")


# -- figures of a connection, as the kernel has them ----------------------------------------


def rtt_ms(connection: Any) -> float | None:
    """
    The round trip of a TCP connection in milliseconds; that of a proxy's, if it came through one.
    """
    micros = _tcp_info(connection, RTT_AT)
    return None if micros is None else round(micros / 1000, 3)


def sent_before_ms(connection: Any) -> int | None:
    """
    How many milliseconds ago the kernel last sent data on a TCP connection.
    """
    return _tcp_info(connection, LAST_SENT_AT)


def _tcp_info(connection: Any, at: int) -> int | None:
    """
    One field of the kernel's struct tcp_info (tcp(7)) about a connection; None if it is no TCP connection.
    """
    found = _socket(connection)
    option = getattr(socket, "TCP_INFO", None)
    if found is None or option is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    try:
        data = found.getsockopt(socket.IPPROTO_TCP, option, at + 4)
    except OSError:
        return None
    if len(data) < at + 4:
        return None
    field: int = struct.unpack_from("=I", data, at)[0]
    return field


def unsent_bytes(connection: Any) -> int | None:
    """
    The bytes that the kernel keeps for a client, because it has not acknowledged them.
    """
    found = _socket(connection)
    if found is None:
        return None
    try:
        size: int = struct.unpack("=i", ioctl(found.fileno(), TIOCOUTQ, b"\0" * 4))[0]
    except (OSError, ValueError):
        return None
    return size


def held_bytes(connection: Any) -> int:
    """
    The bytes for a client that are still in this process, because the kernel takes no more of them.
    """
    transport: Any = getattr(connection, "transport", None)
    for _ in range(MAX_WRAPPED):
        if hasattr(transport, "dataBuffer"):
            held: int = len(transport.dataBuffer) - transport.offset + transport._tempDataLen
            return held
        transport = getattr(transport, "transport", None)
    return 0


def local_address(connection: Any) -> str:
    """
    The address of this machine that a client connected to, `host:port` or `unix:path`; "" if its connection
    has no socket of its own.
    """
    transport = getattr(connection, "transport", None)
    while isinstance(transport, ProtocolWrapper):  # the PROXY protocol names another address
        transport = transport.transport
    return address_name(getattr(transport, "getHost", lambda: None)())


def address_name(host: Any) -> str:
    """
    An address of this machine as a listener shows it; "" if it is none.
    """
    if hasattr(host, "port"):
        return f"{host.host}:{host.port}"
    name = getattr(host, "name", None)
    return "" if name is None else f"unix:{os.fsdecode(name)}"


def _socket(connection: Any) -> socket.socket | None:
    transport = getattr(connection, "transport", None)
    for _ in range(MAX_WRAPPED):
        handle = getattr(transport, "getHandle", lambda: None)()
        if isinstance(handle, socket.socket):
            return handle
        transport = getattr(transport, "transport", None)
    return None
