"""
Encryption of messages from source node to destination node.

A peer whose streams encrypt gets each piece encrypted under the stream's own key (tags.py). A peer that
offers an RSA key only gets the message encrypted by AES-256-GCM under a content key, which is wrapped by
RSA-OAEP-256 and sent along; its source is still proved by the tags.
"""

import os
from typing import Literal

import msgspec
from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256, Hash
from cryptography.hazmat.primitives.serialization import load_der_public_key
from msgspec import Struct
from twisted.internet.interfaces import IReactorTime

from msgnode.links.overlay.network import NodeKeys
from msgnode.links.stream.safety.node_keys import MIN_RSA_BITS, KeyRing
from msgnode.sessions.limits.rate_limits import TokenBuckets
from msgnode.structures.bounded_cache import BoundedCache

CONTENT_KEY_SECONDS = 600.0
CONTENT_KEY_MESSAGES = 1 << 20
MAX_CACHED_KEYS = 256
UNWRAPS = 8  # content keys of one node that are unwrapped in UNWRAPS_SECONDS; a node needs one in 600 s
UNWRAPS_SECONDS = 60.0
_OAEP = padding.OAEP(padding.MGF1(SHA256()), SHA256(), None)

Way = Literal["clear", "stream", "wrapped", "impossible"]


class NotReadable(Exception):
    """
    A message that is encrypted under a key that this node does not have, or that was changed.
    """

    cause = "unreadable"


class TooManyKeys(NotReadable):
    """
    A message under one more content key, from a node that sent too many of them.
    """

    cause = "too-many-keys"


class Wrapped(Struct, array_like=True, forbid_unknown_fields=True):
    """
    An encrypted message with its wrapped content key. `recipient` names the RSA key: the start of its hash.
    """

    recipient: bytes
    key: bytes
    nonce: bytes
    sealed: bytes


class ContentKey:
    """
    A content key for one recipient, and the number of messages encrypted by it.
    """

    def __init__(self, rsa: RSAPublicKey, until: float) -> None:
        key = AESGCM.generate_key(256)
        self.until = until
        self.used = 0
        self.wrapped = rsa.encrypt(key, _OAEP)
        self.seal = AESGCM(key).encrypt


def key_name(der: bytes) -> bytes:
    digest = Hash(SHA256())
    digest.update(der)
    return digest.finalize()[:8]


def way(keys: NodeKeys, must: bool) -> Way:
    """
    In which way a message goes to a node with these keys; `must`: not in clear.
    """
    if not must:
        return "clear"
    if "encrypt" in keys.features:
        return "stream"
    return "wrapped" if _load(keys.rsa) is not None else "impossible"


class Encryption:
    """
    Encrypts messages for peers that offer an RSA key only, and decrypts those for this node.
    """

    def __init__(self, own: KeyRing, clock: IReactorTime) -> None:
        self._own = own
        self._clock = clock
        self._content_keys: BoundedCache[bytes, ContentKey] = BoundedCache(MAX_CACHED_KEYS)
        self._unwrapped: BoundedCache[bytes, bytes] = BoundedCache(MAX_CACHED_KEYS)
        self._unwraps = TokenBuckets()
        self._unwraps.set(UNWRAPS, 0)
        self._decode = msgspec.msgpack.Decoder(Wrapped).decode

    def wrap(self, rsa_der: bytes, message: bytes) -> bytes:
        now = self._clock.seconds()
        content = self._content_keys.get(rsa_der)
        if content is None or now >= content.until or content.used >= CONTENT_KEY_MESSAGES:
            rsa = _load(rsa_der)
            assert rsa is not None, "way() has checked it"
            content = ContentKey(rsa, now + CONTENT_KEY_SECONDS)
            self._content_keys.put(rsa_der, content)
        content.used += 1
        nonce = os.urandom(4) + content.used.to_bytes(8, "big")
        recipient = key_name(rsa_der)
        sealed = content.seal(nonce, message, recipient)
        return msgspec.msgpack.encode(Wrapped(recipient, content.wrapped, nonce, sealed))

    def unwrap(self, source: str, data: bytes) -> bytes:
        """
        The message of a node; raises NotReadable.
        """
        try:
            found = self._decode(data)
            if len(found.nonce) != 12:
                raise NotReadable("a nonce has 12 bytes")
            key = self._content_key(source, found)
            return AESGCM(key).decrypt(found.nonce, found.sealed, found.recipient)
        except (ValueError, InvalidTag) as why:
            raise NotReadable(f"a message cannot be decrypted: {why}") from why

    def _content_key(self, source: str, found: Wrapped) -> bytes:
        known = self._unwrapped.get(found.key)
        if known is not None:
            return known
        for keys in self._own.valid():
            if keys.rsa is not None and key_name(keys.public.rsa) == found.recipient:
                self._take_turn(source)
                key = keys.rsa.decrypt(found.key, _OAEP)
                self._unwrapped.put(found.key, key)
                return key
        raise NotReadable("a message is encrypted under a key that this node does not have")

    def _take_turn(self, source: str) -> None:
        """
        Counts an operation with the private RSA key, which takes milliseconds. Raises TooManyKeys.
        """
        bucket = self._unwraps.find(source, self._clock.seconds() / UNWRAPS_SECONDS)
        if bucket is None:
            raise TooManyKeys(f"a node may send {UNWRAPS} content keys in {UNWRAPS_SECONDS:.0f} s")
        bucket.messages -= 1


def _load(der: bytes) -> RSAPublicKey | None:
    """
    The RSA key; None if it is none, or a weak one.
    """
    if not der:
        return None
    try:
        key = load_der_public_key(der)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, RSAPublicKey) and key.key_size >= MIN_RSA_BITS else None
