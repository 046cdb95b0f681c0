"""
What lies below a client's connection: its socket, and who it is by its certificate.
"""

import socket
from base64 import urlsafe_b64decode
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID
from twisted.internet.protocol import Protocol
from twisted.protocols.policies import ProtocolWrapper

# Bytes taken from one connection before the others have their turn.
READ = 16 * 1024

# A peer that vanished without a word is found out after two minutes: one of
# silence, then four probes.  What was sent and is not acknowledged waits as long.
KEEPALIVE = (
    ("TCP_KEEPIDLE", 60),
    ("TCP_KEEPINTVL", 15),
    ("TCP_KEEPCNT", 4),
    ("TCP_USER_TIMEOUT", 120_000),
)


def limit_read_size(transport: Any) -> None:
    """
    Let no connection have more than `READ` bytes of a turn of the event loop.
    """
    while isinstance(transport, ProtocolWrapper):  # TLS, the PROXY protocol
        transport = transport.transport
    transport.bufferSize = READ


def keep_alive(listening: socket.socket) -> None:
    """
    Have the sockets that are accepted here notice that their peer is gone; they inherit it.
    """
    if listening.family == getattr(socket, "AF_UNIX", None):
        return
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE:
        option = getattr(socket, name, None)
        if option is not None:
            with suppress(OSError):  # known to Python, not to this system
                listening.setsockopt(socket.IPPROTO_TCP, option, value)


def bearer_token(authorization: str) -> str | None:
    """
    The token in an Authorization header (RFC 6750, 2.1); None if it is of another scheme.
    """
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def bearer(authorization: str, subprotocols: Iterable[str] = ()) -> str:
    """
    The token in a request: in its Authorization header, else in a sub-protocol `bearer.<base64url>`; or "".

    A browser can set no header on a WebSocket, but sub-protocols.
    """
    token = bearer_token(authorization)
    if token is not None:
        return token
    for name in subprotocols:
        kind, _, encoded = name.partition(".")
        if kind == "bearer":
            with suppress(ValueError):
                return urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
            return encoded or name  # nonsense, and refused as such
    return ""


class RejectedConnection(Protocol):
    """
    A connection too many: closed before it can say a word.
    """

    transport: Any

    def connectionMade(self) -> None:
        self.transport.abortConnection()


def verified_name(transport: Any) -> str:
    """
    The name in the client's certificate: its first URI, else DNS name, else common name.

    "" when there is none.  Certificates are asked for, and verified, where the listener has a `client_ca`.
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
    except ValueError:  # one that cannot be read names nobody
        return ""
    else:
        names = [
            *others.get_values_for_type(x509.UniformResourceIdentifier),
            *others.get_values_for_type(x509.DNSName),
        ]
    common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    names += [str(name.value) for name in common]
    return next((name for name in names if name), "")
