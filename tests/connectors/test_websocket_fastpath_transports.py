"""
The fast path over Twisted's transports: TCP, UNIX and TLS.
"""

import socket
from typing import Any

from twisted.internet.protocol import Factory, Protocol
from twisted.internet.ssl import CertificateOptions
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from msgnode.connectors.websocket_fastpath import FastPathFactory
from msgnode.connectors.websocket_frames import text_frame
from msgnode.transport.cork import Cork
from tests.support.fastpath_pair import REQUEST, Peer, Surprise, close, frame, ping
from tests.support.fastpath_wire import ServerContext, Socket, tcp_server, unix_server


def new_peer(**reactions: str) -> Any:
    """
    A server's protocol, not connected yet, that reacts to its n-th message.
    """
    factory = FastPathFactory(Cork(), Clock())
    factory.protocol = Peer
    peer = factory.buildProtocol(None)
    peer.reactions = {int(number[1:]): what for number, what in reactions.items()}
    return peer


class TCPTests(SynchronousTestCase):
    """
    The fast path on a TCP transport.
    """

    server = staticmethod(tcp_server)

    def open(self, **reactions: str) -> Any:
        """
        An open connection; what the handshake sent is out of the way.
        """
        self.socket = Socket()
        peer = new_peer(**reactions)
        self.transport = self.server(self.socket, peer)
        peer.makeConnection(self.transport)
        peer.dataReceived(REQUEST % b"")
        self.transport.doWrite()
        self.socket.sent = b""
        self.socket.sends = 0
        return peer

    def test_answers_straight(self) -> None:
        """
        The answers to one read are in the socket when the read is done, by one send.
        """
        peer = self.open(_1="answer", _2="answer")

        peer.dataReceived(frame(b"a") + frame(b"b"))

        self.assertEqual(text_frame(b"answer 1") + text_frame(b"answer 2"), self.socket.sent)
        self.assertEqual(1, self.socket.sends)

    def test_answers_pongs_and_close_leave_in_order(self) -> None:
        """
        Answers that go straight and pongs that wait in the transport leave in order, and the Close is last.
        """
        peer = self.open(_1="answer", _2="answer", _3="answer")

        peer.dataReceived(frame(b"a") + ping() + frame(b"b"))
        peer.dataReceived(frame(b"c") + close())
        self.transport.doWrite()

        expected = text_frame(b"answer 1") + b"\x8a\x01?" + text_frame(b"answer 2") + text_frame(b"answer 3")
        self.assertEqual(expected + b"\x88\x02\x03\xe8", self.socket.sent)

    def test_slow_client(self) -> None:
        """
        What a slow client does not take waits, in order.
        """
        peer = self.open(_1="answer", _2="answer")
        self.socket.room = 3

        peer.dataReceived(frame(b"a"))
        peer.dataReceived(frame(b"b"))
        self.assertEqual(3, len(self.socket.sent))
        self.socket.room = 100
        self.transport.doWrite()

        self.assertEqual(text_frame(b"answer 1") + text_frame(b"answer 2"), self.socket.sent)

    def test_handler_raises(self) -> None:
        """
        What a handler raises passes through to the reactor; the answers before it have left.
        """
        peer = self.open(_1="answer", _2="raise")

        self.assertRaises(Surprise, peer.dataReceived, frame(b"a") + frame(b"b"))
        self.transport.connectionLost(Failure(Surprise()))

        self.assertEqual(text_frame(b"answer 1"), self.socket.sent)
        self.assertEqual(1, len(peer.closed))

    def test_nagle_is_off_for_the_fast_path_from_the_beginning(self) -> None:
        """
        Nagle's algorithm is off from the beginning, and UNIX sockets have none.
        """
        self.open()

        expected = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)] if self.server is tcp_server else []
        self.assertEqual(expected, self.socket.options)


class UNIXTests(TCPTests):
    """
    The fast path on a UNIX socket.
    """

    server = staticmethod(unix_server)


class Listener(Protocol):
    """
    Collects what it hears.
    """

    data = b""

    def dataReceived(self, data: bytes) -> None:
        self.data += data


class TLSTests(SynchronousTestCase):
    """
    The fast path under TLS, over a TCP transport.
    """

    def open(self, **reactions: str) -> None:
        """
        A server and a client that have shaken hands, by TLS and by HTTP.
        """
        self.clock = Clock()
        self.peer = new_peer(**reactions)
        self.peer.factory.buildProtocol = lambda address: self.peer
        server = TLSMemoryBIOFactory(ServerContext(), False, self.peer.factory, self.clock).buildProtocol(
            None
        )
        self.socket = Socket()
        self.transport = tcp_server(self.socket, server)
        server.makeConnection(self.transport)

        self.heard = Listener()
        factory = Factory.forProtocol(lambda: self.heard)
        self.client = TLSMemoryBIOFactory(CertificateOptions(), True, factory, self.clock).buildProtocol(None)
        self.wire = StringTransport()
        self.client.makeConnection(self.wire)
        self.pump()
        self.client.write(REQUEST % b"")
        self.pump()
        self.heard.data = b""

    def pump(self) -> bytes:
        """
        Carry bytes both ways until there are none left; return what the server's socket was given.
        """
        downward = b""
        while True:
            self.clock.advance(0)
            if self.transport in self.transport.reactor.getWriters():
                self.transport.doWrite()
            up, down = self.wire.value(), self.socket.sent
            self.wire.clear()
            self.socket.sent = b""
            downward += down
            if not up and not down:
                return downward
            if up:
                self.transport.protocol.dataReceived(up)
            if down:
                self.client.dataReceived(down)

    def test_encrypted(self) -> None:
        """
        The answer reaches the client, and not as plaintext.
        """
        self.open(_1="answer")

        self.client.write(frame(b"a"))
        sent = self.pump()

        self.assertEqual(text_frame(b"answer 1"), self.heard.data)
        self.assertNotIn(b"answer", sent)

    def test_answer_leaves_before_a_tls_connection_is_dropped(self) -> None:
        """
        An answer leaves before the connection is dropped, though TLS forgets what is written later.
        """
        self.open(_1="answer drop")

        self.client.write(frame(b"a"))
        self.pump()

        self.assertEqual(text_frame(b"answer 1"), self.heard.data)

    def test_answer_pong_and_close_arrive_in_that_order(self) -> None:
        """
        Answer, pong and Close arrive in that order.
        """
        self.open(_1="answer")

        self.client.write(frame(b"a") + ping() + close())
        self.pump()

        self.assertEqual(text_frame(b"answer 1") + b"\x8a\x01?\x88\x02\x03\xe8", self.heard.data)
