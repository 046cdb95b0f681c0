"""
Socket.IO by polling: a POST of thousands of packets.
"""

import tracemalloc
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.connectors.socketio import codec
from msgnode.structures.time_slices import MESSAGES
from tests.support.http_client import HTTPClient
from tests.support.network import Network
from tests.support.runtimes import TCPRuntime, dumps
from tests.support.socketio_runtime import NewSocketPollRuntime, PagePollRuntime, SocketPollRuntime, emitted

MANY = 3 * MESSAGES + 5


class SocketTurnsTests(SynchronousTestCase):
    """
    A client of Socket.IO, and a device that counts what arrives.
    """

    runtime: Any = SocketPollRuntime

    def setUp(self) -> None:
        self.restart()

    def restart(self, **sections: Any) -> None:
        self.net = Network(**sections)
        self.other = TCPRuntime(self.net, "runtime://example.org/b").open()
        self.client = self.runtime(self.net, "runtime://example.org/a").open()
        self.packets = [self.packet(id) for id in range(MANY)]

    def packet(self, id: int) -> bytes:
        return emitted(dumps({"id": id, "type": "update", "from": "x", "to": self.other.url}))

    def begin(self, *packets: bytes) -> HTTPClient:
        """
        Post without letting a turn pass.
        """
        post = HTTPClient(self.net)
        body = codec.join(packets, self.client.version)
        post.start("POST", self.client.path, body, **self.client.headers)
        while post.link.pump(advanceClock=False):
            pass
        return post

    def ids(self) -> list[int]:
        return [message["id"] for message in self.other.take()]

    def test_some_packets_are_carried_at_once_the_others(self) -> None:
        """
        Some packets are carried at once, the others in later turns, and the `ok` comes after the last.
        """
        before = self.net.node.counts.received

        post = self.begin(*self.packets)

        self.assertEqual(MESSAGES, self.net.node.counts.received - before)
        self.assertIsNone(post.response)
        self.net.pump()
        self.assertEqual((200, b"ok"), (post.response.status, post.response.body))
        self.assertEqual(list(range(MANY)), self.ids())

    def test_connection_goes_on(self) -> None:
        """
        The connection that it came by takes the next request.
        """
        post = self.begin(*self.packets)
        self.net.pump()

        body = codec.join([self.packet(MANY)], self.client.version)
        again = post.request("POST", self.client.path, body, **self.client.headers)

        self.assertEqual((200, list(range(MANY + 1))), (again.status, self.ids()))

    def test_what_was_posted_is_carried_though_its_connection(self) -> None:
        """
        What was posted is carried though its connection is lost meanwhile.
        """
        self.begin(*self.packets).hang_up()

        self.assertEqual(list(range(MANY)), self.ids())

    def test_two_posts(self) -> None:
        """
        A client has one POST at a time: another one meanwhile is refused.
        """
        self.begin(*self.packets)

        second = self.begin(self.packet(MANY))
        self.net.pump()

        self.assertEqual(400, second.response.status)
        self.assertEqual(list(range(MANY)), self.ids())

    def test_post_of_more_packets_than_may_be_is_answered_413(self) -> None:
        """
        A POST of more packets than may be is answered 413, and nothing of it is carried.
        """
        self.restart(limits={"messages_per_post": MESSAGES})

        few = self.begin(*self.packets[:MESSAGES])
        many = self.begin(*self.packets[: MESSAGES + 1])
        self.net.pump()

        self.assertEqual((200, 413), (few.response.status, many.response.status))
        self.assertIn(f"at most {MESSAGES} packets", many.response.json()["desc"])
        self.assertEqual(list(range(MESSAGES)), self.ids())

    def test_tiny_packets_take_little_memory(self) -> None:
        """
        What a POST of tiny packets takes is a small multiple of its bytes.
        """
        body = codec.join([b"6"] * 300_000, self.client.version)
        post = HTTPClient(self.net)

        tracemalloc.start()
        response = post.request("POST", self.client.path, body, **self.client.headers)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

        self.assertEqual(413, response.status)
        self.assertLess(peak, 6 * len(body) + 1_000_000)

    def test_thousands_of_posted_pings_are_answered_in_slices(self) -> None:
        """
        Thousands of pings in one POST are answered in slices, too.
        """
        self.client.stop_reading()
        before = self.net.node.slices.done

        post = self.begin(*[codec.PING] * (10 * MESSAGES))
        self.net.pump()

        self.assertEqual((b"ok", 9), (post.response.body, self.net.node.slices.done - before))


class NewSocketTurnsTests(SocketTurnsTests):
    """
    The same with today's protocol.
    """

    runtime = NewSocketPollRuntime


class PageTurnsTests(SocketTurnsTests):
    """
    The same past the fast path.
    """

    runtime = PagePollRuntime


class AckTests(SynchronousTestCase):
    """
    The number by which a client wants a packet acknowledged.
    """

    def test_acknowledgement_number_of_megabytes_is_none(self) -> None:
        """
        A number of megabytes is none.
        """
        self.assertEqual(b"1" * 20, codec.socket_packet(b"42" + b"1" * 20 + b"[]").ack)
        with self.assertRaises(codec.Garbled):
            codec.socket_packet(b"42" + b"1" * 21 + b"[]")
