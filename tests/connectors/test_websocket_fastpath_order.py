"""
Nothing overtakes, nothing is lost, nothing leaves too late: closing, pings, faults, sending.
"""

from msgnode.connectors.websocket_frames import text_frame
from msgnode.transport.cork import Cork
from tests.support.fastpath_pair import Comparing, Side, close, frame, ping, pong


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
        What a handler sends by Autobahn and by the fast path leaves in the order it was sent.
        """
        self.same([("read", frame(b"a"))], reactions={1: "answer ping answer"}, fast_path=1)

    def test_raw_hook(self) -> None:
        """
        What a hook writes past Autobahn does not overtake the answer to the text before it.
        """
        self.same([("read", frame(b"a") + pong(b"raw"))], reactions={1: "answer"})

    def test_texts_go_behind_what_autobahn_has_queued(self) -> None:
        """
        While Autobahn has a queue to send, texts go to its end.
        """
        script = [("read", frame(b"a") + frame(b"b")), ("act", "answer"), ("act", "drain"), ("act", "answer")]

        side = self.same(script, reactions={1: "answer queue answer", 2: "answer"}, fast_path=2)

        self.assertEqual(1, len(side.wire.out))

    def test_closed_with_part_kept(self) -> None:
        """
        After a server's close Autobahn finds the peer's Close behind a frame that the fast path had begun.
        """
        text = frame(b"cut in two")

        for cut in range(1, len(text)):
            script = [("read", text[:cut]), ("act", "close"), ("read", text[cut:] + close()), ("wait", 3)]
            side = self.same(script, fast_path=0)

            self.assertTrue(side.peer.wasClean)

    def test_closed_by_handler(self) -> None:
        """
        When a handler closes, the rest of the read goes to Autobahn, which finds the peer's Close in it.
        """
        side = self.same([("read", frame(b"a") + frame(b"b") + close())], reactions={1: "close"}, fast_path=1)

        self.assertTrue(side.peer.wasClean)

    def test_heard_while_closing(self) -> None:
        """
        Between our Close and the peer's texts are still heard, and not answered.
        """
        side = self.same(
            [("act", "close"), ("read", frame(b"a")), ("read", frame(b"b")[:7]), ("read", frame(b"b")[7:])],
            reactions={1: "answer", 2: "answer"},
            fast_path=0,
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
                fast_path=1,
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

    def test_connection_that_is_lost_with_a_frame_begun(self) -> None:
        """
        A connection that is lost with a frame begun was not closed cleanly.
        """
        self.same([("read", frame(b"a")[:-1]), ("lost",)], fast_path=0)


class PingTests(Comparing):
    """
    The automatic ping.
    """

    def test_client_that_sends_texts_is_not_dropped_for_a_late_pong(self) -> None:
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

            side = self.same(script, options=options, fast_path=2)

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

    def test_exception_of_a_handler_reaches_the_reactor(self) -> None:
        """
        What a handler raises reaches the reactor, which drops the connection; nothing more is heard.
        """
        side = self.same([("read", frame(b"a") * 3)], reactions={1: "answer", 2: "answer raise"}, fast_path=2)

        self.assertEqual(["Surprise(2)"], side.raised)
        self.assertEqual([text_frame(b"answer 1") + text_frame(b"answer 2")], side.wire.out)

    def test_others_are_sent(self) -> None:
        """
        What a handler sent to others before it raised leaves.
        """
        cork = Cork()
        sender, other = Side(fast_path=True, cork=cork), Side(fast_path=True, cork=cork)

        def forward(what: str) -> None:
            other.peer.sendText(b"forwarded")
            raise ZeroDivisionError

        sender.peer.reactions = {1: "forward"}
        sender.peer.act = forward

        self.assertRaises(ZeroDivisionError, sender.peer.dataReceived, frame(b"a"))
        self.assertEqual([text_frame(b"forwarded")], other.wire.out)
        self.assertFalse(cork.corked)


class SendingTests(Comparing):
    """
    Texts out.
    """

    def test_text_leaves_in_the_shortest_frame(self) -> None:
        """
        A text leaves in one frame with the shortest length that does.
        """
        side = Side(fast_path=True)
        plain = Side(fast_path=False)
        for size in (0, 1, 125, 126, 65535, 65536, 70000):
            side.peer.sendText(b"x" * size)
            plain.peer.sendText(b"x" * size)

        self.assertEqual(plain.wire.out, side.wire.out)

    def test_built_once(self) -> None:
        """
        A payload that goes to many is framed once; an equal one is framed right, too.
        """
        factory = Side(fast_path=True).factory
        payload = b"to all"
        other = b"to " + b"all"[:]

        self.assertIs(factory.framed(payload), factory.framed(payload))
        self.assertEqual(text_frame(b"to all"), factory.framed(other))
        self.assertEqual(text_frame(b"to one"), factory.framed(b"to one"))

    def test_not_open(self) -> None:
        """
        A text to a connection that is not open, or not any more, is nothing.
        """
        new = Side(fast_path=True)
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
        sender, other = Side(fast_path=True, cork=cork), Side(fast_path=True, cork=cork)
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
        side = Side(fast_path=True, reactions={1: "answer", 2: "answer answer"})
        writes: list[bytes] = []
        side.wire.write = writes.append

        side.peer.dataReceived(frame(b"a") + frame(b"b"))

        self.assertEqual(1, len(writes))

    def test_text_may_be_longer_out_than_the_limit_on_texts(self) -> None:
        """
        A text may be longer out than the limit on texts in.
        """
        self.same([("read", frame(b"a"))], options={"maxMessagePayloadSize": 1000}, reactions={1: "long"})
