"""
What the fast path takes and what it leaves: nobody can tell it from Autobahn alone.
"""

from autobahn.websocket.compress import PerMessageDeflateOfferAccept

from msgnode.connectors.websocket_fastpath import KEPT_BYTES
from msgnode.connectors.websocket_frames import text_frame, unmasked
from tests.support.fastpath_pair import MASK, Comparing, Peer, Side, close, frame, ping, xor

DEFLATE = b"Sec-WebSocket-Extensions: permessage-deflate\r\n"


class TakingTests(Comparing):
    """
    What the fast path takes, and what it leaves to Autobahn.
    """

    def test_takes_texts(self) -> None:
        """
        Texts of either short length, empty, ASCII or not, many in a read, go through the fast path.
        """
        texts = [b"", b"a", b"x" * 125, b"y" * 126, "żółć €".encode(), b"z" * 1499, b"z" * 1500, b"w" * 60000]

        side = self.same([("read", b"".join(frame(text) for text in texts))], fast_path=len(texts))

        self.assertEqual([("text", text) for text in texts], side.peer.messages)

    def test_continues_cut_frames(self) -> None:
        """
        A frame that is cut anywhere by the reads goes through the fast path all the same.
        """
        stream = frame(b"one") + frame("ż".encode() * 100) + frame(b"")

        for cut in range(len(stream) + 1):
            self.same([("read", stream[:cut]), ("read", stream[cut:])], fast_path=3)
        self.same([("read", stream[at : at + 1]) for at in range(len(stream))], fast_path=3)

    def test_leaves_other_frames(self) -> None:
        """
        Binary messages, pings, pongs, fragments and faulty frames are Autobahn's.
        """
        for first in [*range(0x81), *range(0x82, 0x100)]:
            payload = b"\x03\xe8" if first & 0x0F == 8 else b"text"
            for fail_by_drop in (True, False):
                read = frame(b"a") + frame(payload, first=first) + frame(b"b") + close()
                self.same([("read", read)], options={"failByDrop": fail_by_drop}, fast_path=1)

    def test_leaves_unmasked(self) -> None:
        """
        A client that does not mask is told so, or heard, as Autobahn's option says.
        """
        for required in (True, False):
            self.same(
                [("read", frame(b"a") + frame(b"b", mask=None)), ("read", frame(b"c"))],
                options={"requireMaskedClientFrames": required, "failByDrop": False},
                fast_path=1 if required else 2,
            )

    def test_leaves_long_frames(self) -> None:
        """
        A frame that does not fit in one read is Autobahn's, and the next one is the fast path's again.
        """
        stream = frame(b"v" * 70000) + frame(b"short")

        self.same([("read", stream[at : at + 65536]) for at in range(0, len(stream), 65536)], fast_path=1)
        self.same([("read", stream)], fast_path=0)

    def test_fragmented_message_is_autobahn_until_it_ends(self) -> None:
        """
        A fragmented message is Autobahn's until it ends, with the pings and the faults inside it.
        """
        parts = [frame(b"be", first=0x01), frame(b"gi", first=0x00), ping(), frame(b"n", first=0x80)]

        self.same([("read", part) for part in [*parts, frame(b"next")]], fast_path=1)
        self.same([("read", b"".join(parts)), ("read", frame(b"next"))], fast_path=1)
        self.same([("read", part) for part in [parts[0], frame(b"inside"), close()]], fast_path=0)
        self.same([("read", parts[0][:3]), ("read", parts[0][3:] + frame(b"inside"))], fast_path=0)

    def test_part_inside_fragments(self) -> None:
        """
        A text that begins inside a fragmented message is refused as soon as its header is there.
        """
        self.same(
            [("read", frame(b"be", first=0x01)), ("read", frame(b"inside")[:8]), ("read", close())],
            fast_path=0,
        )

    def test_autobahn_holds_bytes(self) -> None:
        """
        The fast path waits while Autobahn has part of a header, also if what follows looks like a text.
        """
        one = frame(b"a" * 20, mask=bytes((0x81, 0x83, 0, 0)))
        cut = len(ping()) + 2

        self.same([("read", (ping() + one)[:cut]), ("read", one[2:]), ("read", frame(b"b"))], fast_path=1)

    def test_autobahn_closes(self) -> None:
        """
        When the end of Autobahn's frame closes the connection, the rest of the read is not the fast path's.
        """
        begun = frame(b"binary", first=0x82)

        for what in ("close", "drop", "abort"):
            script = [("read", begun[:9]), ("read", begun[9:] + frame(b"text") + close())]
            self.same(script, reactions={1: what}, fast_path=0)

    def test_one_ping_in_a_stream_whose_reads_all_end_inside(self) -> None:
        """
        One ping in a stream whose reads all end inside a frame does not keep the stream out of the fast path.
        """
        stream = ping() + frame(b"a" * 200) * 10
        reads = [("read", stream[at : at + 300]) for at in range(0, len(stream), 300)]

        self.same(reads, fast_path=8)

    def test_early_frames(self) -> None:
        """
        Texts that come before the handshake is done are Autobahn's business.
        """
        side = Side(fast_path=True)
        late = side.factory.buildProtocol(None)
        late.makeConnection(side.wire)

        late.dataReceived(frame(b"too early"))

        self.assertEqual([], late.messages)


class LengthTests(Comparing):
    """
    Limits, and lengths that are not what they should be.
    """

    def test_text_of_just_the_limit_passes_the_fast_path(self) -> None:
        """
        A text of just the limit passes and one byte more is refused, whichever limit it is.
        """
        for limits in ({"maxFramePayloadSize": 130}, {"maxMessagePayloadSize": 130}):
            for size, taken in ((129, 2), (130, 2), (131, 1)):
                for fail_by_drop in (True, False):
                    stream = frame(b"a") + frame(b"x" * size) + close()
                    self.same(
                        [("read", stream)], options={**limits, "failByDrop": fail_by_drop}, fast_path=taken
                    )

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
                        self.same(script, options={"failByDrop": fail_by_drop}, fast_path=1)

    def test_enormous(self) -> None:
        """
        Nobody can say 2^63 bytes, and just less is Autobahn's.
        """
        for claim in (2**63 - 1, 2**63, 2**64 - 1):
            for options in ({}, {"failByDrop": False}, {"maxFramePayloadSize": 1000}):
                bad = frame(b"x" * 20, claim=claim)
                self.same(
                    [("read", frame(b"a") + bad), ("read", bad), ("lost",)], options=options, fast_path=1
                )

    def test_of_a_frame_that_drips_in_the_fast_path_keeps_no_more(self) -> None:
        """
        Of a frame that drips in, the fast path keeps no more than its share; Autobahn keeps the rest.
        """
        stream = frame(b"x" * (KEPT_BYTES + 5000)) + frame(b"after")
        side = Side(fast_path=True)
        most = 0

        for at in range(0, len(stream), 64):
            side.step("read", stream[at : at + 64])
            most = max(most, len(side.peer._kept))

        self.assertEqual([KEPT_BYTES + 5000, 5], [len(payload) for _, payload in side.peer.messages])
        self.assertTrue(KEPT_BYTES - 64 < most <= KEPT_BYTES, most)
        self.same([("read", stream[at : at + 999]) for at in range(0, len(stream), 999)], fast_path=1)


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
                    fast_path=1,
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
            self.same([("read", whole[:cut]), ("read", whole[cut:])], fast_path=1)

    def test_not_validating(self) -> None:
        """
        Where Autobahn is told not to validate, invalid texts pass, by its own way.
        """
        self.same(
            [("read", frame(b"\xff") + frame(b"a"))], options={"utf8validateIncoming": False}, fast_path=0
        )


class OptionTests(Comparing):
    """
    What turns the fast path off, and what it costs.
    """

    def test_turns_off(self) -> None:
        """
        Logs, timings and masks that are out of the ordinary leave all to Autobahn.
        """
        for name in ("logOctets", "logFrames", "trackTimings"):
            self.same([("read", frame(b"a")), ("act", "answer")], options={name: True}, fast_path=0)
        self.same([("read", frame(b"a"))], options={"applyMask": False}, fast_path=0)
        side = Side(fast_path=True, options={"maskServerFrames": True})
        side.peer.sendText(b"a")
        self.assertEqual(0x81, side.wire.out[0][1])

    def test_deflate(self) -> None:
        """
        With permessage-deflate all is Autobahn's, and short texts leave uncompressed.
        """
        options = {"perMessageCompressionAccept": lambda offers: PerMessageDeflateOfferAccept(offers[0])}
        compressed = b"\xf2H\xcd\xc9\xc9\x07\x00"  # RFC 7692, 7.2.3.2

        side = self.same(
            [
                ("read", frame(compressed, first=0xC1)),
                *(("read", frame(b"plain")), ("act", "answer"), ("act", "long")),
            ],
            options=options,
            offer=DEFLATE,
            fast_path=0,
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

    def test_idle_connection_holds_nothing_of_the_fast_path(self) -> None:
        """
        An idle connection holds nothing of the fast path's.
        """
        side = Side(fast_path=True)
        side.step("read", frame(b"a")[:4])
        side.step("read", frame(b"a")[4:])

        self.assertTrue(side.peer.at_border)
        self.assertIsInstance(side.peer, Peer)
