"""
Connections: the handshake, what ends one, and how the next is made.
"""

from twisted.internet.defer import CancelledError
from twisted.internet.ssl import CertificateOptions

from msgnode.nats.errors import (
    AuthorizationError,
    Closed,
    ConnectionLost,
    NatsError,
    NoServer,
    ProtocolError,
    TLSError,
)
from msgnode.nats.options import TLS
from msgnode.nats.wire.credentials import NKey, Token
from tests.support.nats_jwt import new_key
from tests.support.nats_network import Middle, NatsCase

URLS = "nats://one:4222", "nats://two:4222", "nats://three:4222"


class HandshakeTests(NatsCase):
    """
    The start of a connection.
    """

    def test_connect(self) -> None:
        """
        CONNECT has the options, and the client is connected when the server answers the ping after it.
        """
        client = self.make(name="me", echo=False, credentials=Token("t"))
        connecting = client.connect()
        options = self.network.newest.accept(server_name="x")

        self.assertEqual("x", self.successResultOf(connecting).server_name)
        wanted = {
            "name": "me",
            "echo": False,
            "auth_token": "t",
            "verbose": False,
            "headers": True,
            "protocol": 1,
        }
        self.assertEqual(wanted, {key: options[key] for key in wanted})

    def test_credentials_of_the_url(self) -> None:
        """
        Credentials of a URL come before those of the options.
        """
        self.make("nats://u:p@one", credentials=Token("t")).connect()
        options = self.network.newest.accept()

        self.assertEqual(("u", "p", None), (options["user"], options["pass"], options.get("auth_token")))

    def test_byte_by_byte(self) -> None:
        """
        The handshake may come in single bytes.
        """
        connecting = self.make().connect()
        end = self.network.newest
        for byte in b'INFO {"server_name": "x"}\r\nPING\r\nPONG\r\n':
            end.send(bytes([byte]))

        self.successResultOf(connecting)
        self.assertIn(b"PONG\r\n", end.taken())

    def check_refused(self, data: bytes, kind: type[Exception], says: str, **options: object) -> None:
        """
        The server sends this first; the connection is ended, and the reason says why.
        """
        connecting = self.make(**options).connect()
        self.network.newest.send(data)
        self.turn()
        self.turn()
        why = self.failureResultOf(connecting, NoServer).value

        self.assertIsInstance(why.reason, kind)
        self.assertIn(says, str(why))
        self.assertTrue(self.network.newest.is_closed)
        self.assertNotIn(b"CONNECT", self.network.newest.taken())

    def test_no_nats(self) -> None:
        """
        A server that speaks something else is refused.
        """
        self.check_refused(
            b"HTTP/1.1 400 Bad Request\r\n", ProtocolError, "found b'HTTP/1.1 400 Bad Request'"
        )
        self.check_refused(b"PONG\r\n", ProtocolError, "expected INFO first")
        self.check_refused(b"INFO []\r\n", ProtocolError, "expected INFO with a JSON object")

    def test_message_too_early(self) -> None:
        """
        A message before the answer to CONNECT is no message.
        """
        self.check_refused(b"MSG a 1 0\r\n\r\n", ProtocolError, "expected no message")

    def test_data_before_tls(self) -> None:
        """
        Nothing may come between INFO and the TLS handshake.
        """
        info = b'INFO {"tls_required": true}\r\n'
        self.check_refused(
            info + b"PING\r\n", ProtocolError, "expected nothing between INFO and the TLS handshake"
        )

    def test_tls_not_offered(self) -> None:
        """
        A server without TLS is refused where TLS is wanted.
        """
        self.check_refused(b"INFO {}\r\n", TLSError, "one:4222 does not offer", tls=TLS(CertificateOptions()))

    def test_no_nonce(self) -> None:
        """
        With an nkey the server must send a nonce.
        """
        self.check_refused(b"INFO {}\r\n", NatsError, "nonce", credentials=NKey(new_key("user").seed))

    def test_wrong_credentials(self) -> None:
        """
        The reason of the server is that of the failure.
        """
        client = self.make()
        connecting = client.connect()
        end = self.network.newest
        end.info()
        end.send(b"-ERR 'Authorization Violation'\r\n")
        end.lose()
        self.turn()
        self.turn()

        self.assertIsInstance(self.failureResultOf(connecting, NoServer).value.reason, AuthorizationError)

    def test_silent_server(self) -> None:
        """
        A server that sends nothing is left after its time.
        """
        connecting = self.make(connect_seconds=3.0).connect()
        self.turn(3)
        self.turn()
        self.turn()

        self.assertIn(
            "waits for INFO, for more than 3 s", str(self.failureResultOf(connecting, NoServer).value)
        )

    def test_all_servers_are_tried(self) -> None:
        """
        Without `retry` each server is tried once.
        """
        self.network.down |= {"one:4222", "two:4222", "three:4222"}
        connecting = self.make(*URLS).connect()
        for _ in range(5):
            self.turn(1)
        self.failureResultOf(connecting, NoServer)

        self.assertEqual(["one:4222", "two:4222", "three:4222"], self.network.attempts)
        self.assertEqual([], self.clock.getDelayedCalls())

    def test_cancelled(self) -> None:
        """
        An attempt that is cancelled is over.
        """
        connecting = self.make().connect(retry=True)
        connecting.cancel()
        self.turn()
        self.turn()

        self.failureResultOf(connecting, Closed, CancelledError)
        self.assertTrue(self.network.newest.is_closed)
        self.assertEqual([], self.clock.getDelayedCalls())


class ReconnectionTests(NatsCase):
    """
    What happens when a connection is lost.
    """

    def test_order(self) -> None:
        """
        The next connection begins with all subscriptions, then has what was published meanwhile.
        """
        client = self.connected()
        client.subscribe("a", print)
        client.subscribe("b", print, queue="q").unsubscribe(5)
        gone = client.subscribe("c", print)
        self.turn()
        self.end.send(b"MSG b 2 0\r\n\r\nMSG b 2 0\r\n\r\n")
        self.end.lose()
        client.publish("x", b"1")
        client.subscribe("d", print)
        gone.unsubscribe()
        self.turn(1)
        end = self.network.newest
        end.accept()

        expected = b"SUB a 1\r\nSUB b q 2\r\nUNSUB 2 3\r\nSUB d 4\r\nPUB x 1\r\n1\r\n"
        self.assertEqual(expected, end.taken())

    def test_written_once(self) -> None:
        """
        What was written to the lost connection is not sent again.
        """
        client = self.connected()
        client.publish("a")
        self.turn()
        self.end.lose()
        self.turn(1)
        self.network.newest.accept()

        self.assertEqual(b"", self.network.newest.taken())

    def test_next_server(self) -> None:
        """
        After a loss the next server is tried, without a pause but a jitter.
        """
        client = self.connected(*URLS, chance=Middle())
        self.network.down.add("two:4222")
        self.turn(60)
        self.end.send(b"PONG\r\n")
        self.end.lose()
        self.turn(0.05)
        self.turn(0.05)

        self.assertEqual(["one:4222", "two:4222", "three:4222"], self.network.attempts)
        self.network.newest.accept()
        self.assertEqual("three:4222", str(client.server))

    def test_flush_and_requests(self) -> None:
        """
        A flush of a lost connection fails; a request waits for its time.
        """
        client = self.connected()
        flushed, asked = client.flush(), client.request("a", timeout=30.0)
        self.end.lose()

        self.failureResultOf(flushed, ConnectionLost)
        self.failureResultOf(client.flush(), ConnectionLost)
        self.assertNoResult(asked)
        client.close()
        self.failureResultOf(asked, Closed)

    def test_protocol_error(self) -> None:
        """
        Bytes that are no command end the connection, and the reason says which.
        """
        self.connected()
        self.end.send(b"WHAT\r\n")

        self.assertTrue(self.end.is_closed)
        self.assertIn("found b'WHAT'", self.heard.heard[-1][1])

    def test_largest_payload(self) -> None:
        """
        A message far beyond `max_payload` ends the connection before it is taken in.
        """
        self.connected()
        self.end.info(max_payload=100)
        self.end.send(b"MSG a 1 1000000\r\n")

        self.assertTrue(self.end.is_closed)
        self.assertIn("expected a message of at most", self.heard.heard[-1][1])

    def test_errors_of_the_server(self) -> None:
        """
        An error that closes the connection is the reason of its end; another is only reported.
        """
        self.connected()
        self.end.send(b"-ERR 'Permissions Violation for Publish to \"a\"'\r\n")
        self.assertEqual(("failed", 'Permissions Violation for Publish to "a"'), self.heard.heard[-1])
        self.end.send(b"-ERR 'Stale Connection'\r\n")
        self.end.lose()

        self.assertEqual(("disconnected", "Stale Connection"), self.heard.heard[-1])

    def test_pings(self) -> None:
        """
        The client answers pings, and sends its own; a server from which nothing comes is left.
        """
        self.connected(ping_seconds=10.0, max_pings=2)
        self.end.send(b"PING\r\n")
        self.assertEqual(b"PONG\r\n", self.end.taken())
        self.turn(10)
        self.assertEqual(b"PING\r\n", self.end.taken())
        self.end.send(b"PONG\r\n")
        self.turn(10)
        self.turn(10)
        self.assertFalse(self.end.is_closed)
        self.turn(10)

        self.assertTrue(self.end.is_closed)
        self.assertEqual(("disconnected", "one:4222 is silent"), self.heard.heard[-1])

    def test_traffic_is_a_sign_of_life(self) -> None:
        """
        A server that sends messages, but no pong yet, is not left.
        """
        self.connected(ping_seconds=10.0)
        for _ in range(10):
            self.turn(10)
            self.end.send(b"MSG a 9 0\r\n\r\n")

        self.assertFalse(self.end.is_closed)
        self.assertEqual(1, self.end.taken().count(b"PING"))

    def test_not_reading(self) -> None:
        """
        A client that does not read hears no pongs, and does not leave the server for it.
        """
        client = self.connected(ping_seconds=10.0)
        client.pause_reading()
        self.assertEqual("paused", self.end.transport.producerState)
        for _ in range(10):
            self.turn(10)
        self.assertFalse(self.end.is_closed)
        self.end.lose()
        self.turn(1)
        self.network.newest.accept()
        self.assertEqual("paused", self.network.newest.transport.producerState)
        client.resume_reading()

        self.assertEqual("producing", self.network.newest.transport.producerState)

    def test_close_while_waiting(self) -> None:
        """
        A client can be closed between two attempts, and while one is made.
        """
        client = self.connected()
        self.end.lose()
        closed = client.close()
        self.turn()
        self.successResultOf(closed)
        self.assertEqual([], self.clock.getDelayedCalls())

    def test_listener_closes(self) -> None:
        """
        A listener may close the client when it is disconnected.
        """
        client = self.connected()
        self.heard.disconnected = lambda reason: client.close()
        self.end.lose()
        self.turn()
        self.turn(60)

        self.assertEqual(["one:4222"], self.network.attempts)
        self.assertEqual([], self.clock.getDelayedCalls())


class LameDuckTests(NatsCase):
    """
    A server that says that it will stop.
    """

    def test_moves(self) -> None:
        """
        After a random time, and when the server has all that was sent, the client goes to another server.
        """
        client = self.connected(*URLS, chance=Middle(), lame_duck_seconds=4.0)
        client.subscribe("a", print)
        self.end.info(ldm=True)
        self.end.info(ldm=True)
        self.turn(1.9)
        self.assertNotIn(b"PING", self.end.taken())
        self.turn(0.2)
        client.publish("b")
        self.turn()
        self.assertEqual(b"PING\r\nPUB b 0\r\n\r\n", self.end.taken())
        self.end.send(b"PONG\r\n")
        client.publish("c")
        self.assertTrue(self.end.is_closed)
        self.turn(1)
        self.network.newest.accept()

        self.assertEqual("two:4222", str(client.server))
        self.assertEqual(b"SUB a 1\r\nPUB c 0\r\n\r\n", self.network.newest.taken())
        self.assertEqual(1, self.heard.names().count("lame_duck"))

    def test_only_server(self) -> None:
        """
        Without another server the client stays until it is disconnected, and then tries the same one again.
        """
        self.connected()
        self.end.info(ldm=True)
        self.turn(9)
        self.assertFalse(self.end.is_closed)
        self.end.lose()
        self.turn(1)

        self.assertEqual(["one:4222", "one:4222"], self.network.attempts)

    def test_lost_before_it_moves(self) -> None:
        """
        A connection that is lost meanwhile leaves no timer behind.
        """
        client = self.connected(*URLS)
        self.end.info(ldm=True)
        self.end.lose()
        client.close()
        self.turn()

        self.assertEqual([], self.clock.getDelayedCalls())
