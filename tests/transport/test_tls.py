"""
Certificates: the client's name in one, and those of the node that are renewed.
"""

from pathlib import Path
from typing import Any

from cryptography import x509
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.ssl import (
    Certificate,
    CertificateOptions,
    PrivateCertificate,
    TLSVersion,
    optionsForClientTLS,
)
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import capturedLogs
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.trial.unittest import SynchronousTestCase

from msgnode.config.schema import ConfigError, Listen
from msgnode.transport.listener import Listener
from msgnode.transport.sockets import READ_CHUNK_BYTES, name_of
from msgnode.transport.tls import TLSFactory, as_table, over_tls
from tests.support.authority import Authority
from tests.support.fakes import directory
from tests.support.http_client import HTTPClient
from tests.support.network import Network
from tests.support.runtimes import TCPRuntime, WebSocketRuntime, dumps

URI, DNS = x509.UniformResourceIdentifier, x509.DNSName
SERVER = "example.org"


class NameTests(SynchronousTestCase):
    """
    Who a client is by its certificate.
    """

    def test_first_uri_without_one_the_first_dns_name(self) -> None:
        """
        The first URI; without one the first DNS name; without one the common name.
        """
        authority = Authority(directory(self))
        for names, expected in (
            ([DNS("a.example.org"), URI("urn:mn:1"), URI("urn:mn:2")], "urn:mn:1"),
            ([x509.RFC822Name("a@example.org"), DNS("a.example.org"), DNS("b.example.org")], "a.example.org"),
            ([x509.RFC822Name("a@example.org")], "common"),
            ([], "common"),
        ):
            path = authority.issue("common", names=names)

            self.assertEqual(expected, name_of(x509.load_pem_x509_certificate(Path(path).read_bytes())))

    def test_certificate_without_any_name_names_nobody(self) -> None:
        """
        A certificate without any name names nobody.
        """
        path = Authority(directory(self)).issue("", names=[])

        self.assertEqual("", name_of(x509.load_pem_x509_certificate(Path(path).read_bytes())))


class _Heard(Protocol):
    """
    A TLS client: the certificate it was shown, what has come, and whether the connection stands.
    """

    stands = True
    came = b""
    net: Network

    def send(self, message: dict[str, Any]) -> None:
        self.transport.write(dumps(message) + b"\n")
        self.net.pump()

    def dataReceived(self, data: bytes) -> None:
        self.came += data

    def connectionLost(self, reason: Any = None) -> None:
        self.stands = False

    @property
    def shown(self) -> int:
        transport: Any = self.transport
        return transport.getPeerCertificate().get_serial_number()


class TLSCase(SynchronousTestCase):
    """
    A listener over TLS that asks for client certificates.
    """

    kind = "line"

    def setUp(self) -> None:
        self.directory = directory(self)
        self.authority = Authority(self.directory)
        self.cert = self.authority.issue(SERVER)
        self.net = Network()
        self.listen = Listen(
            kind="line", endpoint="tcp:0", cert=self.cert, key=self.cert, client_ca=self.authority.path
        )
        self.net.listener("line")
        for name in ("line", "web"):
            self.net.listeners[name] = over_tls(self.listen, self.net.listener(name), self.net.clock)

    @property
    def factory(self) -> TLSFactory:
        found = self.net.listener("line")
        assert isinstance(found, TLSFactory)
        return found

    def context(self, name: str | None, names: Any = None, own: str = "") -> Any:
        """
        What a client brings that trusts our authority, with a certificate of its own if it has a name.
        """
        shown = None
        if name is not None:
            path = own or self.authority.issue(name, names=names, file="client")
            shown = PrivateCertificate.loadPEM(Path(path).read_text())
        return optionsForClientTLS(SERVER, Certificate.loadPEM(Path(self.authority.path).read_text()), shown)

    def wrapped(self, client: Protocol, context: Any) -> Protocol:
        factory = TLSMemoryBIOFactory(context, True, Factory(), self.net.clock)
        factory.wrappedFactory.buildProtocol = lambda address: client  # type: ignore[method-assign]
        return factory.buildProtocol(None)

    def connect(self, name: str | None = "server", names: Any = None, context: Any = None) -> _Heard:
        heard = _Heard()
        heard.net = self.net
        self.link = self.net.link("line", self.wrapped(heard, context or self.context(name, names)))
        self.net.pump()
        return heard

    def identity_expiry(self) -> list[str]:
        return [connection.identity for connection in self.net.node.sessions.connections]


class CloseTests(TLSCase):
    """
    The end of a connection over TLS.
    """

    def test_line_connection_ends_as_soon_as_its_close_reason_has_left(self) -> None:
        """
        A line connection ends as soon as its close reason has left, and no timeout cuts it off.
        """
        heard = self.connect()

        heard.send({"id": 1, "type": "open", "from": "runtime://example.org/a", "to": "mn:/session"})
        heard.send({"id": 2, "type": "close", "from": "runtime://example.org/a", "to": "mn:/session"})

        self.assertIn(b'"reason":"closed"', heard.came)
        self.assertFalse(heard.stands)


class IdentityTests(TLSCase):
    """
    A client that shows a certificate is known by its name.
    """

    def test_on_a_line_the_name_is_known_before_the_first(self) -> None:
        """
        On a line the name is known before the first message.
        """
        self.connect("server.example.org", [URI("urn:mn:server")])

        self.assertEqual(["urn:mn:server"], self.identity_expiry())

    def test_on_a_websocket_when_it_opens(self) -> None:
        """
        On a WebSocket when it opens.
        """
        case = self

        class Client(WebSocketRuntime):
            def wrapped(self) -> Protocol:
                return case.wrapped(self.stub, case.context("browser.example.org"))

        client = Client(self.net, "runtime://example.org/a").open()

        self.assertTrue(client.token)
        self.assertEqual(["browser.example.org"], self.identity_expiry())

    def test_polling(self) -> None:
        """
        A poller's is that of the connection its first request came by.
        """
        case = self

        class Client(HTTPClient):
            def _connect(self) -> None:
                self.is_connected = True
                wrapped = case.wrapped(self, case.context("poller.example.org"))
                self.link = self.network.link("web", wrapped)

        body = dumps({"id": 1, "type": "open", "from": "runtime://example.org/p", "to": "mn:/session"})
        answer = Client(self.net).request("POST", "/poll", body)

        self.assertEqual(200, answer.status)
        self.assertEqual(["poller.example.org"], self.identity_expiry())

    def test_no_certificate(self) -> None:
        """
        Who shows none is not let in.
        """
        heard = self.connect(None)

        self.assertFalse(heard.stands)
        self.assertEqual([], self.identity_expiry())

    def test_of_another_authority(self) -> None:
        """
        Nor who shows one that somebody else signed.
        """
        stranger = Authority(directory(self)).issue("server")

        context = self.context("server", own=stranger)
        heard = self.connect(context=context)

        self.assertFalse(heard.stands)
        self.assertEqual([], self.identity_expiry())

    def test_client_without_tls_has_no_name(self) -> None:
        """
        Without TLS a client has no name.
        """
        self.net.listeners["line"] = self.factory.wrappedFactory
        TCPRuntime(self.net, "runtime://example.org/a").open()

        self.assertEqual([""], self.identity_expiry())


class ContextTests(TLSCase):
    """
    How the node speaks TLS.
    """

    def test_old_versions(self) -> None:
        """
        TLS 1.1 is not spoken.
        """
        trust = Certificate.loadPEM(Path(self.authority.path).read_text())
        old = CertificateOptions(
            trustRoot=trust,
            insecurelyLowerMinimumTo=TLSVersion.TLSv1_0,
            lowerMaximumSecurityTo=TLSVersion.TLSv1_1,
        )

        self.assertFalse(self.connect(context=old).stands)

    def test_one_tls_read_takes_at_most_16_kib(self) -> None:
        """
        One read takes at most 16 KiB of a connection, below TLS as without it.
        """
        self.connect()

        self.assertEqual((16384, READ_CHUNK_BYTES), (READ_CHUNK_BYTES, self.link.serverIO.bufferSize))


class RenewalTests(TLSCase):
    """
    Certificates that change while the node runs.
    """

    def renew(self) -> None:
        self.factory.use(self.factory.read())

    def test_the_certificate_in_use_has_its_subject_and_end(self) -> None:
        """
        Metrics and the report on the node read them of the listener.
        """
        used = self.factory.certificate

        self.assertEqual(
            [SERVER],
            used.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(
                x509.DNSName
            ),
        )
        self.assertEqual(x509.load_pem_x509_certificate(Path(self.cert).read_bytes()), used)

    def test_new_connections_are_shown_the_new_certificate(self) -> None:
        """
        New connections are shown the new certificate; those that are open stay.
        """
        before = self.connect()
        self.authority.issue(SERVER)
        unchanged = self.connect()
        self.renew()
        after = self.connect()

        self.assertEqual(before.shown, unchanged.shown)
        self.assertNotEqual(before.shown, after.shown)
        self.assertEqual([True] * 3, [before.stands, unchanged.stands, after.stands])

    def test_other_clients(self) -> None:
        """
        So it is with the authority that clients are asked for.
        """
        other = Authority(directory(self))
        Path(self.authority.path).write_bytes(Path(other.path).read_bytes())
        self.renew()

        self.assertFalse(self.connect().stands)

    def test_unusable_certificate_file_changes_nothing(self) -> None:
        """
        A file that cannot be used is named, and changes nothing.
        """
        before = self.connect()
        good = Path(self.cert).read_bytes()
        for bad, text in (
            (b"", "expected certificates in PEM"),
            (good.partition(b"-----BEGIN PRIVATE")[0], "expected a private key in PEM"),
            (good[:300], "expected certificates in PEM"),
        ):
            Path(self.cert).write_bytes(bad)

            why = str(self.assertRaises(ConfigError, self.factory.read))

            self.assertEqual(f"{self.cert}: {text}", why)
            self.assertEqual(before.shown, self.connect().shown)

    def test_key_that_does_not_fit(self) -> None:
        """
        Half of a renewal, a certificate without its key, is refused too.
        """
        first = Path(self.cert).read_bytes()
        second = Path(self.authority.issue(SERVER)).read_bytes()
        own, key = b"-----BEGIN PRIVATE", second.index(b"-----BEGIN PRIVATE")
        Path(self.cert).write_bytes(first.partition(own)[0] + second[key:])

        why = str(self.assertRaises(ConfigError, self.factory.read))

        self.assertEqual(f"{self.cert}: expected a certificate for the key in {self.cert}", why)


class StringTests(TLSCase):
    """
    Listeners that are given as `ssl:` strings.
    """

    def prepared(self, endpoint: str) -> Any:
        listen = Listen(kind="line", endpoint=endpoint)
        return Listener(listen, self.factory.wrappedFactory, MemoryReactorClock())

    def test_string_stands_for_the_table_that_says_the_same(self) -> None:
        """
        A string stands for the table that says the same.
        """
        for endpoint, expected in (
            ("ssl:9443:privateKey=k.pem:certKey=c.pem", ("tcp:9443", "c.pem", "k.pem")),
            ("ssl:9443:privateKey=both.pem", ("tcp:9443", "both.pem", "both.pem")),
            ("ssl:9443", ("tcp:9443", "server.pem", "server.pem")),
            (
                r"ssl:port=1:interface=\:\:1:certKey=C\:\\c.pem:privateKey=k.pem:backlog=5",
                (r"tcp:port=1:interface=\:\:1:backlog=5", r"C:\c.pem", "k.pem"),
            ),
        ):
            found = as_table(Listen(kind="web", endpoint=endpoint))

            self.assertEqual(expected, (found.endpoint, found.cert, found.key))

    def test_no_table(self) -> None:
        """
        What no table can say stays a string, as does what is no `ssl:`.
        """
        for endpoint in (
            "tcp:9090",
            "unix:/x",
            "",
            "haproxy:ssl:1",
            "ssl:1:privateKey=k:extraCertChain=c",
            "ssl:1:k:c",
        ):
            listen = Listen(kind="web", endpoint=endpoint)

            self.assertIs(listen, as_table(listen))

    def test_its_certificate_is_read_again_with_those_of_tables(self) -> None:
        """
        Its certificate is read again with those of tables.
        """
        self.net.listeners["line"] = self.prepared(f"ssl:0:privateKey={self.cert}:certKey={self.cert}").tls
        before = self.connect()
        self.authority.issue(SERVER)

        self.factory.use(self.factory.read())

        self.assertNotEqual(before.shown, self.connect().shown)
        self.assertTrue(before.stands)

    def test_read_once(self) -> None:
        """
        Of one that cannot be read again that is said at the start.
        """
        endpoint = f"ssl:0:privateKey={self.cert}:extraCertChain={self.cert}"
        with capturedLogs() as said:
            self.assertIsNone(self.prepared(endpoint).tls)

        (event,) = said
        self.assertEqual(endpoint, event["endpoint"])
        self.assertIn("SIGHUP does not", event["what"])

    def test_mistake_is_said_in_the_words_of_the_string(self) -> None:
        """
        A mistake is said in the words of the string that was given.
        """
        for endpoint, text in (
            ("ssl:privateKey=k.pem", "expected an endpoint such as tcp:9090, found 'ssl:privateKey=k.pem'"),
            ("ssl:1:privateKey=/nowhere", "line: /nowhere: cannot be read"),
            ("systemd:INET:index=0", "line: systemd passed no socket for 'systemd:INET:index=0'; start"),
            ("systemd:INET", "expected an endpoint such as tcp:9090, found 'systemd:INET'"),
        ):
            why = self.assertRaises(ConfigError, self.prepared, endpoint)

            self.assertIn(text, str(why))
