"""
The NATS client against a real nats-server: authentication, TLS, and servers that die, stop or are slow.
"""

import ipaddress
import signal
import tempfile
from pathlib import Path
from typing import Any

from cryptography import x509
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.ssl import Certificate, PrivateCertificate, trustRootFromCertificates

from msgnode.nats.client import NatsClient
from msgnode.nats.errors import (
    AuthorizationError,
    BufferFull,
    ConnectionLost,
    NoResponders,
    PayloadTooLarge,
    TLSError,
)
from msgnode.nats.options import TLS
from msgnode.nats.wire.credentials import NKey, Token, UserPassword, parse_credentials
from msgnode.nats.wire.message import Message
from tests.support.authority import Authority
from tests.support.nats_jwt import Operator, creds_file, new_key
from tests.support.nats_server import NatsServer, NatsServerCase, turns, until, version


class MessageTests(NatsServerCase):
    """
    A server without authentication, and messages.
    """

    async def test_publication(self) -> None:
        """
        A message reaches subscriptions with and without wildcards, as it was sent, once each.
        """
        server = self.serve()
        client = await self.connected(server.url)
        exact: list[Message] = []
        wild: list[Message] = []
        client.subscribe("grüße.a", exact.append)
        client.subscribe("grüße.>", wild.append)
        payload = bytes(range(256))
        client.publish("grüße.a", payload, reply="there")
        await client.flush()

        self.assertEqual([Message("grüße.a", "there", payload)], exact)
        self.assertEqual(exact, wild)

    async def test_headers(self) -> None:
        """
        Headers arrive with several values, with an empty payload and with a large one.
        """
        client = await self.connected(self.serve().url)
        found: list[Message] = []
        client.subscribe("a", found.append)
        for payload in (b"", b"x" * 500_000):
            client.publish("a", payload, headers={"Trace": "1", "Via": ["b", "c"]})
        await client.flush()

        self.assertEqual([b"", b"x" * 500_000], [each.payload for each in found])
        self.assertEqual([{"Trace": ["1"], "Via": ["b", "c"]}] * 2, [each.headers for each in found])

    async def test_largest_payload(self) -> None:
        """
        A payload as large as the server takes arrives; one byte more is refused before it is sent.
        """
        client = await self.connected(self.serve("max_payload: 100000").url)
        found: list[Message] = []
        client.subscribe("a", found.append)
        client.publish("a", b"x" * 100_000)
        self.assertRaises(PayloadTooLarge, client.publish, "a", b"x" * 100_001)
        await client.flush()

        self.assertEqual([100_000], [len(each.payload) for each in found])

    async def test_queue_group(self) -> None:
        """
        Of the subscriptions of a queue group, one gets each message.
        """
        server = self.serve()
        one, other = await self.connected(server.url), await self.connected(server.url)
        found: list[Message] = []
        for client in (one, other):
            client.subscribe("a", found.append, queue="workers")
            await client.flush()
        for number in range(100):
            one.publish("a", b"%d" % number)
        await one.flush()
        await other.flush()

        self.assertEqual(
            sorted(b"%d" % number for number in range(100)), sorted(each.payload for each in found)
        )

    async def test_maximum(self) -> None:
        """
        A subscription ends after as many messages as it asked for.
        """
        client = await self.connected(self.serve().url)
        found: list[Message] = []
        client.subscribe("a", found.append).unsubscribe(3)
        for _ in range(5):
            client.publish("a")
        await client.flush()

        self.assertEqual(3, len(found))

    async def test_requests(self) -> None:
        """
        A thousand requests at once get their own answers.
        """
        client = await self.connected(self.serve().url)
        client.subscribe("double", lambda message: client.publish(message.reply, message.payload * 2))
        answers = await gatherResults([client.request("double", b"%d" % number) for number in range(1000)])

        self.assertEqual([b"%d" % number * 2 for number in range(1000)], [each.payload for each in answers])

    async def test_no_responders(self) -> None:
        """
        A request that no subscriber hears fails at once.
        """
        client = await self.connected(self.serve().url)
        await self.assertFailure(client.request("nobody.there"), NoResponders)

    async def test_many_messages(self) -> None:
        """
        More messages than buffers hold are refused and sent again when there is room; all arrive, in their
        order.
        """
        server = self.serve()
        client = await self.connected(server.url, max_pending_bytes=200_000)
        reader = await self.connected(server.url)
        found: list[bytes] = []
        reader.subscribe("a", lambda message: found.append(message.payload))
        await reader.flush()
        refused = number = 0
        while number < 5000:
            try:
                client.publish("a", b"%d" % number + b"." * 500)
                number += 1
            except BufferFull:
                refused += 1
                before = len(self.heard(client))
                await until(lambda before=before: ("has_room", None) in self.heard(client)[before - 1 :])
        await client.flush()
        await until(lambda: len(found) == 5000)

        self.assertTrue(refused)
        self.assertEqual(list(range(5000)), [int(each.rstrip(b".")) for each in found])

    async def test_drain(self) -> None:
        """
        A client that is drained handles what is under way, its answers arrive, and it is closed.
        """
        server = self.serve()
        client, other = await self.connected(server.url), await self.connected(server.url)
        client.subscribe("ask", lambda message: client.publish(message.reply, b"done"))
        await client.flush()
        answers = [other.request("ask") for _ in range(50)]
        await other.flush()
        await client.drain()

        self.assertEqual({b"done"}, {each.payload for each in await gatherResults(answers)})
        self.assertIsNone(client.server)

    async def test_permissions(self) -> None:
        """
        A publication that is not permitted is reported, and the connection stays.
        """
        server = self.serve('authorization { users: [{user: u, password: p, permissions: {publish: "ok"}}] }')
        client = await self.connected(server.url, credentials=UserPassword("u", "p"))
        client.publish("secret")
        await client.flush()

        (failed,) = [text for name, text in self.heard(client) if name == "failed"]
        self.assertIn("Permissions Violation for Publish", failed)
        self.assertIsNotNone(client.server)


class AuthenticationTests(NatsServerCase):
    """
    Each way to authenticate, with the right secret and with a wrong one.
    """

    async def check(self, server: NatsServer, good: Any, bad: Any) -> None:
        """
        The good credentials are accepted, the bad ones and none are refused, with an error that says so.
        """
        client = await self.connected(server.url, credentials=good)
        await client.flush()
        for wrong in (bad, None):
            why = await self.refused(self.client(server.url, credentials=wrong))
            self.assertIsInstance(why, AuthorizationError)

    async def test_password(self) -> None:
        """
        A user and a password.
        """
        server = self.serve("authorization { user: ann, password: secret }")
        await self.check(server, UserPassword("ann", "secret"), UserPassword("ann", "wrong"))
        await self.connected(f"nats://ann:secret@127.0.0.1:{server.client}")

    async def test_token(self) -> None:
        """
        A token, by an option and in the URL.
        """
        server = self.serve('authorization { token: "s3cr3t" }')
        await self.check(server, Token("s3cr3t"), Token("wrong"))
        await self.connected(f"nats://s3cr3t@127.0.0.1:{server.client}")

    async def test_nkey(self) -> None:
        """
        An nkey, whose public half the server knows.
        """
        key = new_key("user")
        server = self.serve(f"authorization {{ users: [{{nkey: {key.public}}}] }}")
        await self.check(server, NKey(key.seed), NKey(new_key("user").seed))

    async def test_jwt(self) -> None:
        """
        A JWT of an account of the operator, and the seed of its user, as in a file of credentials.
        """
        operator = Operator()
        server = self.serve(operator.config)
        await self.check(server, parse_credentials(creds_file(operator.user())), Operator().user())


class TLSTests(NatsServerCase):
    """
    Servers with certificates of an authority of the test.
    """

    def setUp(self) -> None:
        super().setUp()
        directory = Path(tempfile.mkdtemp(prefix="nats-pki-"))
        self.authority = Authority(directory)
        self.trust = trustRootFromCertificates([Certificate.loadPEM(Path(self.authority.path).read_bytes())])
        self.cert = self.authority.issue("localhost")

    def serve_tls(self, more: str = "", cert: str = "") -> NatsServer:
        cert = cert or self.cert
        return self.serve(f'tls {{ cert_file: "{cert}", key_file: "{cert}", timeout: 5\n{more} }}')

    def url(self, server: NatsServer, scheme: str = "nats") -> str:
        return f"{scheme}://localhost:{server.client}"

    async def check(self, client: NatsClient) -> None:
        """
        A message goes through.
        """
        found: list[Message] = []
        client.subscribe("a", found.append)
        client.publish("a", b"x" * 200_000)
        await client.flush()
        self.assertEqual([200_000], [len(each.payload) for each in found])

    async def test_upgrade(self) -> None:
        """
        The connection is upgraded to TLS after INFO, because the server requires it.
        """
        server = self.serve_tls()
        client = await self.connected(self.url(server), tls=TLS(trust=self.trust))
        await self.check(client)

    async def test_tls_first(self) -> None:
        """
        TLS comes first, where the server has `handshake_first`.
        """
        if version() < (2, 10, 4):
            self.skipTest("this server has no handshake_first")
        server = self.serve_tls("handshake_first: true")
        client = await self.connected(self.url(server, "tls"), tls=TLS(trust=self.trust, first=True))
        await self.check(client)

    async def test_client_certificate(self) -> None:
        """
        A server that verifies clients accepts one with a certificate of its authority, and none without.
        """
        server = self.serve_tls(f'verify: true\nca_file: "{self.authority.path}"')
        own = PrivateCertificate.loadPEM(Path(self.authority.issue("client")).read_bytes())
        await self.check(await self.connected(self.url(server), tls=TLS(self.trust, own)))
        await self.refused(self.client(self.url(server), tls=TLS(self.trust)))

    async def test_address(self) -> None:
        """
        A certificate for an address is accepted for that address.
        """
        names: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        server = self.serve_tls(cert=self.authority.issue("node", names))
        await self.check(await self.connected(server.url, tls=TLS(self.trust)))

    async def test_untrusted(self) -> None:
        """
        A certificate of an unknown authority, or for another name, is refused, and the server sees no
        CONNECT.
        """
        server = self.serve_tls("}\ndebug: true\ntrace: true\nauthorization { token: t")
        other = Authority(Path(tempfile.mkdtemp(prefix="nats-pki-")))
        unknown = trustRootFromCertificates([Certificate.loadPEM(Path(other.path).read_bytes())])
        for tls in (TLS(unknown), TLS(self.trust, name="elsewhere.example")):
            client = self.client(self.url(server), tls=tls, credentials=Token("t"))
            await self.refused(client)

        self.assertNotIn("CONNECT", server.said())
        await self.connected(self.url(server), tls=TLS(self.trust), credentials=Token("t"))
        self.assertIn("CONNECT", server.said())

    async def test_not_offered(self) -> None:
        """
        A client that wants TLS refuses a server without.
        """
        server = self.serve()
        for client in (self.client(server.url, tls=TLS(self.trust)), self.client(self.url(server, "tls"))):
            self.assertIsInstance(await self.refused(client), TLSError)


class FaultTests(NatsServerCase):
    """
    Servers that die, stop, are replaced, or find a client too slow.
    """

    async def test_killed_and_restarted(self) -> None:
        """
        After kill -9 and a restart, subscriptions hear again, and what was published meanwhile arrives.
        """
        server = self.serve()
        client, other = await self.connected(server.url), await self.connected(server.url)
        found: list[bytes] = []
        client.subscribe("a", lambda message: found.append(message.payload))
        await client.flush()
        lost: Deferred[Any] = client.request("nobody", timeout=0.5)
        server.kill()
        await until(lambda: client.server is None and other.server is None)
        client.publish("a", b"meanwhile")
        server.start()
        await until(lambda: other.server is not None and client.server is not None)
        await client.flush()
        other.publish("a", b"after")
        await until(lambda: len(found) == 2)

        self.assertEqual([b"meanwhile", b"after"], found)
        await self.assertFailure(lost, Exception)

    async def test_flush_at_a_dead_server(self) -> None:
        """
        A flush fails when the server dies before it answers.
        """
        server = self.serve()
        client = await self.connected(server.url)
        server.freeze()
        client.publish("a")
        flushed = client.flush()
        await turns()
        server.kill()

        await self.assertFailure(flushed, ConnectionLost)

    async def test_silent_server(self) -> None:
        """
        A server that is stopped is found by pings, and heard of again when it goes on.
        """
        server = self.serve()
        client = await self.connected(server.url, ping_seconds=0.1, connect_seconds=0.3)
        server.freeze()
        await until(lambda: client.server is None)
        self.assertIn("is silent", self.heard(client)[-1][1])
        server.send_signal(signal.SIGCONT)
        await until(lambda: client.server is not None)

    def cluster(self) -> tuple[NatsServer, NatsServer]:
        """
        Two servers with a route between them.
        """
        cluster = (
            'cluster {{ name: "c", host: "127.0.0.1", port: {}, routes: [{}] }}\nlame_duck_duration: "31s"\n'
        )
        cluster += 'lame_duck_grace_period: "30s"\n'
        one = self.serve(cluster.format(-1, ""))
        other = self.serve(cluster.format(-1, f'"nats://127.0.0.1:{one.route}"'))
        return one, other

    async def test_cluster(self) -> None:
        """
        A client learns the other server of a cluster, and moves there when its own is killed.
        """
        one, other = self.cluster()
        client = await self.connected(one.url)
        await until(lambda: len(client.servers) == 2)
        found: list[bytes] = []
        client.subscribe("a", lambda message: found.append(message.payload))
        one.kill()
        await until(lambda: client.server is not None and client.server.port == other.client)
        there = await self.connected(other.url)
        await client.flush()
        there.publish("a", b"still heard")
        await until(lambda: found)

        self.assertEqual([b"still heard"], found)

    async def test_lame_duck(self) -> None:
        """
        A client leaves a server in lame duck mode for the other one, before it is disconnected.
        """
        one, other = self.cluster()
        client = await self.connected(one.url)
        await until(lambda: len(client.servers) == 2)
        found: list[bytes] = []
        client.subscribe("a", lambda message: found.append(message.payload))
        await client.flush()
        one.send_signal(signal.SIGUSR2)
        await until(lambda: client.server is not None and client.server.port == other.client)
        client.publish("a", b"moved")
        await client.flush()

        self.assertEqual([b"moved"], found)
        self.assertIn("lame_duck", [name for name, _ in self.heard(client)])
        self.assertIsNone(one.process.poll())

    async def test_slow_consumer(self) -> None:
        """
        A client that does not read is disconnected as a slow consumer, and hears the later messages after
        that.
        """
        server = self.serve('max_payload: 200000\nmax_pending: 200000\nwrite_deadline: "1s"')
        slow, other = await self.connected(server.url), await self.connected(server.url)
        found: list[bytes] = []
        slow.subscribe("a", lambda message: found.append(message.payload[:5]))
        await slow.flush()
        slow.pause_reading()
        for _ in range(300):
            other.publish("a", b"flood" + b"x" * 100_000)
            if other.pending_bytes > 1_000_000:
                await other.flush()
        await other.flush()
        await until(lambda: "Slow Consumer" in server.said())
        slow.resume_reading()
        await until(lambda: "disconnected" in [name for name, _ in self.heard(slow)])
        await until(lambda: slow.server is not None)
        await slow.flush()
        other.publish("a", b"later")
        await until(lambda: found[-1:] == [b"later"])

        self.assertLess(len(found), 300)

    async def test_expired_user(self) -> None:
        """
        A user whose JWT expires is disconnected, and the reason says so.
        """
        operator = Operator()
        client = await self.connected(self.serve(operator.config).url, credentials=operator.user(seconds=2))
        await until(lambda: "disconnected" in [name for name, _ in self.heard(client)])

        reasons = [text for name, text in self.heard(client) if name == "disconnected"]
        self.assertIn("User Authentication Expired", reasons[0])
