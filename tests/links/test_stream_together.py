"""
Messages that travel together: several of one turn and lane in one datagram.
"""

import pytest
from msgspec.msgpack import encode as pack

from msgnode.links.stream.body import Body, join
from msgnode.links.stream.common import StreamLimits
from msgnode.links.stream.streams import Envelope
from msgnode.links.wire.datagram import MAX_DATAGRAM_BYTES
from msgnode.links.wire.stream_header import (
    ENCRYPTED,
    MAX_MESSAGES,
    MESSAGE,
    TOMBSTONE,
    WRAPPED,
    StreamHeader,
    decode,
)
from tests.support.links_stream import FakeNet, StreamNode, pair
from tests.support.links_stream_wire import connected, sealed


def headers(net: FakeNet, source: StreamNode) -> list[StreamHeader]:
    """
    The headers of all messages that a node sent.
    """
    found = [decode(datagram.header) for datagram in net.sent if datagram.source == source.name]
    return [header for header in found if header.kind == MESSAGE]


def body(number: int, payload: bytes = b"payload") -> bytes:
    """
    The body of a message, as a peer makes it.
    """
    return pack(Body(Envelope("message", (b"forged", number), 60_000, 5), -1, payload))


def test_messages_of_one_turn_share_a_datagram():
    """
    What is sent to one node in one lane and turn leaves in one datagram, with one tag, in order.
    """
    net, a, b = connected()

    sent = [a.send(b.name, b"%d" % number) for number in range(20)]
    net.run(1)

    (header,) = headers(net, a)
    assert len(header.following) == 19
    assert b.payloads[1:] == [b"%d" % number for number in range(20)]
    assert all(a.reasons(each) == ["acknowledged"] for each in sent)


def test_each_lane_has_datagrams_of_its_own():
    """
    Messages of different priorities share no datagram, so that the urgent ones can overtake.
    """
    net, a, b = connected()

    for number in range(8):
        a.send(b.name, b"%d" % number, 5 + number % 2)
    net.run(1)

    assert sorted((header.lane, len(header.following)) for header in headers(net, a)) == [(5, 3), (6, 3)]


def test_no_datagram_is_longer_than_one_may_be():
    """
    Messages that do not fit into one datagram together leave in the next one, and a longer one in pieces.
    """
    net, a, b = connected()
    payloads = [bytes(size) for size in (9000, 9000, 9000, 9000, MAX_DATAGRAM_BYTES + 1, 10)]

    for payload in payloads:
        a.send(b.name, payload, compress=False)
    net.run(1)

    sizes = [len(datagram.payload) for datagram in net.sent]
    assert max(sizes) <= MAX_DATAGRAM_BYTES
    assert [(len(each.following), each.pieces) for each in headers(net, a)][:2] == [(2, 1), (0, 1)]
    assert b.payloads[1:] == payloads


def test_a_datagram_has_a_bounded_number_of_messages():
    """
    However short they are, at most MAX_MESSAGES messages are in one datagram.
    """
    net, a, b = connected()
    for number in range(400):  # widens the window
        a.send(b.name, b"%d" % number)
    net.run(5)
    net.sent.clear()

    for number in range(300):
        a.send(b.name, b"%d" % number)
    net.run(5)

    assert max(1 + len(header.following) for header in headers(net, a)) == MAX_MESSAGES
    assert len(b.payloads) == 701


def test_each_message_has_its_own_time_to_live():
    """
    Of messages in one datagram, the destination gets the time that each of them has left.
    """
    net, a, b = connected()

    for seconds in (10, 1000, 100):
        a.send(b.name, b"x", ttl_millis=1000 * seconds)
    net.run(1)

    assert len(headers(net, a)) == 1
    assert [round(each.ttl_millis / 1000) for each in b.envelopes[1:]] == [10, 1000, 100]


def test_encrypted_messages_share_no_datagram_with_others():
    """
    Neighbours in a lane that are sent in clear and encrypted are in different datagrams.
    """
    net, a, b = connected()

    for encrypt in (None, True, True, None):
        a.send(b.name, b"secret", encrypt=encrypt)
    net.run(1)

    assert [(each.flags, len(each.following)) for each in headers(net, a)] == [(0, 0), (ENCRYPTED, 1), (0, 0)]
    assert not any(b"secret" in each.payload for each in net.sent if decode(each.header).flags & ENCRYPTED)
    assert b.payloads[1:] == [b"secret"] * 4


def test_a_lost_datagram_of_several_messages_is_made_up_for():
    """
    All messages of a datagram that was lost are sent again, and delivered once and in order.
    """
    net, a, b = connected()
    lost: list[int] = []

    def lose_the_first(datagram):
        if datagram.source == a.name and not lost:
            lost.append(len(decode(datagram.header).following))
            return None
        return datagram

    net.tap = lose_the_first
    for number in range(30):
        a.send(b.name, b"%d" % number)
    net.run(10)

    assert lost == [29]
    assert b.payloads[1:] == [b"%d" % number for number in range(30)]


def test_a_datagram_of_which_a_part_is_known_brings_the_rest():
    """
    Where the first messages of a datagram came before, only the others are delivered.
    """
    net, a, b = connected()

    net.arrive(sealed(a, b, join([body(2), body(3)]), number=2, following=[1000]))
    net.arrive(sealed(a, b, join([body(3), body(4, b"new")]), number=3, following=[1000]))

    assert b.payloads[1:] == [b"payload", b"payload", b"new"]
    assert b.streams.counts["doubled"] == 1


def test_a_message_that_cannot_be_read_takes_no_other_with_it():
    """
    Of several messages in a datagram, one whose body makes no sense is dropped alone.
    """
    net, a, b = connected()

    payload = join([body(2, b"one"), pack("nonsense"), body(4, b"two")])
    net.arrive(sealed(a, b, payload, number=2, following=[1000, 1000]))

    assert b.payloads[1:] == [b"one", b"two"]
    assert b.streams.counts["malformed"] == 1


@pytest.mark.parametrize(
    ("payload", "changes"),
    [
        (join([body(2)]), {}),
        (join([body(2), body(3), body(4)]), {}),
        (body(2), {}),
        (b"\xdc\xff\xff", {}),
        (join([body(2), body(3)]) + b"more", {}),
        (join([body(2), body(3)]), {"pieces": 2}),
        (join([body(2), body(3)]), {"kind": TOMBSTONE}),
        (join([body(2), body(3)]), {"flags": WRAPPED}),
    ],
)
def test_a_datagram_that_states_other_messages_than_it_has_is_dropped(payload, changes):
    """
    A peer that has the keys, and states two messages where there are others, delivers nothing.
    """
    net, a, b = connected()

    net.arrive(sealed(a, b, payload, number=2, following=[1000], **changes))

    assert b.payloads == [b"open"]
    assert b.streams.counts["malformed"] == 1


def test_messages_beyond_the_window_are_dropped():
    """
    A datagram whose last message is beyond the window of its lane is dropped.
    """
    net, a, b = connected()

    net.arrive(sealed(a, b, join([body(2), body(3)]), number=1025, following=[1000]))

    assert b.streams.counts["window"] == 1


def test_what_the_listener_has_no_room_for_is_sent_again():
    """
    Of a datagram with more messages than the listener takes, the first are delivered, the rest comes later.
    """
    net, a, b = pair(limits=StreamLimits(pending=4))
    a.send(b.name, b"open")
    net.run(1)
    b.slow = True

    for number in range(10):
        a.send(b.name, b"%d" % number)
    net.run(0.1)
    first = len(b.ever) - 1
    b.slow = False
    for _ in range(200):
        b.finish()
        net.run(0.5)

    assert first == 4
    assert b.payloads[1:] == [b"%d" % number for number in range(10)]


def test_an_acknowledgement_is_asked_for_when_the_window_is_full():
    """
    Where more waits than may be under way, the destination acknowledges at once, and all of it arrives
    without the time for which acknowledgements are held back.
    """
    net, a, b = connected()

    sent = [a.send(b.name, b"%d" % number) for number in range(300)]
    net.flush(60)

    assert b.payloads[1:] == [b"%d" % number for number in range(300)]
    assert net.clock.seconds() < 1.01
    net.run(1)
    assert all(a.reasons(each) == ["acknowledged"] for each in sent)
