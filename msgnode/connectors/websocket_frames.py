"""
WebSocket frames as bytes: masks, text frames, and the check for UTF-8.
"""

from codecs import utf_8_decode
from typing import Any

from autobahn.websocket import USES_NVX
from autobahn.websocket.xormasker import create_xor_masker

FINAL_TEXT = 0x81
MAX_PARTS = 64  # parts of an unfinished message, each with memory of its own

# Numbers that repeat 1 in so many four-byte words: one of them times the mask is
# the whole key.  From 2 kB on Autobahn's native masker is as fast.
REPEATED = [int.from_bytes(b"\1\0\0\0" * words, "little") for words in range(2048 // 4)]


def unmasked(mask: bytes, payload: bytes) -> bytes:
    """
    Returns the payload without its four-byte mask.
    """
    size = len(payload)
    words = (size + 3) >> 2
    if words < len(REPEATED):
        key = int.from_bytes(mask, "little") * REPEATED[words]
    elif USES_NVX:
        return bytes(create_xor_masker(mask, size).process(payload))
    else:
        key = int.from_bytes(mask * words, "little")
    return (int.from_bytes(payload, "little") ^ key).to_bytes(words << 2, "little")[:size]


def text_frame(payload: bytes) -> bytes:
    """
    Returns an unfragmented, unmasked text frame.
    """
    size = len(payload)
    if size < 126:
        return bytes((FINAL_TEXT, size)) + payload
    if size < 65536:
        return b"\x81\x7e" + size.to_bytes(2, "big") + payload
    return b"\x81\x7f" + size.to_bytes(8, "big") + payload


def is_text(payload: bytes, whole: bool) -> bool:
    """
    Is payload valid UTF-8, or the beginning of it?
    """
    try:
        used = utf_8_decode(payload, "strict", whole)[1]
    except UnicodeDecodeError:
        return False
    # Python lets the first half of a surrogate wait for the second.
    return not b"\xed\xa0" <= payload[used:] <= b"\xed\xbf"


class Validator:
    """
    A validator of UTF-8 with Autobahn's interface, but fast for the megabytes of an inflated frame.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._rest = b""
        self._total = 0

    def validate(self, data: bytes) -> tuple[bool, bool, int, int]:
        """
        Four values: is it valid so far, does it end with a whole character, and how many bytes are
        valid, of `data` and in all.
        """
        before = self._total
        self._total += len(data)
        if not self._rest and data.isascii():
            return True, True, len(data), self._total
        whole = self._rest + data
        used, bad = _valid_length(whole)
        if bad:
            used -= len(self._rest)
            return False, False, used, before + used
        self._rest = whole[used:]
        return True, not self._rest, len(data), self._total


def _valid_length(data: bytes) -> tuple[int, bool]:
    """
    Returns the number of bytes that are whole characters, and whether the bytes after them are invalid.
    """
    try:
        used = utf_8_decode(data, "strict", False)[1]
    except UnicodeDecodeError as why:
        return why.start, True
    # Python lets the first half of a surrogate wait for the second.
    return used, b"\xed\xa0" <= data[used:] <= b"\xed\xbf"


def gather(parts: list[Any] | None) -> None:
    """
    Join the parts of a frame or a message when there are many: a part of one byte takes 40 bytes of memory.
    """
    if parts is not None and len(parts) > MAX_PARTS:
        whole = parts[0] if isinstance(parts[0], bytearray) else bytearray(parts[0])
        for part in parts[1:]:
            whole += part
        parts[:] = [whole]
