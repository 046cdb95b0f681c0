"""
Streams under attack: by a node on the way, and by a peer that has the keys.
"""

import os

import msgspec
import pytest

from msgnode.links.stream.common import StreamLimits
from msgnode.links.stream.streams import NoRoom
from msgnode.links.wire.datagram import MAX_HEADER_BYTES, PRIORITIES, Datagram
from msgnode.links.wire.stream_header import (
    MAX_MESSAGES,
    MAX_NUMBER,
    MAX_RANGES,
    Acknowledgement,
    LaneAcknowledgement,
    StreamHeader,
    decode,
    encode,
)
from tests.support.links_stream import StreamNode
from tests.support.links_stream_wire import connected, next_datagram, sealed


@pytest.mark.parametrize(
    "change",
    [
        {"payload": b"another"},
        {"header": encode(StreamHeader(0, 0, (b"e" * 16, 1), b"", 5, 2, 1, 0, 1, 9, None))},
        {"priority": 6},
        {"nonce": 999},
        {"tag": bytes(16)},
        {"tag": b""},
        {"nonce": -1},
        {"nonce": 1 << 63},
        {"key": "0000"},
        {"source": "mn://c.example/1"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_changed_datagram_is_dropped(change):
    """
    Nothing that a node on the way changes is accepted, and the true datagram is.
    """
    net, a, b = connected()
    c = StreamNode(net, "mn://c.example/1")
    c.send(b.name, b"c opens")
    net.run(1)
    true = next_datagram(net, a, b)

    net.arrive(msgspec.structs.replace(true, **change))
    net.flush()
    before = b.payloads[2:]
    net.arrive(true)
    net.flush()

    assert before == []
    assert b.payloads[2:] == [b"payload"]
    assert b.streams.counts["tag"] + b.streams.counts["key"] == 1


def test_path_and_hop_limit_may_change():
    """
    Nodes on the way write their names into the path; the listener gets it.
    """
    net, a, b = connected()
    true = next_datagram(net, a, b)

    net.arrive(msgspec.structs.replace(true, hop_limit=3, path=[(a.name, 12)]))

    assert b.payloads[1:] == [b"payload"]


def test_a_replayed_datagram_is_dropped():
    """
    A datagram counts once, whatever it says.
    """
    net, a, b = connected()
    true = next_datagram(net, a, b)

    net.arrive(true)
    net.arrive(true)

    assert b.payloads[1:] == [b"payload"]
    assert b.streams.counts["tag"] == 1


def test_a_stranger_is_not_heard():
    """
    A node whose keys are not known has no streams here.
    """
    net, _, b = connected()
    stranger = Datagram("mn://x.example/1", b.name, 32, [], 5, "k", 1, bytes(16), b"", b"")

    net.arrive(stranger)

    assert list(b.streams.peers) == ["mn://a.example/1"]
    assert b.streams.counts["stranger"] == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"number": 2000, "floor": 2000 - 1500},
        {"number": 0, "floor": 0},
        {"floor": 3},
        {"floor": 0},
        {"pieces": 0},
        {"pieces": 4_000_000_000},
        {"piece": 7, "pieces": 7},
        {"lane": 6},
    ],
    ids=str,
)
def test_a_header_out_of_bounds_is_dropped(changes):
    """
    Numbers out of the window and claims of four billion pieces are dropped and counted, and take no memory.
    """
    net, a, b = connected()

    net.arrive(sealed(a, b, b"x", **({"number": 1500, "floor": 1} | changes)))

    assert b.payloads == [b"open"]
    assert b.streams.memory_bytes == 0
    assert b.streams.counts["malformed"] + b.streams.counts["window"] == 1


def test_a_datagram_of_an_unknown_epoch_is_answered_and_not_delivered():
    """
    The source gets to know that its epoch is unknown here; if that is not its epoch, it ignores this.
    """
    net, a, b = connected()

    net.arrive(sealed(a, b, b"x", epoch=(b"u" * 16, 1)))
    net.run(1)

    assert b.payloads == [b"open"]
    assert b.streams.counts["unknown-epoch"] == 1
    assert a.streams.counts["in-doubt"] == 0


@pytest.mark.parametrize(
    "lane",
    [
        LaneAcknowledgement(5, 1, [(9, 3)], []),
        LaneAcknowledgement(5, 1, [], [(1, 900)]),
        LaneAcknowledgement(5, 2, [], [(2, 1)]),
    ],
    ids=str,
)
def test_an_acknowledgement_that_makes_no_sense_is_dropped(lane):
    """
    Ranges of an acknowledgement ascend, and stale numbers are among those that were received.
    """
    net, a, b = connected()
    b.send(a.name, b"open")
    net.run(1)
    next_datagram(net, a, b)
    epoch = a.streams.peers[b.name].outgoing.epoch

    net.arrive(sealed(b, a, kind=5, priority=8, acknowledgement=Acknowledgement(epoch, 1000, 1000, [lane])))

    assert a.streams.counts["acknowledgement"] == 1
    assert len(a.streams.peers[b.name].outgoing) == 1


@pytest.mark.parametrize(
    "lane",
    [
        LaneAcknowledgement(5, 10, [], []),
        LaneAcknowledgement(5, 1, [(3, 1 << 61)], []),
        LaneAcknowledgement(4, 1, [], []),
    ],
    ids=str,
)
def test_an_acknowledgement_of_what_was_never_sent_begins_another_epoch(lane):
    """
    One of the two nodes has lost its memory: what was sent is in doubt, and nobody counts to 2 to the power
    of 61. What follows is delivered.
    """
    net, a, b = connected()
    b.send(a.name, b"open")
    net.run(1)
    next_datagram(net, a, b)
    (sent,) = [each for each in a.sent if not a.reasons(each)]
    epoch = a.streams.peers[b.name].outgoing.epoch
    net.tap = lambda datagram: datagram

    net.arrive(sealed(b, a, kind=5, priority=8, acknowledgement=Acknowledgement(epoch, 1000, 1000, [lane])))
    after = a.send(b.name, b"after")
    net.run(2)

    assert a.reasons(sent) == ["in-doubt"]
    assert a.reasons(after) == ["acknowledged"]
    assert b.payloads == [b"open", b"after"]


def test_pieces_that_never_become_whole_take_bounded_memory():
    """
    A peer that sends the first piece of very many messages fills half of one budget, and honest streams go
    on.
    """
    net, a, b = connected(limits=StreamLimits(receive_bytes=200_000))
    for number in range(3, 1000):
        net.arrive(sealed(a, b, bytes(1000), number=number, pieces=100))
    used = b.streams.memory_bytes
    c = StreamNode(net, "mn://c.example/1", limits=StreamLimits())
    payload = os.urandom(90_000)
    net.tap = lambda datagram: datagram

    c.send(b.name, payload)
    net.run(5)

    assert used <= 100_000
    assert b.payloads == [b"open", payload]


@pytest.mark.parametrize("header", [b"", b"\xc1", b"\x91" * 10_000, bytes(range(50)), b"\x91\x01"], ids=len)
def test_a_header_that_cannot_be_decoded_is_dropped(header):
    """
    Nonsense in the place of a header is counted.
    """
    net, a, b = connected()
    true = next_datagram(net, a, b)

    net.arrive(msgspec.structs.replace(true, header=header))

    assert b.streams.counts["malformed"] == 1


def test_a_body_that_cannot_be_decoded_is_counted_and_passed_over():
    """
    A peer that sends nonsense as a message does not stop its own stream here.
    """
    net, a, b = connected()

    net.arrive(sealed(a, b, b"nonsense"))
    net.arrive(sealed(a, b, msgspec.msgpack.encode([1, 2]), number=3))

    assert b.payloads == [b"open"]
    assert b.streams.counts["malformed"] == 2


def test_one_source_does_not_take_the_room_of_others():
    """
    A peer that begins a long message in each lane, and never ends them, leaves room for those of other nodes.
    """
    net, a, b = connected(limits=StreamLimits(receive_bytes=2_000_000, message_bytes=900_000))
    for lane in range(10):
        for piece in range(27):
            net.arrive(
                sealed(a, b, bytes(32_000), lane, lane=lane, number=5, floor=5, piece=piece, pieces=28)
            )
    c = StreamNode(net, "mn://c.example/1")
    payloads = [os.urandom(100_000), os.urandom(100_000)]

    for payload in payloads:
        c.send(b.name, payload)
    net.run(10)

    assert b.payloads[1:] == payloads


def test_a_message_of_the_greatest_length_arrives():
    """
    The limit is on the message itself; its envelope may have 64 KiB more, and no longer one is taken.
    """
    net, a, b = connected(limits=StreamLimits(message_bytes=100_000))
    payload = os.urandom(100_000)

    a.send(b.name, payload, identity={"subject": "x" * 50_000}, encrypt=True)
    net.run(2)

    assert b.payloads[1:] == [payload]
    with pytest.raises(NoRoom):
        a.send(b.name, b"", identity={"subject": "x" * 70_000})


def test_the_longest_header_fits_into_a_datagram():
    """
    An acknowledgement of all lanes, with as many gaps as it can have, is not refused on a link.
    """
    ranges = [(MAX_NUMBER - 2 * n - 1, MAX_NUMBER - 2 * n) for n in range(MAX_RANGES)]
    lanes = [LaneAcknowledgement(lane, MAX_NUMBER, ranges, ranges) for lane in range(PRIORITIES)]
    epoch, most = (b"e" * 16, MAX_NUMBER), 0xFFFFFFFF

    header = StreamHeader(
        5,
        255,
        epoch,
        b"m" * 16,
        9,
        MAX_NUMBER,
        MAX_NUMBER,
        most,
        most,
        MAX_NUMBER,
        Acknowledgement(epoch, most, most, lanes),
        [MAX_NUMBER] * (MAX_MESSAGES - 1),
    )

    assert len(encode(header)) <= MAX_HEADER_BYTES
    assert decode(encode(header)) == header
