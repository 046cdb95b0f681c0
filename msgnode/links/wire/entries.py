"""
The entries on a link. A WebSocket message of `msgnode-link.1` is a MessagePack array of entries.

Each entry is an array whose first item is its tag. An unknown tag is skipped, so that a later version can
add one; an entry of a known tag that does not decode ends the link.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from msgnode.links.wire.datagram import Datagram, Name

SUB_PROTOCOL = "msgnode-link.1"
PATH = "/link"

MAX_MESSAGE_BYTES = 256 * 1024  # of one WebSocket message
MAX_ENTRIES = 1024  # in one message
MAX_ADVERTISEMENT_CHARS = 32 * 1024
MAX_FEATURES = 64
CHECK = "check"  # the feature of a hello that asks whether a link would be accepted, and wants none

# The decoder checks these bounds, before any other code sees an entry.
Word = Annotated[str, Meta(max_length=128)]
Counter = Annotated[int, Meta(ge=0)]


class Entry(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """
    The base of all entries.
    """


class Hello(Entry, tag="hello"):
    """
    The first entry in each direction.

    `epoch` is the node's start counter: a newer start replaces an older link. `contact` is a mail
    address for operators, or empty. `kind` is `SERVER` or `CLIENT`; a CLIENT node is an end, never
    transit. `features` are optional parts of the protocol; unknown ones are ignored.
    """

    node: Name
    kind: Word
    version: Word
    epoch: Counter
    features: Annotated[list[Word], Meta(max_length=MAX_FEATURES)]
    contact: Word
    max_bytes: Counter  # of one WebSocket message that this end takes


class Data(Entry, tag="data"):
    """
    One datagram.
    """

    datagram: Datagram


class State(Entry, tag="state"):
    """
    A signed advertisement: a JWS in compact form (overlay/advertisement.py).
    """

    advertisement: Annotated[str, Meta(max_length=MAX_ADVERTISEMENT_CHARS)]


class Digest(Entry, tag="digest"):
    """
    A digest of the sender's map. Where both differ twice in a row, each sends `Summary`.
    """

    digest: Annotated[bytes, Meta(max_length=64)]


class Summary(Entry, tag="summary"):
    """
    Each node of the sender's map with the sequence it has of it: (start counter, counter).
    """

    nodes: list[tuple[Name, Counter, Counter]]


class Ping(Entry, tag="ping"):
    """
    A ping; the other end returns `number` in a Pong at once.
    """

    number: Counter


class Pong(Entry, tag="pong"):
    """
    The answer to a ping.
    """

    number: Counter


class Close(Entry, tag="close"):
    """
    The last entry: why the link ends. `retry_after` in seconds; -1: not before the configuration changes.
    """

    code: Counter
    reason: Annotated[str, Meta(max_length=512)]
    retry_after: float


AnyEntry = Hello | Data | State | Digest | Summary | Ping | Pong | Close
