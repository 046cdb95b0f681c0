"""
Tags: each datagram is authenticated, and encrypted if asked, under a key of its source and destination.

The key comes from an X25519 agreement between the keys in both advertisements, by HKDF-SHA256 with both
start identifiers and both names in the order of the direction. So it is another one at each start of a
process, and a counter is enough of a nonce.
"""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

TAG_BYTES = 16
REPLAY_WINDOW = 4096  # nonces of one priority
_SALT = b"msgnode-stream.1"
_KEY_BYTES, _ID_BYTES = 32, 8


class Direction:
    """
    A direction of an agreement: the start identifiers and names of the source and the destination.
    """

    def __init__(self, source: str, source_start: bytes, destination: str, destination_start: bytes) -> None:
        self.info = b"".join(
            len(part).to_bytes(4, "big") + part
            for part in (source_start, destination_start, source.encode(), destination.encode())
        )


def agree(private: X25519PrivateKey, public: bytes, direction: Direction) -> tuple[str, bytes]:
    """
    The identifier and the key of a direction. ValueError if the public key is none.
    """
    shared = private.exchange(X25519PublicKey.from_public_bytes(public))
    derived = HKDF(SHA256(), _KEY_BYTES + _ID_BYTES, _SALT, direction.info).derive(shared)
    return derived[_KEY_BYTES:].hex(), derived[:_KEY_BYTES]


class SendingKey:
    """
    A key by which this node sends. The caller's nonces rise, and none is used twice under any key.
    """

    def __init__(self, identifier: str, key: bytes) -> None:
        self.id = identifier
        self._seal = AESGCM(key).encrypt

    def seal(
        self, nonce: int, priority: int, header: bytes, payload: bytes, encrypt: bool
    ) -> tuple[bytes, bytes]:
        """
        The tag, and the payload as it is sent.
        """
        number = nonce.to_bytes(12, "big")
        if not encrypt:
            return self._seal(number, b"", _associated(priority, header, payload)), payload
        sealed = self._seal(number, payload, _associated(priority, header, b""))
        return sealed[-TAG_BYTES:], sealed[:-TAG_BYTES]


class ReceivingKey:
    """
    A key by which a peer sends, with the nonces that were seen under it.

    The nonces of each priority have a window of their own, because priorities overtake each other.
    """

    def __init__(self, identifier: str, key: bytes) -> None:
        self.id = identifier
        self._open = AESGCM(key).decrypt
        self._windows: dict[int, ReplayWindow] = {}

    def open(
        self, nonce: int, priority: int, header: bytes, payload: bytes, tag: bytes, encrypted: bool
    ) -> bytes | None:
        """
        The payload in clear; None if the tag is wrong or the datagram is a replay.
        """
        if len(tag) != TAG_BYTES or not 0 <= nonce < 1 << 62:
            return None
        window = self._windows.get(priority)
        if window is not None and not window.is_new(nonce):
            return None
        number = nonce.to_bytes(12, "big")
        try:
            if encrypted:
                clear = self._open(number, payload + tag, _associated(priority, header, b""))
            else:
                self._open(number, tag, _associated(priority, header, payload))
                clear = payload
        except InvalidTag:
            return None
        if window is None:
            window = self._windows[priority] = ReplayWindow()
        window.add(nonce)
        return clear


class ReplayWindow:
    """
    A window of nonces, which remembers those that were used (RFC 4303, 3.4.3).
    """

    __slots__ = ("_highest", "_seen")

    def __init__(self) -> None:
        self._highest = -1
        self._seen = 0  # bit n: the nonce that is n below the highest was used

    def is_new(self, nonce: int) -> bool:
        behind = self._highest - nonce
        return behind < 0 or (behind < REPLAY_WINDOW and not self._seen >> behind & 1)

    def add(self, nonce: int) -> None:
        ahead = nonce - self._highest
        if ahead > 0:
            kept = self._seen << ahead if ahead < REPLAY_WINDOW else 0
            self._seen = (kept | 1) & (1 << REPLAY_WINDOW) - 1
            self._highest = nonce
        else:
            self._seen |= 1 << -ahead


def _associated(priority: int, header: bytes, payload: bytes) -> bytes:
    # Source, destination and key are bound by the agreement. The length keeps header and payload apart.
    return (priority << 32 | len(header)).to_bytes(5, "big") + header + payload
