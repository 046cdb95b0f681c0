"""
The trace context of W3C and OpenTelemetry, in the header field `traceparent` of a message.

The node passes it on unchanged as any other header field, and writes it into the traffic log.  It reads
nothing else of it, and exports no spans.
"""

import re

import msgspec
from msgspec import Struct

KEY = b'"traceparent"'  # is in the bytes of each message that has one
MAX_BYTES = 16 * 1024  # of a message that is searched, in up to 3 us; of longer ones it is not logged
_VALID = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)


class _Header(Struct):
    """
    The one header field that is read.
    """

    traceparent: str = ""


_decode = msgspec.json.Decoder(_Header).decode


def trace_context(data: bytes) -> str:
    """
    The trace context of a message, given as its bytes; "" without a valid one in its header.
    """
    if len(data) > MAX_BYTES:
        return ""
    try:
        found = _decode(data).traceparent
    except (msgspec.DecodeError, RecursionError):
        return ""
    return found if _VALID.fullmatch(found) else ""
