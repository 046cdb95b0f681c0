"""
The keys of this node, and those that it agrees on with each peer. Keys that were replaced are valid for a
while.
"""

import os

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from twisted.internet.interfaces import IReactorTime

from msgnode.links.overlay.network import Network, NodeKeys
from msgnode.links.stream.safety.tags import Direction, ReceivingKey, SendingKey, agree
from msgnode.links.wire.stream_header import INSTANCE_BYTES

OLD_KEY_SECONDS = 60.0  # for what is under way
MAX_KEYS = 4  # of one peer, by which it may send
MIN_RSA_BITS = 3072
FEATURES = frozenset({"zstd", "encrypt"})


class PrivateKeys:
    """
    The private keys of one start of this node; `public` goes into its advertisement.
    """

    def __init__(
        self,
        start: bytes,
        x25519: X25519PrivateKey,
        rsa_key: rsa.RSAPrivateKey | None = None,
        features: frozenset[str] = FEATURES,
    ) -> None:
        if rsa_key is not None and rsa_key.key_size < MIN_RSA_BITS:
            raise ValueError(f"an RSA key needs {MIN_RSA_BITS} bits or more, this one has {rsa_key.key_size}")
        self.start = start
        self.x25519 = x25519
        self.rsa = rsa_key
        der = b""
        if rsa_key is not None:
            der = rsa_key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        raw = x25519.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.public = NodeKeys(start, raw, der, features)

    @classmethod
    def generate(cls, rsa_key: rsa.RSAPrivateKey | None = None) -> "PrivateKeys":
        return cls(os.urandom(INSTANCE_BYTES), X25519PrivateKey.generate(), rsa_key)

    def with_rsa(self, rsa_key: rsa.RSAPrivateKey) -> "PrivateKeys":
        """
        These keys with an RSA key.
        """
        return PrivateKeys(self.start, self.x25519, rsa_key, self.public.features)

    def renewed(self) -> "PrivateKeys":
        """
        Other keys for the same start. The RSA key stays: it only wraps keys that are changed often.
        """
        return PrivateKeys(self.start, X25519PrivateKey.generate(), self.rsa, self.public.features)


class KeyRing:
    """
    The keys of this node: the current ones, and until they expire those before a rotation.
    """

    def __init__(self, current: PrivateKeys, clock: IReactorTime) -> None:
        self.current = current
        self._clock = clock
        self._previous: PrivateKeys | None = None
        self._expires = 0.0
        self.generation = 0
        self._nonce = 0

    def rotate(self, keys: PrivateKeys) -> None:
        """
        Send under other keys from now on. The caller advertises them.
        """
        self._previous, self.current = self.current, keys
        self._expires = self._clock.seconds() + OLD_KEY_SECONDS
        self.generation += 1

    def valid(self) -> list[PrivateKeys]:
        """
        The keys under which peers may send, the current ones first.
        """
        if self._previous is not None and self._clock.seconds() >= self._expires:
            self._previous = None
        return [self.current] if self._previous is None else [self.current, self._previous]

    def next_nonce(self) -> int:
        """
        A nonce that no key has been used with: they are counted over all keys.
        """
        self._nonce += 1
        return self._nonce


class PeerKeys:
    """
    The keys that this node and one peer agree on, made from both advertisements.

    `public` are the peer's keys as far as known.
    """

    def __init__(self, own: KeyRing, network: Network, peer: str, clock: IReactorTime) -> None:
        self._own = own
        self._network = network
        self._peer = peer
        self._clock = clock
        self.public: NodeKeys | None = None
        self._sending: SendingKey | None = None
        self._receiving: dict[str, ReceivingKey] = {}
        self._expires: dict[str, float] = {}  # of those that were replaced
        self._generation = -1

    def changed(self) -> None:
        """
        Agree again, because the peer's advertisement has other keys, or this node has.
        """
        public = self._network.keys(self._peer)
        if public is None:
            self._forget()
            return
        if public == self.public and self._generation == self._own.generation:
            return
        self.public, self._generation = public, self._own.generation
        own, me = self._own.current, self._network.node
        self._sending = None
        fresh: dict[str, bytes] = {}
        expiring: set[str] = set()
        try:
            direction = Direction(me, own.start, self._peer, public.start)
            self._sending = SendingKey(*agree(own.x25519, public.x25519, direction))
            for keys in self._own.valid():
                direction = Direction(self._peer, public.start, me, keys.start)
                identifier, key = agree(keys.x25519, public.x25519, direction)
                fresh[identifier] = key
                if keys is not own:
                    expiring.add(identifier)
        except ValueError:
            pass  # no agreement is possible with such a key: the peer is silent until it has another one
        self._replace(fresh, expiring)

    def _forget(self) -> None:
        """
        The peer's advertisement ended, or is trusted no more: nothing it sends is authentic.
        """
        self.public = self._sending = None
        self._receiving.clear()
        self._expires.clear()

    def _replace(self, fresh: dict[str, bytes], expiring: set[str]) -> None:
        """
        Keep a key that is valid still with the nonces seen under it, and the replaced ones for a while.
        """
        until = self._clock.seconds() + OLD_KEY_SECONDS
        for identifier, key in fresh.items():
            if identifier not in expiring:
                self._expires.pop(identifier, None)
            if identifier not in self._receiving:
                self._receiving[identifier] = ReceivingKey(identifier, key)
        for identifier in self._receiving.keys() - (fresh.keys() - expiring):
            self._expires.setdefault(identifier, until)
        while len(self._receiving) > MAX_KEYS:
            oldest = min(self._expires, key=self._expires.__getitem__)
            del self._receiving[oldest], self._expires[oldest]

    def sending(self) -> SendingKey | None:
        if self._sending is None or self._generation != self._own.generation:
            self.changed()
        return self._sending

    def receiving(self, identifier: str) -> ReceivingKey | None:
        found = self._receiving.get(identifier)
        if found is None:
            self.changed()
            return self._receiving.get(identifier)
        if self._expires and self._clock.seconds() >= self._expires.get(identifier, float("inf")):
            del self._receiving[identifier], self._expires[identifier]
            return None
        return found

    def is_current(self, identifier: str) -> bool:
        """
        Is that a key of the peer's newest start?
        """
        return identifier in self._receiving and identifier not in self._expires
