"""
Messages are compressed where it saves something, and no peer can make a node decompress too much.
"""

import os

import msgspec
import pytest
import zstandard

from msgnode.links.stream.body import BodyCodec, CompressionEstimate, Malformed
from msgnode.links.stream.streams import Envelope
from tests.support.links_stream_wire import connected, sealed

WORDS = b"hello " * 1000


def test_long_messages_are_compressed():
    """
    A message that gets smaller by a tenth is sent compressed, and arrives as it was.
    """
    net, a, b = connected()

    a.send(b.name, WORDS)
    net.run(1)

    assert b.payloads[1:] == [WORDS]
    assert sum(len(datagram.payload) for datagram in net.sent) < 500


@pytest.mark.parametrize(
    "payload, fields, options",
    [(b"hello " * 100, {}, {}), (WORDS, {"compress": False}, {}), (WORDS, {}, {"compress": False})],
    ids=["short", "not wanted", "not configured"],
)
def test_some_messages_are_not_compressed(payload, fields, options):
    """
    Not below 1 KiB, and not if the message or the configuration says so.
    """
    net, a, b = connected(**options)

    a.send(b.name, payload, **fields)
    net.run(1)

    assert b.payloads[1:] == [payload]
    assert sum(len(datagram.payload) for datagram in net.sent) > len(payload)


def test_a_message_can_ask_for_compression():
    """
    The message's own flag is before the configuration.
    """
    net, a, b = connected(compress=False)

    a.send(b.name, WORDS, compress=True)
    net.run(1)

    assert sum(len(datagram.payload) for datagram in net.sent) < 500


def test_compression_is_not_tried_for_a_while_where_it_saves_nothing():
    """
    After some messages that did not get smaller, the next ones to that node are not tried for half a minute.
    """
    net, a, b = connected()
    estimate = a.streams.peers[b.name].outgoing.estimate

    for _ in range(30):
        a.send(b.name, os.urandom(2000))
    tried = estimate.is_worth_it
    net.run(31)

    assert not tried
    assert estimate.is_worth_it


def codec(limit: int = 10_000) -> BodyCodec:
    return BodyCodec(limit, compress=True)


def body(size: int, payload: bytes) -> bytes:
    return msgspec.msgpack.encode([Envelope("message", (b"i" * 16, 1), 1000, 5), size, payload])


@pytest.mark.parametrize(
    "size, payload",
    [
        (1 << 32, zstandard.compress(bytes(1 << 20))),
        (9_000, zstandard.compress(bytes(1 << 24))),
        (9_000, zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 20))),
        (9_000, zstandard.compress(bytes(8_999))),
        (9_000, b"no zstandard at all"),
        (9_000, zstandard.compress(bytes(9_000))[:-4]),
        (-1, bytes(10_001)),
    ],
    ids=["states 4 GiB", "is more", "states nothing", "is less", "is none", "is cut", "is too long"],
)
def test_a_decompression_bomb_is_refused(size, payload):
    """
    A payload is decompressed only to the size it states, and never beyond the limit of a message.
    """
    with pytest.raises(Malformed):
        codec().decode(body(size, payload))


def test_a_bomb_on_a_stream_is_counted():
    """
    A peer that sends one is counted; its next message is delivered.
    """
    net, a, b = connected()

    net.arrive(sealed(a, b, body(100, zstandard.compress(bytes(1 << 25)))))
    good = codec().encode(
        Envelope("message", (b"j" * 16, 1), 1000, 5), b"good", False, CompressionEstimate(net.clock)
    )
    net.arrive(sealed(a, b, good, number=3))

    assert b.payloads == [b"open", b"good"]
    assert b.streams.counts["malformed"] == 1
