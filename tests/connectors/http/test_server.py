"""
The web port: what its clients cannot make it do or log, whatever they send.
"""

from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from msgnode.config.schema import Config
from msgnode.connectors.http.server import BoundedSite
from msgnode.connectors.http.site import NotHere
from tests.support.http_client import HTTPClient
from tests.support.network import Network


class BadRequestTests(SynchronousTestCase):
    """
    Requests that are none.  A traceback in the log would fail each of these tests.
    """

    def setUp(self) -> None:
        self.net = Network()

    def raw(self, data: bytes) -> bytes:
        """
        What comes back on a connection of its own, which is closed by then.
        """
        client = HTTPClient(self.net)
        client.transport.write(data)
        self.net.pump()
        self.assertFalse(client.is_connected)
        return client.came

    def test_a_content_length_of_thousands_of_digits_is_refused_in_words(self) -> None:
        """
        Python makes no number of it; the client is told, and the log is not.
        """
        for sign in (b"", b"0"):
            head = b"POST /poll HTTP/1.1\r\nHost: x\r\nContent-Length: " + sign + b"9" * 5000 + b"\r\n\r\n"

            came = self.raw(head)

            self.assertTrue(came.startswith(b"HTTP/1.1 400 Bad Request\r\n"), came)
            self.assertIn(b"Content-Length has at most 32 characters", came)

    def test_what_follows_a_refused_request_is_thrown_away(self) -> None:
        """
        Lines behind a request line that is none are no request either.
        """
        for data in (b"\r\n\r\n\r\n\r\n", b"x\r\n\r\n\r\nGET /live HTTP/1.1\r\nHost: x\r\n\r\n"):
            with self.subTest(data=data):
                came = self.raw(data)

                self.assertEqual(1, came.count(b"HTTP/1.1 "))
                self.assertTrue(came.startswith(b"HTTP/1.1 400 "), came)


class FullTransport(StringTransport):
    """
    A socket whose client reads nothing: whatever is written is more than it holds.
    """

    def write(self, data: bytes) -> None:
        super().write(data)
        if self.producer is not None:
            self.producer.pauseProducing()


class UnreadAnswerTests(SynchronousTestCase):
    """
    A client that sends request after request, and reads no answer.
    """

    def test_is_not_read_from_until_it_reads(self) -> None:
        """
        Nothing more is taken from it, so that its answers are no more than one read asks for.
        """
        transport = FullTransport()
        channel = BoundedSite(NotHere(), Config(), Clock()).buildProtocol(None)
        channel.makeConnection(transport)

        channel.dataReceived(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 3)

        self.assertEqual(3, transport.value().count(b"HTTP/1.1 "))
        self.assertEqual("paused", transport.producerState)

    def test_is_read_from_again_when_it_does(self) -> None:
        """
        Once its answers have left, the next request is taken.
        """
        transport = FullTransport()
        channel = BoundedSite(NotHere(), Config(), Clock()).buildProtocol(None)
        channel.makeConnection(transport)
        channel.dataReceived(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")

        transport.producer.resumeProducing()

        self.assertEqual("producing", transport.producerState)
