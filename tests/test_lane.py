"""
The lane and Autobahn alone must not be told apart: each rule by a script.
"""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.connectors.cork import Cork
from msgnode.connectors.lane import KEPT, text_frame, unmasked
from tests.lane_pair import MASK, Peer, Side, close, compare, frame, ping, pong, xor

DEFLATE = b"Sec-WebSocket-Extensions: permessage-deflate\r\n"


class Comparing(SynchronousTestCase):
    """
    Runs a script on both sides.
    """

    def same(self, script: list[tuple], lane: int | None = None, **how: Any) -> Side:
        """
        The script looks the same from outside, and so many of its messages went through the lane.
        """
        side = compare(script, **how)
        if lane is not None:
            self.assertEqual(lane, len(side.peer.messages) - side.peer.by_autobahn)
        return side


class TakingTests(Comparing):
    """
    What the lane takes, and what it leaves to Autobahn.
    """

    def test_takes_texts(self) -> None:
        """
        Texts of either short length, empty, ASCII or not, many in a read, go through the lane.
        """
        texts = [b"", b"a", b"x" * 125, b"y" * 126, "żółć €".encode(), b"z" * 1499, b"z" * 1500, b"w" * 60000]

        side = self.same([("read", b"".join(frame(text) for text in texts))], lane=len(texts))

        self.assertEqual([("text", text) for text in texts], side.peer.messages)

    def test_continues_cut_frames(self) -> None:
        """
        A frame that is cut anywhere by the reads goes through the lane all the same.
        """
        stream = frame(b"one") + frame("ż".encode() * 100) + frame(b"")

        for cut in range(len(stream) + 1):
            self.same([("read", stream[:cut]), ("read", stream[cut:])], lane=3)
        self.same([("read", stream[at : at + 1]) for at in range(len(stream))], lane=3)

    def test_leaves_other_frames(self) -> None:
        """
        Binary messages, pings, pongs, fragments and faulty frames are Autobahn's.
        """
        for first in range(256):
            if first != 0x81:
                for fail_by_drop in (True, False):
                    self.same(
                        [("read", frame(b"a") + frame(b"\x03\xe8", first=first) + frame(b"b") + close())],
                        options={"failByDrop": fail_by_drop},
                        lane=1,
                    )

    def test_leaves_unmasked(self) -> None:
        """
        A client that does not mask is told so, or heard, as Autobahn's option says.
        """
        for required in (True, False):
            self.same(
                [("read", frame(b"a") + frame(b"b", mask=None)), ("read", frame(b"c"))],
                options={"requireMaskedClientFrames": required, "failByDrop": False},
                lane=1 if required else 2,
            )

    def test_leaves_long_frames(self) -> None:
        """
        A frame that does not fit in one read is Autobahn's, and the next one is the lane's again.
        """
        stream = frame(b"v" * 70000) + frame(b"short")

        self.same([("read", stream[at : at + 65536]) for at in range(0, len(stream), 65536)], lane=1)
        self.same([("read", stream)], lane=0)

    def test_fragments(self) -> None:
        """
        A fragmented message is Autobahn's until it ends, with the pings and the faults inside it.
        """
        parts = [frame(b"be", first=0x01), frame(b"gi", first=0x00), ping(), frame(b"n", first=0x80)]

        self.same([("read", part) for part in [*parts, frame(b"next")]], lane=1)
        self.same([("read", b"".join(parts)), ("read", frame(b"next"))], lane=1)
        self.same([("read", part) for part in [parts[0], frame(b"inside"), close()]], lane=0)
        self.same([("read", parts[0][:3]), ("read", parts[0][3:] + frame(b"inside"))], lane=0)

    def test_part_inside_fragments(self) -> None:
        """
        A text that begins inside a fragmented message is refused as soon as its header is there.
        """
        self.same(
            [("read", frame(b"be", first=0x01)), ("read", frame(b"inside")[:8]), ("read", close())], lane=0
        )

    def test_autobahn_holds_bytes(self) -> None:
        """
        The lane waits while Autobahn has the beginning of a header.
        """
        stream = ping() + frame(b"a" * 200) + frame(b"b")
        at = len(ping()) + 3

        self.same([("read", stream[:at]), ("read", stream[at:])], lane=0)

    def test_comes_back(self) -> None:
        """
        One ping in a stream whose reads all end inside a frame does not keep the stream out of the lane.
        """
        stream = ping() + frame(b"a" * 200) * 10
        reads = [("read", stream[at : at + 300]) for at in range(0, len(stream), 300)]

        self.same(reads, lane=8)

    def test_early_frames(self) -> None:
        """
        Texts that come before the handshake is done are Autobahn's business.
        """
        side = Side(lane=True)
        late = side.factory.buildProtocol(None)
        late.makeConnection(side.wire)

        late.dataReceived(frame(b"too early"))

        self.assertEqual([], late.messages)


class LengthTests(Comparing):
    """
    Limits, and lengths that are not what they should be.
    """

    def test_limits(self) -> None:
        """
        A text of just the limit passes and one byte more is refused, whichever limit it is.
        """
        for limits in ({"maxFramePayloadSize": 130}, {"maxMessagePayloadSize": 130}):
            for size, taken in ((129, 2), (130, 2), (131, 1)):
                for fail_by_drop in (True, False):
                    stream = frame(b"a") + frame(b"x" * size) + close()
                    self.same([("read", stream)], options={**limits, "failByDrop": fail_by_drop}, lane=taken)

    def test_both_limits(self) -> None:
        """
        The lower of the two limits holds, and Autobahn says which it was.
        """
        for frames, messages in ((20, 40), (40, 20)):
            options = {"maxFramePayloadSize": frames, "maxMessagePayloadSize": messages, "failByDrop": False}
            for size in (20, 21, 40, 41):
                self.same([("read", frame(b"x" * size)), ("read", close())], options=options)

    def test_refused_early(self) -> None:
        """
        A text over the limit is refused when its header has come, not when all of it has.
        """
        for head in (6, 8, 9):
            side = self.same([("read", frame(b"x" * 131)[:head])], options={"maxFramePayloadSize": 130})

            self.assertEqual(head > 6, side.wire.out == ["abort"])

    def test_longer_than_need_be(self) -> None:
        """
        A length in a longer form than it needs is a fault, wherever the reads cut.
        """
        for form, sizes in ((126, (0, 5, 125)), (127, (0, 5, 125, 126, 65535))):
            for size in sizes:
                bad = frame(b"x" * size, form=form)
                for fail_by_drop in (True, False):
                    for cut in (1, 2, 3, 4, 8, 12, len(bad)):
                        script = [("read", frame(b"a") + bad[:cut]), ("read", bad[cut:] + close())]
                        self.same(script, options={"failByDrop": fail_by_drop}, lane=1)

    def test_enormous(self) -> None:
        """
        Nobody can say 2^63 bytes, and just less is Autobahn's.
        """
        for claim in (2**63 - 1, 2**63, 2**64 - 1):
            for options in ({}, {"failByDrop": False}, {"maxFramePayloadSize": 1000}):
                bad = frame(b"x" * 20, claim=claim)
                self.same([("read", frame(b"a") + bad), ("read", bad), ("lost",)], options=options, lane=1)

    def test_dripped(self) -> None:
        """
        Of a frame that drips in, the lane keeps no more than its share; Autobahn keeps the rest.
        """
        stream = frame(b"x" * (KEPT + 5000)) + frame(b"after")
        side = Side(lane=True)
        most = 0

        for at in range(0, len(stream), 64):
            side.step("read", stream[at : at + 64])
            most = max(most, len(side.peer._kept))

        self.assertEqual([KEPT + 5000, 5], [len(payload) for _, payload in side.peer.messages])
        self.assertTrue(KEPT - 64 < most <= KEPT, most)
        self.same([("read", stream[at : at + 999]) for at in range(0, len(stream), 999)], lane=1)


class TextTests(Comparing):
    """
    UTF-8.
    """

    BAD = (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\x80")

    def test_invalid(self) -> None:
        """
        Invalid UTF-8 ends the connection with Autobahn's verdict, and nothing after it is heard.
        """
        for bad in self.BAD:
            for fail_by_drop in (True, False):
                stream = frame(b"good") + frame(b"text " + bad) + frame(b"more") + close()
                side = self.same(
                    [("read", stream)],
                    options={"failByDrop": fail_by_drop},
                    reactions={1: "answer"},
                    lane=1,
                )

                self.assertTrue(side.peer.failedByMe)

    def test_invalid_in_part(self) -> None:
        """
        A bad byte is reported when it comes, though its frame has not ended.
        """
        for bad in self.BAD:
            for size in (0, 300):
                whole = frame(b"text " + bad + b"x" * size)
                for cut in range(9, min(len(whole), 22)):
                    for fail_by_drop in (True, False):
                        self.same(
                            [
                                ("read", whole[:cut]),
                                ("read", whole[cut:]),
                                ("read", frame(b"more") + close()),
                            ],
                            options={"failByDrop": fail_by_drop},
                        )

    def test_cut_character(self) -> None:
        """
        A character that the reads cut in two is no fault.
        """
        whole = frame("a€b\U0001f600c".encode())

        for cut in range(len(whole)):
            self.same([("read", whole[:cut]), ("read", whole[cut:])], lane=1)

    def test_not_validating(self) -> None:
        """
        Where Autobahn is told not to validate, invalid texts pass, by its own way.
        """
        self.same([("read", frame(b"\xff") + frame(b"a"))], options={"utf8validateIncoming": False}, lane=0)


class ClosingTests(Comparing):
    """
    Order, and the end of a connection.
    """

    def test_ping_after_text(self) -> None:
        """
        The pong does not overtake the answer to the text before it.
        """
        side = self.same([("read", frame(b"a") + ping() + frame(b"b"))], reactions={1: "answer", 2: "answer"})

        self.assertEqual([text_frame(b"answer 1") + b"\x8a\x01?" + text_frame(b"answer 2")], side.wire.out)

    def test_close_after_text(self) -> None:
        """
        The answer leaves before our Close, and nothing leaves after it.
        """
        side = self.same(
            [("read", frame(b"a") + close() + frame(b"b"))], reactions={1: "answer", 2: "answer"}
        )

        self.assertEqual([text_frame(b"answer 1") + b"\x88\x02\x03\xe8", "lose"], side.wire.out)

    def test_ping_from_handler(self) -> None:
        """
        What a handler sends by Autobahn and by the lane leaves in the order it was sent.
        """
        self.same([("read", frame(b"a"))], reactions={1: "answer ping answer"}, lane=1)

    def test_raw_hook(self) -> None:
        """
        What a hook writes past Autobahn does not overtake the answer to the text before it.
        """
        self.same([("read", frame(b"a") + pong(b"raw"))], reactions={1: "answer"})

    def test_queued(self) -> None:
        """
        While Autobahn has a queue to send, texts go to its end.
        """
        script = [("read", frame(b"a") + frame(b"b")), ("act", "answer"), ("act", "drain"), ("act", "answer")]

        side = self.same(script, reactions={1: "answer queue answer", 2: "answer"}, lane=2)

        self.assertEqual(1, len(side.wire.out))

    def test_closed_with_part_kept(self) -> None:
        """
        After a server's close Autobahn finds the peer's Close behind a frame that the lane had begun.
        """
        text = frame(b"cut in two")

        for cut in range(1, len(text)):
            script = [("read", text[:cut]), ("act", "close"), ("read", text[cut:] + close()), ("wait", 3)]
            side = self.same(script, lane=0)

            self.assertTrue(side.peer.wasClean)

    def test_closed_by_handler(self) -> None:
        """
        When a handler closes, the rest of the read goes to Autobahn, which finds the peer's Close in it.
        """
        side = self.same([("read", frame(b"a") + frame(b"b") + close())], reactions={1: "close"}, lane=1)

        self.assertTrue(side.peer.wasClean)

    def test_heard_while_closing(self) -> None:
        """
        Between our Close and the peer's texts are still heard, and not answered.
        """
        side = self.same(
            [("act", "close"), ("read", frame(b"a")), ("read", frame(b"b")[:7]), ("read", frame(b"b")[7:])],
            reactions={1: "answer", 2: "answer"},
            lane=0,
        )

        self.assertEqual([b"a", b"b"], [payload for _, payload in side.peer.messages])

    def test_dropped_by_handler(self) -> None:
        """
        A handler that answers and drops the connection has answered; what follows is not heard.
        """
        for how in ("drop", "abort"):
            side = self.same(
                [("read", frame(b"a") + frame(b"b")), ("read", frame(b"c"))],
                reactions={1: f"answer {how} answer"},
                lane=1,
            )

            self.assertEqual(text_frame(b"answer 1"), side.wire.out[0])

    def test_dropped_by_fault(self) -> None:
        """
        What Autobahn's own messages were answered leaves before a fault drops the connection.
        """
        self.same([("read", frame(b"a", first=0x82) + frame(b"", first=0x83))], reactions={1: "answer"})

    def test_nobody_closes(self) -> None:
        """
        A peer that does not answer our Close is dropped when the time is up, not before.
        """
        side = self.same([("wait", 0.9), ("act", "close"), ("wait", 1.9), ("wait", 0.2)])

        self.assertEqual("abort", side.wire.out[-1])

    def test_lost(self) -> None:
        """
        A connection that is lost with a frame begun was not closed cleanly.
        """
        self.same([("read", frame(b"a")[:-1]), ("lost",)], lane=0)


class PingTests(Comparing):
    """
    The automatic ping.
    """

    def test_busy(self) -> None:
        """
        A client whose pong is late but whose texts come is not dropped.
        """
        for restart in (True, False):
            options = {"autoPingInterval": 10, "autoPingTimeout": 5, "autoPingRestartOnAnyTraffic": restart}
            script = [
                ("wait", 10),
                ("wait", 4),
                ("read", frame(b"a") + frame(b"b")),
                ("wait", 2),
                ("wait", 8),
            ]

            side = self.same(script, options=options, lane=2)

            self.assertEqual(restart, "abort" not in side.wire.out)

    def test_not_by_half(self) -> None:
        """
        The half of a text does not count as traffic, and the other half does.
        """
        options = {"autoPingInterval": 10, "autoPingTimeout": 5}
        text = frame(b"halves")

        self.same(
            [("wait", 10), ("read", text[:9]), ("wait", 4), ("read", text[9:]), ("wait", 9)], options=options
        )
        self.same([("wait", 10), ("read", text[:9]), ("wait", 5)], options=options)

    def test_pong_between(self) -> None:
        """
        The pong counts, before a text and after it.
        """
        options = {"autoPingInterval": 10, "autoPingTimeout": 5}
        answer = pong(b"\0" * 11 + b"\1")

        for read in (answer + frame(b"a"), frame(b"a") + answer):
            self.same([("wait", 10), ("read", read), ("wait", 6), ("wait", 10)], options=options)

    def test_before_the_message(self) -> None:
        """
        The wait for a pong is over when the text is heard, also when the text is the last thing heard.
        """
        for what in ("close", "drop", "raise"):
            options = {"autoPingInterval": 10, "autoPingTimeout": 5}
            self.same(
                [("wait", 10), ("read", frame(b"a")), ("wait", 9)], options=options, reactions={1: what}
            )


class RaisingTests(Comparing):
    """
    A handler with a bug.
    """

    def test_raises(self) -> None:
        """
        What a handler raises reaches the reactor, which drops the connection; nothing more is heard.
        """
        side = self.same([("read", frame(b"a") * 3)], reactions={1: "answer", 2: "answer raise"}, lane=2)

        self.assertEqual(["Surprise(2)"], side.raised)
        self.assertEqual([text_frame(b"answer 1") + text_frame(b"answer 2")], side.wire.out)

    def test_others_are_sent(self) -> None:
        """
        What a handler sent to others before it raised leaves.
        """
        cork = Cork()
        sender, other = Side(lane=True, cork=cork), Side(lane=True, cork=cork)

        def forward(what: str) -> None:
            other.peer.sendText(b"forwarded")
            raise ZeroDivisionError

        sender.peer.reactions = {1: "forward"}
        sender.peer.act = forward

        self.assertRaises(ZeroDivisionError, sender.peer.dataReceived, frame(b"a"))
        self.assertEqual([text_frame(b"forwarded")], other.wire.out)
        self.assertFalse(cork.held)


class SendingTests(Comparing):
    """
    Texts out.
    """

    def test_frames(self) -> None:
        """
        A text leaves in one frame with the shortest length that does.
        """
        side = Side(lane=True)
        plain = Side(lane=False)
        for size in (0, 1, 125, 126, 65535, 65536, 70000):
            side.peer.sendText(b"x" * size)
            plain.peer.sendText(b"x" * size)

        self.assertEqual(plain.wire.out, side.wire.out)

    def test_built_once(self) -> None:
        """
        A payload that goes to many is framed once; an equal one is framed right, too.
        """
        factory = Side(lane=True).factory
        payload = b"to all"
        other = b"to " + b"all"[:]

        self.assertIs(factory.framed(payload), factory.framed(payload))
        self.assertEqual(text_frame(b"to all"), factory.framed(other))
        self.assertEqual(text_frame(b"to one"), factory.framed(b"to one"))

    def test_not_open(self) -> None:
        """
        A text to a connection that is not open, or not any more, is nothing.
        """
        new = Side(lane=True)
        young = new.factory.buildProtocol(None)
        young.makeConnection(new.wire)

        young.sendText(b"too early")
        self.assertEqual([], new.wire.out)
        for what in ("close", "drop", "abort"):
            self.same([("act", what), ("act", "answer"), ("wait", 3), ("act", "answer")])

    def test_to_a_closing_one(self) -> None:
        """
        In one read, what goes to another connection before its Close leaves, and what comes after does not.
        """
        cork = Cork()
        sender, other = Side(lane=True, cork=cork), Side(lane=True, cork=cork)
        sender.peer.reactions = {1: "forward", 2: "close", 3: "forward"}
        sender.peer.act = lambda what: (
            other.peer.sendText(b"forwarded") if what == "forward" else other.peer.sendClose(3000)
        )

        sender.peer.dataReceived(frame(b"a") * 3)

        self.assertEqual([text_frame(b"forwarded") + b"\x88\x02" + (3000).to_bytes(2, "big")], other.wire.out)

    def test_one_write(self) -> None:
        """
        All that one read sends to a connection leaves in one write.
        """
        side = Side(lane=True, reactions={1: "answer", 2: "answer answer"})
        writes: list[bytes] = []
        side.wire.write = writes.append

        side.peer.dataReceived(frame(b"a") + frame(b"b"))

        self.assertEqual(1, len(writes))

    def test_long(self) -> None:
        """
        A text may be longer out than the limit on texts in.
        """
        self.same([("read", frame(b"a"))], options={"maxMessagePayloadSize": 1000}, reactions={1: "long"})


class OptionTests(Comparing):
    """
    What turns the lane off, and what it costs.
    """

    def test_turns_off(self) -> None:
        """
        Logs, timings and masks that are out of the ordinary leave all to Autobahn.
        """
        for name in ("logOctets", "logFrames", "trackTimings"):
            self.same([("read", frame(b"a")), ("act", "answer")], options={name: True}, lane=0)
        self.same([("read", frame(b"a"))], options={"applyMask": False}, lane=0)
        side = Side(lane=True, options={"maskServerFrames": True})
        side.peer.sendText(b"a")
        self.assertEqual(0x81, side.wire.out[0][1])

    def test_deflate(self) -> None:
        """
        With permessage-deflate all is Autobahn's, and short texts leave uncompressed.
        """
        from msgnode.connectors.websocket import _deflate

        options = {"perMessageCompressionAccept": _deflate}
        compressed = b"\xf2H\xcd\xc9\xc9\x07\x00"  # RFC 7692, 7.2.3.2

        side = self.same(
            [("read", frame(compressed, first=0xC1) + frame(b"plain")), ("act", "answer"), ("act", "long")],
            options=options,
            offer=DEFLATE,
            lane=0,
        )

        self.assertEqual([("text", b"Hello"), ("text", b"plain")], side.peer.messages)
        self.assertTrue(side.wire.out[0].startswith(text_frame(b"answer 2") + b"\xc1"))

    def test_unmasked(self) -> None:
        """
        Both ways to take off a mask agree with the definition.
        """
        for size in (0, 1, 2, 3, 4, 5, 125, 1499, 1500, 1501, 5000):
            payload = bytes(at * 7 % 256 for at in range(size))
            self.assertEqual(xor(MASK, payload), unmasked(MASK, payload))

    def test_nothing_kept(self) -> None:
        """
        An idle connection holds nothing of the lane's.
        """
        side = Side(lane=True)
        side.step("read", frame(b"a")[:4])
        side.step("read", frame(b"a")[4:])

        self.assertEqual(b"", side.peer._kept)
        self.assertIsInstance(side.peer, Peer)
