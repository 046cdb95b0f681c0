"""
The codec of messages on a link, and the queue before them.
"""

import contextlib
from functools import partial

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from msgnode.links.carrier import codec
from msgnode.links.carrier.send_queue import MAX_OVERTAKEN, SendQueue
from msgnode.links.wire.entries import MAX_ENTRIES, MAX_MESSAGE_BYTES, Close, Digest, Hello, Ping, Summary
from tests.support.calls import calls_of
from tests.support.links_carrier import A, datagram

pack = msgspec.msgpack.encode
ENTRIES = [
    Hello(A, "SERVER", "1", 3, ["zstd"], "", 1000),
    datagram(b"x" * 500),
    Digest(b"d" * 32),
    Summary([(A, 1, 2)]),
    Ping(1),
    Close(403, "peer", -1.0),
]


class CodecTests(SynchronousTestCase):
    """
    Messages that are decoded, skipped and refused.
    """

    def refused(self, data: bytes) -> str:
        with self.assertRaises(codec.CodecError) as raised:
            codec.decode(data)
        return str(raised.exception)

    def test_entries_come_back(self) -> None:
        """
        What was encoded is decoded, in order, for few entries and for many.
        """
        for times in (1, 3, 100):
            data = codec.message([codec.encode(entry) for entry in ENTRIES * times])

            self.assertEqual(ENTRIES * times, codec.decode(data))

    def test_unknown_tags_are_skipped(self) -> None:
        """
        An entry with an unknown tag is skipped, whatever is in it.
        """
        data = pack([["later", {"deep": [1, [2]]}], ENTRIES[4], ["later"], ENTRIES[5]])

        self.assertEqual(ENTRIES[4:], codec.decode(data))

    def test_known_tag_that_does_not_decode(self) -> None:
        """
        A known tag with other fields, too many, or fields out of bounds, is refused.
        """
        wrong = [
            ["ping", "x"],
            ["ping", 1, 2],
            ["ping"],
            ["ping", -1],
            ["digest", b"d" * 65],
            ["hello", "a" * 513, "SERVER", "1", 1, [], "", 1],
            ["hello", A, "SERVER", "1", 1, ["x"] * 65, "", 1],
            ["close", 403, "r" * 513, 0.0],
            ["data", pack([1])],
        ]
        for entry in wrong:
            self.assertIn("expected", self.refused(pack([entry])).lower())
            self.refused(pack([["later"], entry]))

    def test_datagram_out_of_bounds(self) -> None:
        """
        A datagram with a priority, a path, a header or a payload out of bounds is refused.
        """
        whole = msgspec.to_builtins(datagram().datagram, builtin_types=(bytes,))
        for place, value in (
            (2, 256),
            (3, [[A, 1]] * 34),
            (4, 10),
            (4, -1),
            (8, bytes(9000)),
            (9, bytes(33000)),
        ):
            wrong = [*whole[:place], value, *whole[place + 1 :]]

            self.refused(pack([["data", wrong]]))

    def test_garbage_is_refused(self) -> None:
        """
        Bytes that are no array of entries are refused; lengths that are announced reserve no memory.
        """
        for data in (
            b"",
            b"\xc1",
            b"\x01",
            b"{}",
            pack({"a": 1}),
            pack([1]),
            pack([[]]),
            pack([[1]]),
            b"\x91" * 100_000,
            b"\xdd\xff\xff\xff\xff",
            b"\xdc\x00",
            b"\x91\x92\xa7summary\xdd\xff\xff\xff\xff",
            b"\x91\x92\xa6digest\xc6\xff\xff\xff\xff",
            b"\x91\x92\xa5state\xa1\xff",
            pack([ENTRIES[4]]) + b"x",
        ):
            self.refused(data)

    def test_messages_are_bounded(self) -> None:
        """
        Too many entries, or too many bytes, are refused before anything is decoded.
        """
        self.assertIn("at most 1024 entries", self.refused(pack([["later"]] * (MAX_ENTRIES + 1))))
        self.assertIn("bytes", self.refused(bytes(MAX_MESSAGE_BYTES + 1)))
        self.assertEqual([], codec.decode(pack([["later"]] * MAX_ENTRIES)))

    def test_largest_messages_are_cheap(self) -> None:
        """
        The costliest messages within the bounds are decoded or skipped in C, without a call for each item.
        """
        summary = pack([["summary", [["", 0, 0]] * ((MAX_MESSAGE_BYTES - 20) // 4)]])
        nested = pack([["later", [[[]] * 1000] * 60]] * 4)
        for data in (summary, nested):
            self.assertLessEqual(len(data), MAX_MESSAGE_BYTES)

            self.assertLess(calls_of(partial(codec.decode, data)), 50)


@given(st.binary(max_size=300))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    """
    No bytes raise anything but CodecError.
    """
    for each in (data, b"\x91" + data, b"\x91\x92\xa4data\x9a" + data):
        with contextlib.suppress(codec.CodecError):
            codec.decode(each)


class SendQueueTests(SynchronousTestCase):
    """
    Ten lanes, with ageing.
    """

    def test_higher_priority_leaves_first(self) -> None:
        """
        A higher priority leaves first; within a lane the order is kept; entries of the link are before all.
        """
        queue = SendQueue(10_000)
        for priority, entry in ((1, b"a"), (5, b"b"), (9, b"c"), (5, b"d")):
            queue.put(priority, entry)
        queue.put_first(b"p")

        self.assertEqual([b"p", b"c", b"b", b"d", b"a", None], [queue.pop() for _ in range(6)])
        self.assertEqual((0, 0, 0), (len(queue), queue.bytes, queue.first_bytes))

    def test_oldest_leaves_after_nine_overtook_it(self) -> None:
        """
        After nine entries of higher priority, the oldest of all leaves.
        """
        queue = SendQueue(100_000)
        queue.put(0, b"old")
        for number in range(20):
            queue.put(9, b"%d" % number)

        left = [queue.pop() for _ in range(21)]

        self.assertEqual(MAX_OVERTAKEN, left.index(b"old"))

    def test_queue_is_bounded_in_bytes(self) -> None:
        """
        An entry that does not fit is refused, and nothing is kept of it.
        """
        queue = SendQueue(1000)

        self.assertTrue(queue.put(5, bytes(500)))
        self.assertFalse(queue.put(9, bytes(500)))
        self.assertEqual([0, 0, 0, 0, 0, 1, 0, 0, 0, 0], queue.lengths())

    def test_message_is_filled_by_what_fits(self) -> None:
        """
        A message takes entries until the next may not fit, and at least one.
        """
        queue = SendQueue(1_000_000)
        for size in (600, 300, 300, 5000):
            queue.put(5, bytes(size))

        taken = [[len(entry) for entry in queue.take(1000, 10)] for _ in range(4)]

        self.assertEqual([[600, 300], [300], [5000], []], taken)
