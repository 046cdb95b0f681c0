"""
Messages and their headers.

The block of headers is `NATS/1.0`, a status or none, and lines `Name: value` that end with CR LF; an empty
line ends it. (Source: NATS client protocol, HMSG and HPUB; ADR-4, "NATS Message Headers".)
"""

import re
from collections.abc import Mapping, Sequence

import msgspec

from msgnode.nats.errors import HeaderError, SubjectError

VERSION = b"NATS/1.0"
NO_RESPONDERS = 503
_STATUS = re.compile(rb"NATS/1\.0[ \t]+(\d{3})(?:[ \t]+(.*))?$")
_NAME = re.compile(r"[!-9;-~]+")  # visible ASCII without the colon

Headers = Mapping[str, str | Sequence[str]]


class Message(msgspec.Struct):
    """
    A message that came: `subject` it was published at, `reply` subject or "", `payload` as it was sent.

    Bytes of a subject that are not UTF-8 are kept as lone surrogates, so that an answer finds its way.
    `raw_headers` is the block of headers, or empty.
    """

    subject: str
    reply: str
    payload: bytes
    raw_headers: bytes = b""

    @property
    def headers(self) -> dict[str, list[str]]:
        """
        The values by the name of the header, in their order. HeaderError if the block is malformed.
        """
        return decode_headers(self.raw_headers)

    @property
    def status(self) -> int:
        """
        The status in the first line, for instance 503; 0 if there is none.
        """
        found = _STATUS.match(self.raw_headers.partition(b"\r\n")[0]) if self.raw_headers else None
        return int(found[1]) if found else 0


def decode_headers(block: bytes) -> dict[str, list[str]]:
    """
    The values by name of a block of headers. HeaderError if it is malformed.
    """
    if not block:
        return {}
    first, *lines = block.split(b"\r\n")
    if first.rstrip() != VERSION and not _STATUS.match(first):
        raise HeaderError(f"expected headers that begin with NATS/1.0, found {first[:40]!r}")
    found: dict[str, list[str]] = {}
    for line in lines:
        if not line:
            continue
        name, colon, value = str(line, "utf-8", "surrogateescape").partition(":")
        if not colon or not name:
            raise HeaderError(f"expected a header 'Name: value', found {line[:40]!r}")
        found.setdefault(name.strip(), []).append(value.strip())
    return found


def encode_headers(headers: Headers) -> bytes:
    """
    The block of these headers; a name may have several values. SubjectError if a line cannot be written.
    """
    lines = [VERSION]
    for name, values in headers.items():
        if not _NAME.fullmatch(name):
            raise SubjectError(f"expected a header name of visible ASCII without ':', found {name[:40]!r}")
        for value in (values,) if isinstance(values, str) else values:
            if "\r" in value or "\n" in value:
                raise SubjectError(f"expected a value of one line for the header {name}")
            lines.append(f"{name}: {value}".encode("utf-8", "surrogateescape"))
    return b"\r\n".join([*lines, b"", b""])
