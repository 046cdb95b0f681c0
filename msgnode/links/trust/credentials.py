"""
The credentials of this node: its certificate and key, and TLS with them, as client and as server.

Both ends present a certificate. OpenSSL proves that the peer has the key; whether its certificate proves a
domain is decided afterwards (certificates.py), when the hello has said which domain it should be.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID
from OpenSSL import SSL
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator, IOpenSSLServerConnectionCreator
from twisted.internet.ssl import CertificateOptions
from zope.interface import implementer

from msgnode.config.schema import Config, ConfigError
from msgnode.links.trust.certificates import dns_names
from msgnode.transport import pem

MADE_FOR = timedelta(days=3650)


class Credentials:
    """
    The certificate chain and key of this node. ConfigError names an unusable file.
    """

    def __init__(self, config: Config, wall: Callable[[], float] = time.time) -> None:
        options = config.federation
        key_file = options.key or options.cert
        try:
            chain, key = pem.x509_certificates(options.cert), pem.private_key(key_file)
        except pem.PEMError as why:
            raise ConfigError(f"federation: {why}") from why
        self._use(config, chain, key, wall)
        self.files = tuple(dict.fromkeys((options.cert, key_file)))
        tls = CertificateOptions(privateKey=key, certificate=chain[0], extraCertChain=chain[1:])
        try:
            self.context = tls.getContext()
        except SSL.Error as why:
            raise ConfigError(
                f"federation: {options.cert}: expected a certificate for the key in {key_file}"
            ) from why
        needed = SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT
        self.context.set_verify(needed, lambda *_: True)
        # A resumed session would have no chain of certificates to check.
        self.context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
        self.context.set_options(SSL.OP_NO_TICKET)

    def _use(
        self, config: Config, chain: list[x509.Certificate], key: Any, wall: Callable[[], float]
    ) -> None:
        self.certificate = chain[0]
        self.key = key
        self.chain = [each.public_bytes(Encoding.DER) for each in chain]
        self._file = config.federation.cert
        self._domain = config.domain
        self._wall = wall

    @property
    def key_hash(self) -> bytes:
        """
        The SHA-256 of the public key.
        """
        return key_hash(self.certificate)

    @property
    def days_left(self) -> float:
        return (self.certificate.not_valid_after_utc.timestamp() - self._wall()) / 86_400

    def mistakes(self) -> list[str]:
        """
        Reasons for which peers will refuse the certificate.
        """
        found = []
        wanted = f"msg-node.{self._domain}"
        names = [name.lower() for name in dns_names(self.certificate)]
        if wanted not in names and self._domain not in names:
            shown = ", ".join(names[:5]) or "no DNS name"
            found.append(f"federation: {self._file}: expected a certificate for {wanted}, found {shown}")
        if self.days_left <= 0:
            end = self.certificate.not_valid_after_utc
            found.append(f"federation: {self._file}: the certificate expired at {end:%Y-%m-%d %H:%M} UTC")
        return found


class MadeCredentials(Credentials):
    """
    Credentials that are made at each start, for a node without links to other domains: the other nodes of its
    domain get the hash of its key from the node itself.
    """

    def __init__(self, config: Config, wall: Callable[[], float] = time.time) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "msgnode")])
        now = datetime.fromtimestamp(wall(), UTC)
        made = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + MADE_FOR)
            .sign(key, SHA256())
        )
        self._use(config, [made], key, wall)
        self.files = ()

    def mistakes(self) -> list[str]:
        return []


def key_hash(certificate: x509.Certificate) -> bytes:
    public = certificate.public_key()
    return sha256(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()


@implementer(IOpenSSLServerConnectionCreator, IOpenSSLClientConnectionCreator)
class LinkTLS:
    """
    A creator of TLS connections with the node's current credentials.

    `name` is sent to a server that is dialled (SNI), for a proxy in front of it.
    """

    def __init__(self, credentials: Callable[[], Credentials], name: str = "") -> None:
        self._credentials = credentials
        self._name = name

    def serverConnectionForTLS(self, protocol: Any) -> SSL.Connection:
        return SSL.Connection(self._credentials().context, None)

    def clientConnectionForTLS(self, protocol: Any) -> SSL.Connection:
        connection = SSL.Connection(self._credentials().context, None)
        if self._name:
            connection.set_tlsext_host_name(self._name.encode("ascii"))
        return connection


def presented_chain(transport: Any) -> list[bytes]:
    """
    The certificates that the peer presented, in DER, its own first. Empty if it presented none.
    """
    own = transport.getPeerCertificate()
    if own is None:
        return []
    rest = transport.getHandle().get_peer_cert_chain() or []
    from_peer = [der(each) for each in rest]
    first = der(own)
    # OpenSSL leaves a client's own certificate out of the chain.
    return from_peer if from_peer[:1] == [first] else [first, *from_peer]


def der(certificate: Any) -> bytes:
    encoded: bytes = certificate.to_cryptography().public_bytes(Encoding.DER)
    return encoded
