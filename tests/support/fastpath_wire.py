"""
Twisted's own transports, by their exact class, over a socket in memory; and TLS.
"""

from datetime import datetime, timedelta
from errno import EPIPE, EWOULDBLOCK
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from OpenSSL import SSL
from twisted.internet import tcp, unix
from twisted.internet.interfaces import IOpenSSLContextFactory
from twisted.internet.protocol import Protocol
from twisted.internet.testing import MemoryReactorClock
from zope.interface import implementer


class Socket:
    """
    As much of a socket as a transport needs; it takes `room` bytes, then would block.
    """

    def __init__(self, room: int = 10**9) -> None:
        self.room = room
        self.sent = b""
        self.sends = 0
        self.options: list[tuple] = []
        self.dead = False

    def send(self, data: bytes) -> int:
        self.sends += 1
        if self.dead:
            raise OSError(EPIPE, "broken pipe")
        if not self.room:
            raise OSError(EWOULDBLOCK, "would block")
        taken = bytes(data[: self.room])
        self.room -= len(taken)
        self.sent += taken
        return len(taken)

    def setblocking(self, on: bool) -> None:
        pass

    def fileno(self) -> int:
        return 99

    def setsockopt(self, *option: Any) -> None:
        self.options.append(option)

    def shutdown(self, how: int) -> None:
        pass

    def close(self) -> None:
        pass


def tcp_server(socket: Socket, protocol: Protocol | None = None) -> Any:
    """
    Twisted's own transport, by its exact class, over a socket of ours.
    """
    return tcp.Server(socket, protocol or Protocol(), ("192.0.2.1", 4711), None, 1, MemoryReactorClock())


def unix_server(socket: Socket, protocol: Protocol | None = None) -> Any:
    """
    The same for a UNIX socket.
    """
    return unix.Server(socket, protocol or Protocol(), "", None, 1, MemoryReactorClock())


@cache
def _certified() -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "example.com")])
    start = datetime(2020, 1, 1)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(start).not_valid_after(start + timedelta(36500))
    return key, builder.sign(key, SHA256())


@implementer(IOpenSSLContextFactory)
class ServerContext:
    """
    What a TLS server shows: a certificate made here.
    """

    def getContext(self) -> SSL.Context:
        key, certificate = _certified()
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        context.use_privatekey(key)
        context.use_certificate(certificate)
        return context
