r"""
Lone surrogates: halves of a character, spelt as escapes (`\ud83d`).

JSON.stringify writes one if a text was cut inside an emoji, and JSON.parse accepts it; msgspec does not.
U+FFFD replaces it here, spelt in as many bytes, so that all other positions stay the same.
"""

import re

MAX_SURROGATES = 100_000  # in one message; a message with more is not text
_REPLACEMENT = rb"\ufffd"
_LONE = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})"
)


def is_between(data: bytes, start: int, end: int) -> bool:
    """
    Is there a lone surrogate in this range?
    """
    return _LONE.search(_without_backslashes(data), start, end) is not None


def replaced(data: bytes) -> bytes:
    """
    The same JSON with U+FFFD in the place of lone surrogates; of the same length.
    """
    plain = _without_backslashes(data)
    if plain is data:
        return _LONE.sub(rb"\\ufffd", data, MAX_SURROGATES)
    whole = bytearray(data)
    for _, found in zip(range(MAX_SURROGATES), _LONE.finditer(plain), strict=False):
        whole[found.start() : found.end()] = _REPLACEMENT
    return bytes(whole)


def _without_backslashes(data: bytes) -> bytes:
    r"""
    The same bytes, where no escaped backslash looks like the start of an escape, as in `\\ud83d`.
    """
    return data.replace(rb"\\", b"//") if rb"\\" in data else data
