"""
Signatures of advertisements by a node's TLS key, verified by the trust anchors of the node that reads them.
"""

import base64
import hashlib
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from msgnode.links.overlay.advertisement import MAX_BYTES, Advertisement, Refused, read, unbase64
from msgnode.links.overlay.trust import TrustAnchors, TrustedKey, Untrusted
from msgnode.links.wire.node_name import domain_of
from msgnode.structures.bounded_cache import BoundedCache

MAX_CHAIN = 5
MAX_CACHED_CHAINS = 4096
TYPE = "msgnode-advertisement.1"

SignatureKey = ECKey | OKPKey | RSAKey


class Signer(msgspec.Struct, frozen=True):
    """
    The signer of an advertisement: the SHA-256 hash of its public key, until when its certificate is valid,
    and the key itself.
    """

    key_hash: bytes
    until: float
    public_key: PublicKeyTypes | None = None


class Seal(Protocol):
    """
    Signs this node's advertisements, and verifies those of others.
    """

    def sign(self, advertisement: Advertisement) -> str: ...

    def read(self, compact: str) -> Advertisement:
        """
        The content, checked but not verified. Raises Refused.
        """

    def verify(self, compact: str, advertisement: Advertisement) -> Signer:
        """
        The signer, who may speak for the advertisement's domain. Raises Refused.
        """


class Signatures:
    """
    A Seal by the key and certificate chain (DER) of this node's TLS, and by its trust anchors.
    """

    def __init__(
        self, trust: TrustAnchors, wall: Callable[[], float], key: PrivateKeyTypes, chain: Sequence[bytes]
    ) -> None:
        self._trust = trust
        self._wall = wall
        self._cache: BoundedCache[tuple[str, str], _CachedKey | str] = BoundedCache(MAX_CACHED_CHAINS)
        self.renew(key, chain)

    def renew(self, key: PrivateKeyTypes, chain: Sequence[bytes]) -> None:
        """
        Sign with this key from now on.
        """
        if not isinstance(key, ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey):
            raise ValueError(f"expected an EC, Ed25519 or RSA key, found {type(key).__name__}")
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        algorithm, self._key = _signature_key(key.public_key(), pem)
        x5c = [base64.b64encode(certificate).decode() for certificate in chain]
        self._header = {"alg": algorithm, "typ": TYPE, "x5c": x5c}

    def trust_changed(self) -> None:
        """
        Forget which chains are trusted, because certificate authorities or pins have changed.
        """
        self._cache.clear()

    def sign(self, advertisement: Advertisement) -> str:
        payload = msgspec.msgpack.encode(advertisement)
        return jws.serialize_compact(self._header, payload, self._key, registry=_REGISTRY)

    def read(self, compact: str) -> Advertisement:
        return read(compact)

    def verify(self, compact: str, advertisement: Advertisement) -> Signer:
        header = compact[: compact.index(".")]
        domain = domain_of(advertisement.node)
        cached = self._cache.get((domain, header))
        if cached is None:
            try:
                cached = self._verified(domain, header)
            except Untrusted as why:
                cached = str(why)
            self._cache.put((domain, header), cached)
        if isinstance(cached, str):
            raise Refused("untrusted", f"the certificate of {advertisement.node}: {cached}")
        if cached.signer.until <= self._wall():
            raise Refused("untrusted", f"the certificate of {advertisement.node} has ended")
        try:
            jws.deserialize_compact(compact, cached.key, registry=_REGISTRY)
        except (JoseError, ValueError) as why:
            raise Refused("signature", f"the signature of {advertisement.node} is invalid: {why}") from None
        return cached.signer

    def _verified(self, domain: str, header: str) -> "_CachedKey":
        algorithm, chain = _chain(header)
        trusted = self._trust.verify(domain, chain)
        if not trusted.pinned:
            _check_name(chain[0], domain)
        expected, key = _signature_key(trusted.public_key, _pem(trusted.public_key))
        if algorithm != expected:
            raise Untrusted(f"expected a signature by {expected}, found {algorithm[:20]!r}")
        return _CachedKey(key, _signer(trusted))


class _CachedKey(msgspec.Struct, frozen=True):
    """
    A key that has been verified, ready for use.
    """

    key: SignatureKey
    signer: Signer


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    """
    The header of the JWS.
    """

    alg: str
    typ: str
    x5c: list[str]


_ALGORITHMS = ["ES256", "ES384", "Ed25519", "RS256"]
_REGISTRY = jws.JWSRegistry(algorithms=_ALGORITHMS)
_REGISTRY.max_header_length = _REGISTRY.max_payload_length = MAX_BYTES


def _chain(header: str) -> tuple[str, list[bytes]]:
    """
    The algorithm and the certificates of a header.
    """
    try:
        found = msgspec.json.decode(unbase64(header), type=_Header)
        chain = [base64.b64decode(certificate, validate=True) for certificate in found.x5c]
    except (msgspec.MsgspecError, ValueError) as why:
        raise Untrusted(f"expected a header with a certificate chain: {why}") from None
    if found.typ != TYPE or not 1 <= len(chain) <= MAX_CHAIN:
        raise Untrusted(f"expected a {TYPE} with 1 to {MAX_CHAIN} certificates")
    return found.alg, chain


def _check_name(certificate: bytes, domain: str) -> None:
    expected = f"msg-node.{domain}"
    try:
        extensions = x509.load_der_x509_certificate(certificate).extensions
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        found = names.get_values_for_type(x509.DNSName)
    except Exception as why:  # a malformed certificate raises errors of many kinds
        raise Untrusted(f"expected a certificate for {expected}: {str(why)[:200]}") from None
    if expected not in (name.lower() for name in found):
        raise Untrusted(f"expected a certificate for {expected}, found {', '.join(found)[:200]}")


def _signer(trusted: TrustedKey) -> Signer:
    der = trusted.public_key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return Signer(hashlib.sha256(der).digest(), trusted.until, trusted.public_key)


def _signature_key(public: PublicKeyTypes, pem: bytes) -> tuple[str, SignatureKey]:
    """
    The algorithm for a kind of key, and the key (public or private, in PEM) as joserfc has it.
    """
    if isinstance(public, ec.EllipticCurvePublicKey) and public.curve.name in ("secp256r1", "secp384r1"):
        return ("ES256" if public.curve.name == "secp256r1" else "ES384"), ECKey.import_key(pem)
    if isinstance(public, ed25519.Ed25519PublicKey):
        return "Ed25519", OKPKey.import_key(pem)
    if isinstance(public, rsa.RSAPublicKey) and 2048 <= public.key_size <= 8192:
        return "RS256", RSAKey.import_key(pem)
    raise Untrusted("expected a key for ES256, ES384, EdDSA, or RS256 with 2,048 bits or more")


def _pem(public: PublicKeyTypes) -> bytes:
    return public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
