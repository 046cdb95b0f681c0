"""
The body of a message on a stream: its envelope and its bytes, which may be compressed.

A body is made once, when the message is taken, and kept as it is: the pieces of a message are cut from the
same bytes each time it is sent.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec
import zstandard
from msgspec import Meta, Struct
from twisted.internet.interfaces import IReactorTime

from msgnode.links.stream.streams import MAX_SEVERAL, SEVERAL, Envelope
from msgnode.links.wire.datagram import MAX_DATAGRAM_BYTES

MAX_ENVELOPE_BYTES = 64 * 1024
JOIN_BYTES = 3  # that `join` adds
MIN_BYTES = 1024  # shorter payloads are not compressed
MIN_SAVING = 0.1  # of the payload, else it is sent as it is
TRIES_OFF_SECONDS = 30.0  # for how long nothing is tried after payloads did not get smaller
SAMPLES = 8  # of the running estimate, about
LEVEL = 3


_raw_bodies = msgspec.msgpack.Decoder(list[msgspec.Raw])
_payloads = msgspec.msgpack.Decoder(Annotated[list[bytes], Meta(min_length=1, max_length=MAX_SEVERAL)])
_encode = msgspec.msgpack.Encoder().encode


class Malformed(Exception):
    """
    A body that a peer sent and that cannot be read.
    """


class Body(Struct, array_like=True, forbid_unknown_fields=True):
    """
    The body of a message. `size` is that of the payload before compression, -1 if it is not compressed.
    """

    envelope: Envelope
    size: int
    payload: bytes


def join(bodies: Sequence[bytes]) -> bytes:
    """
    The payload of a datagram with these bodies, at most 65,535.
    """
    return b"\xdc" + len(bodies).to_bytes(2, "big") + b"".join(bodies)


def pack(payloads: Sequence[bytes]) -> bytes:
    """
    The payload of a body of several messages.
    """
    return _encode(payloads)


def unpack(payload: bytes) -> list[bytes]:
    """
    The payloads in a body of several messages. Raises Malformed.
    """
    try:
        found: list[bytes] = _payloads.decode(payload)
        return found
    except (msgspec.DecodeError, RecursionError) as why:
        raise Malformed(f"the messages of a body cannot be decoded: {why}") from why


def split(payload: bytes, count: int) -> list[bytes]:
    """
    The bodies of a datagram with several messages. Raises Malformed if there is another number of them.
    """
    try:
        found = [bytes(each) for each in _raw_bodies.decode(payload)]
    except (msgspec.DecodeError, RecursionError) as why:
        raise Malformed(f"the messages of a datagram cannot be told apart: {why}") from why
    if len(found) != count:
        raise Malformed(f"a datagram has {len(found)} messages and states {count}")
    return found


class CompressionEstimate:
    """
    A running estimate, for one destination, of what compression saves. When it is little, nothing is tried
    for a while.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._ratio = 0.5
        self._not_before = 0.0
        self.saved = 0  # bytes

    @property
    def is_worth_it(self) -> bool:
        return self._clock.seconds() >= self._not_before

    def note(self, before: int, after: int) -> None:
        self._ratio += (after / before - self._ratio) / SAMPLES
        if self._ratio > 1 - MIN_SAVING:
            self._not_before = self._clock.seconds() + TRIES_OFF_SECONDS
            self._ratio = 0.5


class BodyCodec:
    """
    Encodes and decodes bodies. No payload is longer than `message_bytes`; both options may change.
    """

    def __init__(self, message_bytes: int, compress: bool) -> None:
        self.message_bytes = message_bytes
        self.compress = compress
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(Body).decode
        self._compressor = zstandard.ZstdCompressor(level=LEVEL)
        self._decompressor = zstandard.ZstdDecompressor()

    def encode(
        self, envelope: Envelope, payload: bytes, can_decompress: bool, estimate: CompressionEstimate
    ) -> bytes:
        if len(payload) > MIN_BYTES and can_decompress:
            wanted = envelope.compress
            if wanted or (wanted is None and self.compress and estimate.is_worth_it):
                smaller = self._compressor.compress(payload)
                estimate.note(len(payload), len(smaller))
                if len(smaller) <= len(payload) * (1 - MIN_SAVING):
                    estimate.saved += len(payload) - len(smaller)
                    return self._encode(Body(envelope, len(payload), smaller))
        return self._encode(Body(envelope, -1, payload))

    def encode_plain(self, envelope: Envelope, payload: bytes) -> bytes:
        """
        A body that is not compressed.
        """
        return self._encode(Body(envelope, -1, payload))

    def decode(self, data: bytes) -> tuple[Envelope, bytes]:
        """
        The envelope and the payload of a body that a peer sent. Raises Malformed.
        """
        try:
            body = self._decode(data)
        except (msgspec.DecodeError, RecursionError) as why:
            raise Malformed(f"a body cannot be decoded: {why}") from why
        size, payload = body.size, body.payload
        if len(data) - len(payload) > MAX_ENVELOPE_BYTES:
            raise Malformed(f"an envelope has {len(data) - len(payload)} bytes")
        if size < 0:
            if len(payload) > self.message_bytes and not (
                body.envelope.kind == SEVERAL and len(payload) <= MAX_DATAGRAM_BYTES
            ):
                raise Malformed(f"a payload has {len(payload)} bytes, the limit is {self.message_bytes}")
            return body.envelope, payload
        if size > self.message_bytes:
            raise Malformed(f"a payload states {size} bytes, the limit is {self.message_bytes}")
        return body.envelope, self._decompress(payload, size)

    def _decompress(self, payload: bytes, size: int) -> bytes:
        try:
            frame = zstandard.get_frame_parameters(payload)
            # The library allocates what the frame states; it must be what the body states.
            if frame.content_size != size:
                raise Malformed(f"a payload of {size} bytes is compressed as {frame.content_size}")
            clear = self._decompressor.decompress(payload, max_output_size=size)
        except zstandard.ZstdError as why:
            raise Malformed(f"a payload cannot be decompressed: {why}") from why
        if len(clear) != size:
            raise Malformed(f"a payload has {len(clear)} bytes and states {size}")
        return clear

    def decompressed(self, data: bytes) -> bytes:
        """
        The body again without compression, for a node that cannot decompress.
        """
        body = self._decode(data)
        if body.size < 0:
            return data
        return self._encode(Body(body.envelope, -1, self._decompress(body.payload, body.size)))

    def envelope(self, data: bytes) -> Envelope:
        """
        The envelope of a body that this node has made.
        """
        return self._decode(data).envelope
