"""
Several messages that are sent as one: they have one number and one record, and each its own outcome.
"""

from pathlib import Path
from shutil import copytree

import pytest
from msgspec.msgpack import encode as pack

from msgnode.links.stream.body import Body
from msgnode.links.stream.common import StreamLimits
from msgnode.links.stream.streams import MAX_SEVERAL, SEVERAL, Envelope, NoRoom
from msgnode.links.wire.stream_header import MESSAGE, decode
from tests.support.links_stream import FakeNet, StreamNode, pair
from tests.support.links_stream_wire import connected, sealed

PAYLOADS = [b"one", b"two", b"three", b"four"]


def on_disk(tmp_path: Path, **options) -> tuple[FakeNet, StreamNode, StreamNode]:
    """
    Two nodes with disks, and a stream from the first to the second.
    """
    net = FakeNet()
    a = StreamNode(net, "mn://a.example/1", tmp_path / "a", **options)
    b = StreamNode(net, "mn://b.example/1", tmp_path / "b", **options)
    a.send(b.name, b"open")
    net.run(1)
    return net, a, b


def test_they_have_one_number_and_arrive_in_order():
    """
    They are one message of the stream, between those before and after, with ids that follow each other.
    """
    net, a, b = connected()

    a.send(b.name, b"before")
    a.send_several(b.name, PAYLOADS)
    a.send(b.name, b"after")
    net.run(1)

    assert b.payloads[1:] == [b"before", *PAYLOADS, b"after"]
    (header,) = [each for each in map(decode, [sent.header for sent in net.sent]) if each.kind == MESSAGE]
    assert len(header.following) == 2
    assert [each.id[1] for each in b.envelopes[1:]] == [2, 3, 7]
    assert not a.streams.undelivered(b.name)


def test_each_of_them_counts():
    """
    They take as much room in the queue as messages that are sent one by one, and count as many.
    """
    _, a, b = connected(limits=StreamLimits(queue_messages=10))

    a.send_several(b.name, PAYLOADS)
    assert a.streams.undelivered(b.name) == 4
    assert a.streams.would_take(b.name, "", 6, 100)
    assert not a.streams.would_take(b.name, "", 7, 100)
    a.send_several(b.name, PAYLOADS)
    with pytest.raises(NoRoom):
        a.send_several(b.name, PAYLOADS)
    assert a.streams.undelivered(b.name) == 8


def test_no_sender_takes_more_than_its_share_with_them():
    """
    The quarter of the queue that one sender may take is counted in messages, also in its larger entries.
    """
    _, a, b = connected(limits=StreamLimits(queue_messages=40))

    a.send_several(b.name, PAYLOADS, sender="runtime://a.example/1")
    a.send_several(b.name, PAYLOADS, sender="runtime://a.example/1")

    assert not a.streams.would_take(b.name, "runtime://a.example/1", 3, 100)
    assert a.streams.would_take(b.name, "runtime://a.example/2", 3, 100)


def test_each_has_its_outcome_if_they_are_not_delivered():
    """
    The sender is told of each message that was dropped, with its own bytes.
    """
    net, a, b = connected()
    net.set_route(a.name, b.name, False)

    sent = a.send_several(b.name, PAYLOADS)
    assert a.streams.forget(b.name) == 4
    net.run(1)

    assert [a.reasons(each) for each in sent] == [["no-path"]] * 4


def test_each_has_its_outcome_after_a_restart(tmp_path):
    """
    What was sent before a restart is counted, and its end is told, message by message.
    """
    net, a, b = on_disk(tmp_path)
    net.set_route(a.name, b.name, False)
    sent = a.send_several(b.name, PAYLOADS)
    net.run(1)

    a.restart()
    assert a.streams.undelivered(b.name) == 4
    a.streams.forget(b.name)
    net.run(1)

    assert [a.reasons(each) for each in sent] == [["no-path"]] * 4


def test_those_that_the_listener_is_not_done_with_come_again(tmp_path):
    """
    A message that takes longer is kept alone: after a kill it comes again, and none of the others.
    """
    net, a, b = on_disk(tmp_path)

    def take_long() -> None:
        b.slow = len(b.ever) == 3

    b.on_received = take_long
    a.send_several(b.name, PAYLOADS)
    net.run(1)
    assert b.payloads[1:] == [b"one", b"three", b"four"]
    assert not a.streams.undelivered(b.name)

    b.on_received, b.slow = lambda: None, False
    b.restart()
    net.run(1)
    assert b.payloads[1:] == [b"one", b"three", b"four", b"two"]

    b.restart()
    net.run(1)
    assert len(b.ever) == 6  # those, and "two" once again


def test_a_batch_that_is_written_in_the_middle_loses_and_doubles_nothing(tmp_path):
    """
    After a kill between two of them, those before do not come again, and those after do.
    """
    net, a, b = on_disk(tmp_path)

    def write_and_copy() -> None:
        if len(b.ever) == 3:
            b.journal.settle()
            copytree(tmp_path / "b", tmp_path / "killed")

    b.on_received = write_and_copy
    a.send_several(b.name, PAYLOADS)
    net.run(1)
    assert b.payloads[1:] == PAYLOADS
    b.kill()
    a.kill()

    killed = StreamNode(net, b.name, tmp_path / "killed")
    net.run(1)
    assert killed.payloads[1:] == PAYLOADS
    a.start()
    net.run(5)
    assert killed.payloads[1:] == PAYLOADS


def test_a_body_of_several_that_makes_no_sense_is_dropped():
    """
    A payload that is no list, an empty one, and one of too many messages are counted as malformed.
    """
    net, a, b = connected()
    made = [b"\xc1", pack([]), pack([b""] * (MAX_SEVERAL + 1)), pack([1, 2]), pack([b"good"])]

    for number, payload in enumerate(made):
        body = pack(Body(Envelope(SEVERAL, (b"forged", number), 60_000, 5), -1, payload))
        b.streams.received(sealed(a, b, body, number=2 + number))
    net.run(1)

    assert b.streams.counts["malformed"] == 4
    assert b.payloads[1:] == [b"good"]


def test_a_message_that_is_too_long_for_the_node_is_dropped_alone():
    """
    The limit of a message is that of each: several short ones may be longer than it together.
    """
    net, a, b = pair(limits=StreamLimits(message_bytes=1000))

    a.send_several(b.name, [bytes(900)] * 4)
    net.run(1)
    a.send_several(b.name, [b"short", bytes(1001), b"last"])
    net.run(1)

    assert b.payloads == [bytes(900)] * 4 + [b"short", b"last"]
    assert b.streams.counts["malformed"] == 1
