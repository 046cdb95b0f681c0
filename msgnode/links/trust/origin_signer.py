"""
Signatures of messages by the key of a node's certificate, for domains that get them from another one.

ECDSA (P-256 with SHA-256, P-384 with SHA-384), Ed25519, or RSASSA-PSS with SHA-256. A text before the data
keeps these signatures apart from those of TLS and of advertisements, which the same key makes.
"""

from collections.abc import Callable

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256, SHA384

_CONTEXT = b"msgnode origin signature\0"
_PSS = padding.PSS(padding.MGF1(SHA256()), SHA256.digest_size)


class OriginSigner:
    """
    The signing key of this node, and the lookup of the keys of others by their verified advertisements.

    `known` gives the public key of a node; None if it is not known, or not trusted any more. `former` gives
    the one that it had until just now: what it signed may be under way.
    """

    def __init__(
        self,
        node: str,
        key: PrivateKeyTypes,
        known: Callable[[str], PublicKeyTypes | None],
        former: Callable[[str], PublicKeyTypes | None] = lambda node: None,
    ) -> None:
        self._node = node
        self._known = known
        self._former = former
        self.renew(key)

    def renew(self, key: PrivateKeyTypes) -> None:
        """
        Sign with this key from now on.
        """
        self._sign, self._public = _signing(key), key.public_key()

    def sign(self, data: bytes) -> bytes:
        return self._sign(_CONTEXT + data)

    def verify(self, node: str, data: bytes, signature: bytes) -> str:
        """
        Why the node has not signed this, as far as known here; "" if it has.
        """
        public = self._public if node == self._node else self._known(node)
        if public is None:
            return f"the key of {node} is not known here"
        if _is_valid(public, signature, data):
            return ""
        former = self._former(node)
        if former is not None and _is_valid(former, signature, data):
            return ""
        return f"the signature of {node} is invalid"


def _signing(key: PrivateKeyTypes) -> Callable[[bytes], bytes]:
    if isinstance(key, ec.EllipticCurvePrivateKey):
        algorithm = _ecdsa(key.curve)
        return lambda data: key.sign(data, algorithm)
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign
    if isinstance(key, rsa.RSAPrivateKey):
        return lambda data: key.sign(data, _PSS, SHA256())
    raise ValueError(f"expected an EC, Ed25519 or RSA key, found {type(key).__name__}")


def _is_valid(public: PublicKeyTypes, signature: bytes, data: bytes) -> bool:
    try:
        _verify(public, signature, _CONTEXT + data)
    except (InvalidSignature, ValueError):
        return False
    return True


def _verify(public: PublicKeyTypes, signature: bytes, data: bytes) -> None:
    if isinstance(public, ec.EllipticCurvePublicKey):
        public.verify(signature, data, _ecdsa(public.curve))
    elif isinstance(public, ed25519.Ed25519PublicKey):
        public.verify(signature, data)
    elif isinstance(public, rsa.RSAPublicKey):
        public.verify(signature, data, _PSS, SHA256())
    else:
        raise ValueError("expected an EC, Ed25519 or RSA key")


def _ecdsa(curve: ec.EllipticCurve) -> ec.ECDSA:
    return ec.ECDSA(SHA384() if curve.name == "secp384r1" else SHA256())
