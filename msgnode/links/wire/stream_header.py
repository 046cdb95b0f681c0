"""
The header of a datagram of a stream: what is sent, and what of the other direction was received.

A stream goes from a source to a destination. Its epoch is the source's instance, a random number that a
state directory keeps, with a counter. The instance also names a node's memory: a destination that shows
another one has forgotten all streams.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from msgnode.links.wire.datagram import PRIORITIES

# Kinds.
MESSAGE, TOMBSTONE, OPEN, OPENED, UNKNOWN, ACKNOWLEDGEMENT = range(6)

# Flags: the payload is encrypted; an acknowledgement is wanted at once, because others wait for it; the
# pieces together are a message that is encrypted under a wrapped key (stream/safety/encryption.py).
ENCRYPTED, PROBE, WRAPPED = 1, 2, 4

INSTANCE_BYTES = 16
MAX_RANGES = 16  # in each list of a lane: a header has at most MAX_HEADER_BYTES (wire/datagram.py)
MAX_NUMBER = (1 << 62) - 1
MAX_MESSAGES = 128  # in one datagram: with all ranges, their times to live fit into MAX_HEADER_BYTES

Instance = Annotated[bytes, Meta(min_length=INSTANCE_BYTES, max_length=INSTANCE_BYTES)]
Number = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
Lane = Annotated[int, Meta(ge=0, lt=PRIORITIES)]
Small = Annotated[int, Meta(ge=0, le=0xFFFFFFFF)]
Epoch = tuple[Instance, Number]
Ranges = Annotated[list[tuple[Number, Number]], Meta(max_length=MAX_RANGES)]


class LaneAcknowledgement(Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """
    The acknowledgement of one lane: the destination has all numbers up to `received`, which survive a kill.

    It has the numbers in `ranges` in memory only: the source keeps them, and does not send them again
    meanwhile. Those in `stale` were dropped, as their time to live had ended.
    """

    lane: Lane
    received: Number
    ranges: Ranges
    stale: Ranges


class Acknowledgement(Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """
    An acknowledgement of the stream in the other direction, which has the epoch `epoch`.

    In each lane the source may send numbers up to `received` plus `window`; `room` is how many bytes may be
    under way in all lanes together.
    """

    epoch: Epoch
    window: Small
    room: Small
    lanes: Annotated[list[LaneAcknowledgement], Meta(max_length=PRIORITIES)]


class StreamHeader(Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """
    The header of one datagram.

    `memory` is the instance of the destination that the stream was opened with, empty before. All numbers
    of the lane below `floor` are settled: the destination waits for none of them. `ttl_millis` is what is
    left of the time to live. OPENED and UNKNOWN speak about the epoch of their acknowledgement.

    A datagram may have several messages, of which none is in pieces or wrapped: those after the first have
    the numbers that follow, and `following` has what is left of the time to live of each. The payload is
    then a MessagePack array of bodies.
    """

    kind: Annotated[int, Meta(ge=MESSAGE, le=ACKNOWLEDGEMENT)]
    flags: Annotated[int, Meta(ge=0, le=255)]
    epoch: Epoch
    memory: Annotated[bytes, Meta(max_length=INSTANCE_BYTES)]
    lane: Lane
    number: Number
    floor: Number
    piece: Small
    pieces: Small
    ttl_millis: Number
    acknowledgement: Acknowledgement | None
    following: Annotated[list[Number], Meta(max_length=MAX_MESSAGES - 1)] = []


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(StreamHeader)

encode = _encoder.encode


def decode(data: bytes) -> StreamHeader:
    """
    The header, with each field within its bounds; ValueError otherwise.
    """
    return _decoder.decode(data)
