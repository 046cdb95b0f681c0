"""
NKeys: Ed25519 keys as NATS writes them, in base32 with a prefix and a checksum.

A public key is a byte of its role, 32 bytes and a CRC-16 (XMODEM, little endian); a seed has `S` and the role
in its first two bytes. (Source: nats-io/nkeys; ADR-14, "JWT library free jwt user generation".)
"""

import base64
import binascii

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from msgnode.nats.errors import CredentialsError

SEED = 18 << 3
ROLES = {"operator": 14 << 3, "server": 13 << 3, "cluster": 2 << 3, "account": 0, "user": 20 << 3}
_NAMES = {prefix: role for role, prefix in ROLES.items()}
_KEY_BYTES, _CHECK_BYTES = 32, 2


class KeyPair:
    """
    A private key, for instance of a user: `role` is a key of ROLES, `public` its public key as text.
    """

    def __init__(self, role: str, raw: bytes) -> None:
        """
        `raw` are the 32 bytes of the Ed25519 private key.
        """
        self.role = role
        self._raw = raw
        self._key = Ed25519PrivateKey.from_private_bytes(raw)
        self.public = _encode(
            bytes([ROLES[role]]) + self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        )

    @classmethod
    def from_seed(cls, seed: str) -> "KeyPair":
        """
        The key of a seed such as `SUA...`. CredentialsError if it is none; the text never has the seed.
        """
        data = _decode(seed.strip())
        if len(data) != _KEY_BYTES + 2 or data[0] & 0xF8 != SEED:
            raise CredentialsError("expected a seed of an nkey, which begins with S and has 58 characters")
        prefix = (data[0] & 7) << 5 | data[1] >> 3
        if prefix not in _NAMES:
            raise CredentialsError("expected a seed of an operator, account, user, server or cluster")
        return cls(_NAMES[prefix], data[2:])

    @property
    def seed(self) -> str:
        prefix = ROLES[self.role]
        return _encode(bytes([SEED | prefix >> 5, (prefix & 31) << 3]) + self._raw)

    def sign(self, data: bytes) -> bytes:
        """
        The Ed25519 signature of the data, 64 bytes.
        """
        return self._key.sign(data)


def _encode(data: bytes) -> str:
    checked = data + binascii.crc_hqx(data, 0).to_bytes(_CHECK_BYTES, "little")
    return base64.b32encode(checked).decode().rstrip("=")


def _decode(text: str) -> bytes:
    try:
        data = base64.b32decode(text + "=" * (-len(text) % 8))
    except ValueError:
        raise CredentialsError("expected an nkey in base32") from None
    checked, check = data[:-_CHECK_BYTES], data[-_CHECK_BYTES:]
    if binascii.crc_hqx(checked, 0).to_bytes(_CHECK_BYTES, "little") != check:
        raise CredentialsError("expected an nkey whose checksum is right; was it copied as a whole?")
    return checked
