"""
Nothing that a client sends takes more than its share of a turn of the event loop.
"""

import tracemalloc
from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from msgnode.structures.time_slices import MESSAGES
from tests.support.fastpath_pair import frame, ping
from tests.support.network import Network
from tests.support.runtimes import PlainRuntime, TCPRuntime, TLSRuntime, WebSocketRuntime, dumps

MANY = 3 * MESSAGES + 5


class TurnsCase(SynchronousTestCase):
    """
    A client `a` that sends a lot at once, and a device `b` that counts what arrives.
    """

    runtime: Any = TCPRuntime

    def setUp(self) -> None:
        self.restart()

    def restart(self, **sections: Any) -> None:
        self.net = Network(**sections)
        self.other = TCPRuntime(self.net, "runtime://example.org/b").open()
        self.client = self.runtime(self.net, "runtime://example.org/a").open()
        self.client.take()
        self.server = self.client.link.serverIO.protocol
        self.net.clock.advance(0)
        self.before = self.net.node.slices.done

    def message(self, id: int) -> bytes:
        return dumps({"id": id, "type": "update", "from": "x", "to": self.other.url})

    def wrapped(self, data: bytes) -> bytes:
        return data + b"\n"

    def read(self, data: bytes) -> int:
        """
        The node reads this at once; the messages that it carries in that turn.
        """
        counts = self.net.node.counts
        before = counts.received
        self.client.link.serverIO.protocol.dataReceived(data)
        return counts.received - before

    @property
    def slices(self) -> int:
        return self.net.node.slices.done - self.before

    def ids(self) -> list[int]:
        return [message["id"] for message in self.other.take()]


class LineTurnsTests(TurnsCase):
    """
    TCP lines.
    """

    def test_many_messages_of_one_read_take_several_turns(self) -> None:
        """
        Of many messages in one read some are carried at once and the others in later turns, in their order.
        """
        stream = b"".join(self.wrapped(self.message(id)) for id in range(MANY))

        carried = self.read(stream)

        self.assertEqual(MESSAGES, carried)
        self.assertTrue(self.client.link.serverIO.deaf)
        self.assertEqual(list(range(MANY)), self.ids())
        self.assertEqual((3, False), (self.slices, self.client.link.serverIO.deaf))

    def test_few_at_once(self) -> None:
        """
        As many messages as one turn may have need no other.
        """
        carried = self.read(b"".join(self.wrapped(self.message(id)) for id in range(MESSAGES)))

        self.assertEqual((MESSAGES, 0), (carried, self.slices))
        self.assertFalse(self.client.link.serverIO.deaf)

    def test_reads_while_paused_come_behind_what_waits(self) -> None:
        """
        What a transport brings although it is not read from comes behind what waits.
        """
        messages = [self.wrapped(self.message(id)) for id in range(MANY)]

        self.read(b"".join(messages[: MESSAGES + 9]))
        carried = self.read(b"".join(messages[MESSAGES + 9 :]))

        self.assertEqual(0, carried)
        self.assertEqual(list(range(MANY)), self.ids())

    def test_what_had_come_before_its_connection_was_lost(self) -> None:
        """
        What had come before its connection was lost is carried, and then the connection has ended.
        """
        self.read(b"".join(self.wrapped(self.message(id)) for id in range(MANY)))

        self.server.connectionLost(Failure(ConnectionDone()))

        self.assertIn(self.server, self.net.node.sessions.connections)
        self.assertEqual(list(range(MANY)), self.ids())
        self.assertNotIn(self.server, self.net.node.sessions.connections)

    def test_what_stands_behind_a_close_is_not_carried_any_more(self) -> None:
        """
        What stands behind a `close` is not carried any more.
        """
        close = {"id": 1, "type": "close", "from": self.client.url, "to": "mn:/session"}
        messages = [self.message(id) for id in range(MANY)]
        messages[2 * MESSAGES] = dumps(close)

        self.read(b"".join(map(self.wrapped, messages)))

        self.assertEqual(list(range(2 * MESSAGES)), self.ids())

    def test_what_is_no_message_costs_a_turn_as_much(self) -> None:
        """
        What is no message costs a turn as much as a message.
        """
        carried = self.read(self.wrapped(b"{") * MANY)

        self.assertEqual(MESSAGES, carried)
        self.net.pump()
        self.assertEqual((3, MANY), (self.slices, self.net.node.counts.unreadable))


class FrameTurnsTests(LineTurnsTests):
    """
    WebSocket.
    """

    runtime = WebSocketRuntime

    def wrapped(self, data: bytes) -> bytes:
        return frame(data)

    def test_control_frames(self) -> None:
        """
        Pings are answered so many in a turn, and what comes behind them keeps its order.
        """
        answered: list[bytes] = []
        self.client.stub.onPong = answered.append

        self.read(b"".join(ping(b"%d" % n) for n in range(MANY)) + self.wrapped(self.message(1)))

        self.assertEqual(1, self.net.node.slices.at_work)
        self.assertEqual([1], self.ids())
        self.assertEqual([b"%d" % n for n in range(MANY)], answered)
        self.assertEqual(3, self.slices)

    def test_texts_pings_and_fragments_keep_their_order(self) -> None:
        """
        Texts, pings and fragments in one read keep their order over several turns.
        """
        stream = b""
        for id in range(MANY):
            message = self.message(id)
            whole = [frame(message)], [ping(), frame(message)]
            cut = [frame(message[:9], first=0x01), ping(), frame(message[9:], first=0x80)]
            stream += b"".join((*whole, cut)[id % 3])

        self.read(stream)

        self.assertEqual(list(range(MANY)), self.ids())

    def test_message_in_fragments_of_one_byte_or_none_takes(self) -> None:
        """
        A message in fragments of one byte, or none, takes little more memory than its bytes.
        """
        size = 2000
        begin, end = b'{"id":1,"type":"update","from":"x","body":{"value":"', b'"},"to":"%s"}'
        self.read(frame(begin, first=0x01))
        parts = frame(b"x", first=0x00) + frame(b"", first=0x00)

        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(size // 100):
            self.read(parts * 100)
            self.net.clock.advance(0)
        kept = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        self.read(frame(end % self.other.url.encode(), first=0x80))

        self.assertLess(kept, 10 * size)
        self.assertEqual(["x" * size], [message["body"]["value"] for message in self.other.take()])


class PlainFrameTurnsTests(FrameTurnsTests):
    """
    WebSocket by Autobahn alone.
    """

    runtime = PlainRuntime


class TLSTurnsTests(SynchronousTestCase):
    """
    WebSocket over TLS, which brings more after it was asked to wait.
    """

    def test_last_words(self) -> None:
        """
        All that a client sends before it closes is carried, in its order.
        """
        net = Network()
        other = TCPRuntime(net, "runtime://example.org/b").open()
        client = TLSRuntime(net, "runtime://example.org/a").open()

        for id in range(2000):
            client.put(dumps({"id": id, "type": "update", "from": "x", "to": other.url}))
        client.stub.sendClose(1000)
        net.pump()

        self.assertEqual(list(range(2000)), [message["id"] for message in other.take()])
        self.assertGreater(net.node.slices.done, 10)
        self.assertFalse(client.is_connected)
