"""
Sealing: refresh tokens are encrypted, with authentication, before they are kept.

The keys come from a file of the configuration. The first seals; all of them open, so that a key can be
replaced.
"""

import binascii
import os
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from msgnode.config.schema import ConfigError

MAX_KEYS = 16
KEY_BYTES = 32
_ID_BYTES, _NONCE_BYTES = 4, 12
_KEY = "identity.token_keys_file"


class Unsealable(Exception):
    """
    A sealed text that no key here opens, or that was changed.
    """


class TokenKeys:
    """
    The keys of AES-256-GCM, the newest first.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = {sha256(key).digest()[:_ID_BYTES]: AESGCM(key) for key in keys}
        self._first = sha256(keys[0]).digest()[:_ID_BYTES]

    @classmethod
    def made(cls) -> "TokenKeys":
        """
        A key of this process only.
        """
        return cls([os.urandom(KEY_BYTES)])

    def seal(self, plain: bytes, about: str) -> str:
        """
        The sealed text. It opens only with the same `about`, which is not secret.
        """
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._keys[self._first].encrypt(nonce, plain, about.encode())
        return urlsafe_b64encode(self._first + nonce + sealed).decode()

    def open(self, sealed: str, about: str) -> bytes:
        """
        The bytes that were sealed. Raises Unsealable.
        """
        try:
            data = urlsafe_b64decode(sealed)
            key = self._keys[data[:_ID_BYTES]]
            rest = data[_ID_BYTES:]
            return key.decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], about.encode())
        except KeyError:
            raise Unsealable("no key opens it") from None
        except (binascii.Error, ValueError, InvalidTag):
            raise Unsealable("it is damaged") from None

    def is_newest(self, sealed: str) -> bool:
        """
        Was it sealed with the key that seals now?
        """
        return urlsafe_b64decode(sealed)[:_ID_BYTES] == self._first


def read_token_keys(file: str) -> TokenKeys:
    """
    The keys in a file: base64 of 32 bytes in each line. ConfigError if it has none, or anything else.
    """
    try:
        lines = Path(file).read_text("utf-8").splitlines()
    except OSError as why:
        raise ConfigError(f"{_KEY}: {file}: cannot be read: {why.strerror}") from why
    except UnicodeDecodeError as why:
        raise ConfigError(f"{_KEY}: {file}: is not UTF-8 at byte {why.start}") from why
    keys = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            key = b64decode(text, altchars=b"-_" if "-" in text or "_" in text else None, validate=True)
        except binascii.Error:
            key = b""
        if len(key) != KEY_BYTES:
            raise ConfigError(f"{_KEY}: {file}: line {number}: expected base64 of {KEY_BYTES} bytes")
        keys.append(key)
    if not 1 <= len(keys) <= MAX_KEYS:
        raise ConfigError(f"{_KEY}: {file}: expected 1 to {MAX_KEYS} keys, found {len(keys)}")
    return TokenKeys(keys)
