"""
What goes over a WebSocket once it is open: pings, kinds of frames, closing.
"""

from typing import Any

from tests.support.runtimes import PlainRuntime, WebSocketRuntime, dumps
from tests.support.suite_bounds import LIMIT, of_size
from tests.support.websocket_case import WebSocketCase


class FrameTests(WebSocketCase):
    """
    What goes over an open connection; the fast path on, and off.
    """

    connect: Any = WebSocketRuntime

    def client(self, name: str = "a", **how: Any) -> WebSocketRuntime:
        return self.connect(self.net, f"runtime://example.org/{name}", **how)

    def test_client_is_pinged_every_25_s_and_stays_as_long(self) -> None:
        """
        A client is pinged every 25 s, and stays as long as it answers.
        """
        runtime = self.client().open()

        self.net.advance(24)
        self.assertEqual(0, runtime.pings)
        self.net.advance(2)
        self.assertEqual(1, runtime.pings)
        self.net.advance(100)

        self.assertGreaterEqual(runtime.pings, 4)
        self.assertTrue(runtime.is_connected)

    def test_dead_peer(self) -> None:
        """
        A client that does not answer a ping is dropped 25 s later; its session is away.
        """
        runtime = self.client(answers_pings=False).open()

        self.net.advance(49)
        self.assertTrue(runtime.is_connected)
        self.net.advance(3)

        self.assertFalse(runtime.is_connected)
        self.assertEqual(("detached", runtime.url), self.net.traffic_recorder.events[-1])

    def test_pings_without_end(self) -> None:
        """
        A client that pings and reads no pong is not written them without end; what it sends still counts.
        """
        runtime, other = self.client().open(), self.client("b").open()
        runtime.stop_reading()

        for _ in range(300):
            for _ in range(10):
                runtime.stub.sendPing(b"p" * 125)
            self.net.pump()
        runtime.send(self.update(other))

        self.assertLess(runtime.link.serverIO.size, 100_000)
        self.assertEqual([self.update(other)], other.take())
        runtime.read_again()
        other.send(self.update(runtime))
        self.assertEqual([self.update(runtime)], runtime.take())

    def test_ping_interval(self) -> None:
        """
        The interval is the operator's.
        """
        self.restart(websocket={"ping_seconds": 5})
        runtime = self.client().open()

        self.net.advance(6)

        self.assertEqual(1, runtime.pings)

    def test_binary_websocket_frame_is_closed_1003(self) -> None:
        """
        A binary frame closes the connection with 1003; the session stays.
        """
        runtime, other = self.client().open(), self.client("b").open()

        runtime.stub.sendMessage(dumps(self.update(other)), isBinary=True)
        self.net.pump()

        self.assertEqual((1003, [], False), (runtime.code, other.take(), runtime.is_connected))
        runtime.come_back()
        other.send(self.update(runtime))
        self.assertEqual([self.update(runtime)], runtime.take())

    def test_text_that_is_not_utf_8_closes_the_connection(self) -> None:
        """
        Text that is not UTF-8 closes the connection with 1007, and is not carried.
        """
        runtime, other = self.client().open(), self.client("b").open()

        runtime.send(dumps(self.update(other, "BAD")).replace(b"BAD", b"\xff"), self.update(other))

        self.assertEqual((1007, [], False), (runtime.code, other.take(), runtime.is_connected))

    def test_message_in_fragments_with_a_ping_between_them(self) -> None:
        """
        A message in fragments, with a ping between them, arrives whole.
        """
        runtime, other = self.client().open(), self.client("b").open()
        data = dumps(self.update(other, "ż" * 100))

        runtime.stub.beginMessage()
        for at in range(0, len(data), 7):
            runtime.stub.sendMessageFrame(data[at : at + 7])
            runtime.stub.sendPing(b"?")
        runtime.stub.endMessage()

        self.assertEqual([self.update(other, "ż" * 100)], other.take())

    def test_limit_of_fragments(self) -> None:
        """
        The limit is the whole message's, in however many fragments it comes.
        """
        self.restart(limits={"message_bytes": LIMIT})
        runtime, other = self.client().open(), self.client("b").open()
        for size, got in ((LIMIT, 1), (LIMIT + 1, 0)):
            data = of_size(size, other.url)
            runtime.stub.beginMessage()
            for part in (data[:9000], data[9000:18000], data[18000:]):
                runtime.stub.sendMessageFrame(part)
            runtime.stub.endMessage()

            self.assertEqual(got, len(other.take()))
        self.assertEqual(1009, runtime.code)

    def test_message_whose_bytes_come_one_by_one_arrives(self) -> None:
        """
        A message whose bytes come one by one arrives.
        """
        runtime, other = self.client().open(), self.client("b").open()
        runtime.put(dumps(self.update(other, "ż" * 50)))
        wire = runtime.link.clientIO
        data = b"".join(wire.stream)
        wire.stream.clear()

        for at in range(len(data)):
            wire.write(data[at : at + 1])
            self.net.pump()

        self.assertEqual([self.update(other, "ż" * 50)], other.take())

    def test_client_closes(self) -> None:
        """
        A WebSocket that its client closes, without a word to mn:/session, leaves the session away.
        """
        runtime, other = self.client().open(), self.client("b").open()

        runtime.stub.sendClose(1000)
        self.net.pump()
        other.send(self.update(runtime))

        self.assertEqual(1000, runtime.code)
        self.assertEqual("waiting", self.net.traffic_recorder.outcomes[-1])
        runtime.come_back()
        self.assertEqual([self.update(runtime)], runtime.take())

    def test_close_is_echoed(self) -> None:
        """
        A Close is answered with its own code and reason, and an empty one with an empty one.
        """
        for said in ((), (1000,), (1001,), (3000,), (1001, "the page is gone"), (4999, "ż" * 61)):
            runtime = self.client().open()
            echo = []
            runtime.stub.onCloseFrame = lambda *came, echo=echo: echo.append(came)

            code, reason = (*said, None, None)[:2]
            runtime.stub.sendCloseFrame(code, reason and reason.encode(), isReply=False)
            self.net.pump()

            self.assertEqual([(code, reason and reason.encode())], echo)

    def test_close_reason_is_a_word_and_when_to_retry(self) -> None:
        """
        The reason of a close is a word, and says when to come back if that makes sense.
        """
        self.restart(limits={"sessions": 1})
        late = self.client()
        self.client("b").open()

        late.send({"id": 1, "type": "open", "from": late.url, "to": "mn:/session"})
        self.net.advance(5)

        self.assertEqual((1013, "full; retry_after=30"), (late.code, late.reason))

    def test_waits_for_the_close(self) -> None:
        """
        A client that does not answer the Close is dropped after some seconds.
        """
        runtime = self.client().open()
        runtime.stop_reading()

        runtime.close()
        self.net.advance(1)
        self.assertFalse(runtime.link.over)
        self.net.advance(6)

        self.assertTrue(runtime.link.over)


class PlainFrameTests(FrameTests):
    connect = PlainRuntime
