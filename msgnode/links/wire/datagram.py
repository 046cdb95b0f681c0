"""
The datagram: what the overlay forwards from node to node, at most once.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from msgnode.links.wire.node_name import MAX_NODE_NAME_CHARS

MAX_DATAGRAM_BYTES = 32 * 1024  # of the payload; streams cut what is longer into pieces
HOP_LIMIT = 32
PRIORITIES = 10  # 9 is the highest
MAX_HEADER_BYTES = 8 * 1024  # of a stream header

# The decoder checks these bounds, before any other code sees a datagram.
Name = Annotated[str, Meta(max_length=MAX_NODE_NAME_CHARS)]
Hops = Annotated[int, Meta(ge=0, le=255)]
Path = Annotated[list[tuple[Name, Annotated[int, Meta(ge=0)]]], Meta(max_length=HOP_LIMIT + 1)]
Priority = Annotated[int, Meta(ge=0, lt=PRIORITIES)]


class Datagram(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """
    A datagram from `source` to `destination`, both node names.

    `hop_limit` and `path` change at each hop and are not authenticated: `path` has the nodes it has left,
    the source first, each with the microseconds it stayed there. All other fields are authenticated by
    `tag` (16 bytes; AEAD) under the key that source and destination agreed on; `nonce` is its counter and
    `key` names the key. `header` is a stream header (wire/stream_header.py), `payload` is its piece of a
    message, encrypted if the header says so.
    """

    source: Name
    destination: Name
    hop_limit: Hops
    path: Path
    priority: Priority
    key: Annotated[str, Meta(max_length=128)]
    nonce: Annotated[int, Meta(ge=0)]
    tag: Annotated[bytes, Meta(max_length=16)]
    header: Annotated[bytes, Meta(max_length=MAX_HEADER_BYTES)]
    payload: Annotated[bytes, Meta(max_length=MAX_DATAGRAM_BYTES)]
