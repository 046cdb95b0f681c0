"""
Links between nodes over real TLS and TCP: two owners with two authorities, and peers that misbehave.
"""

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from msgnode.links.carrier import codec
from msgnode.links.trust.certificates import pin_of
from msgnode.links.wire.entries import Close, Digest, Hello, Ping
from tests.support.authority import DAY
from tests.support.fakes import directory
from tests.support.links_carrier import datagram
from tests.support.links_nodes import LinkNode, turns, until


class TwoNodesTests(TestCase):
    """
    a.example and b.example, each with an authority of its own.
    """

    def setUp(self) -> None:
        self.directory = directory(self)
        self.a, self.b = self.node("a.example"), self.node("b.example")

    def node(self, domain: str, name: str = "n1", epoch: int = 1) -> LinkNode:
        return LinkNode(self.directory, domain, name, epoch)

    def run_node(self, node: LinkNode) -> None:
        node.start()
        self.addCleanup(lambda: Deferred.fromCoroutine(node.stop()))

    async def linked(self, both: bool = False) -> None:
        """
        A dials B, and if `both`, B also dials A.
        """
        self.b.trust(self.a)
        self.run_node(self.b)
        self.a.trust(self.b, dial=True)
        self.run_node(self.a)
        if both:
            self.b.trust(self.a, dial=True)
            self.b.reload()
        await until(lambda: self.a.heard.links and self.b.heard.links)

    async def test_datagrams_travel_both_ways(self) -> None:
        """
        Two nodes of different owners have a link, and datagrams and link states travel in both directions.
        """
        await self.linked()
        there, back = datagram(b"x" * 30_000), datagram(b"y")

        self.assertTrue(self.a.heard.link.send(there))
        self.assertTrue(self.b.heard.link.send(back))
        self.a.heard.link.send_state(Digest(b"d"))
        await until(lambda: len(self.b.heard.entries) == 2 and self.a.heard.entries)
        await until(lambda: self.a.heard.link.round_trip is not None)

        self.assertEqual(([back], 2), (self.a.heard.entries, len(self.b.heard.entries)))
        self.assertEqual(self.b.name, self.a.heard.link.node)
        self.assertGreater(self.a.heard.link.round_trip, 0)

    async def test_many_datagrams_arrive_in_order_within_a_priority(self) -> None:
        """
        20 MB of one priority arrive whole and in order; a full link refuses, and says when it has room.
        """
        await self.linked()
        sent, total = 0, 2000

        async def send_all() -> None:
            nonlocal sent
            while sent < total:
                if self.a.heard.link.send(datagram(struct.pack(">I", sent) + bytes(10_000))):
                    sent += 1
                else:
                    self.a.heard.rooms = 0
                    await until(lambda: self.a.heard.rooms)

        await send_all()
        await until(lambda: len(self.b.heard.entries) == total)

        numbers = [struct.unpack(">I", entry.datagram.payload[:4])[0] for entry in self.b.heard.entries]
        self.assertEqual(list(range(total)), numbers)
        self.assertGreater(self.a.heard.link.refused, 0)

    async def test_urgent_datagram_overtakes_megabytes(self) -> None:
        """
        A datagram of a high priority overtakes what waits, because little waits below the queue.
        """
        await self.linked()
        for _ in range(600):
            self.a.heard.link.send(datagram(bytes(10_000), 1))
        await until(lambda: self.b.heard.entries)

        self.a.heard.link.send(datagram(b"now", 9))
        await until(lambda: len(self.b.heard.entries) == 601)

        at = next(n for n, entry in enumerate(self.b.heard.entries) if entry.datagram.payload == b"now")
        self.assertLess(at, 500)

    async def test_both_sides_dial_and_one_connection_stays(self) -> None:
        """
        When both sides dial, one connection stays, and datagrams pass by it in both directions.
        """
        await self.linked(both=True)
        await until(lambda: len(self.a.table.connections) == 1 == len(self.b.table.connections))
        await turns(0.3)

        self.assertEqual((1, 1), (len(self.a.table.connections), len(self.b.table.connections)))
        self.a.heard.link.send(datagram(b"1"))
        self.b.heard.link.send(datagram(b"2"))
        await until(lambda: self.a.heard.entries and self.b.heard.entries)
        (connection,) = self.a.table.connections
        self.assertEqual("b.example", connection.dialled)  # a.example/n1 is the smaller name

    async def test_restart_of_one_side(self) -> None:
        """
        After a restart of the side that listens, the other dials again, and knows the newer start.
        """
        await self.linked()
        await self.b.stop()
        await until(lambda: not self.a.heard.links)
        self.b.epoch = 2

        self.b.start()
        self.a.service.dialers["b.example"].wake()
        await until(lambda: self.a.heard.links and self.b.heard.links)

        self.assertEqual(2, self.a.heard.link.epoch)
        self.assertIn("closed by the peer: 503 the node is stopping", self.a.heard.reasons[0])

    async def test_removed_peer_is_cut_at_reload(self) -> None:
        """
        A peer that is removed loses its link at the reload, and gets it back when it is configured again.
        """
        await self.linked()
        self.b.peers = []

        self.b.reload()

        self.assertEqual([], self.b.heard.links)
        await until(lambda: not self.a.heard.links)
        self.assertIn("403 the domain a.example is not a peer", self.a.heard.reasons[0])

    async def test_renewed_certificate_is_used_after_a_reload(self) -> None:
        """
        A renewed certificate is presented by new connections.
        """
        await self.linked()
        before = next(iter(self.b.table.connections)).chain
        self.a.cert = self.a.authority.issue("msg-node.a.example", file="renewed")
        self.a.reload()

        self.b.heard.link.close(503, "test", 0.0)
        await until(lambda: len(self.b.heard.reasons) == 1 and self.b.heard.links)

        self.assertNotEqual(before, next(iter(self.b.table.connections)).chain)

    async def test_a_certificate_renewed_on_disk_is_used_without_a_reload(self) -> None:
        """
        A renewed certificate is presented by new connections; links that are up stay.
        """
        await self.linked()
        before = next(iter(self.b.table.connections)).chain
        self.a.authority.issue("msg-node.a.example")
        self.a.service.look_at_files()
        await turns(0.1)
        self.assertEqual([], self.b.heard.reasons)

        self.b.heard.link.close(503, "test", 0.0)
        await until(lambda: len(self.b.heard.reasons) == 1 and self.b.heard.links)

        self.assertNotEqual(before, next(iter(self.b.table.connections)).chain)

    async def test_a_half_renewed_certificate_is_not_used(self) -> None:
        """
        While a certificate file on disk is of no use, the one in use stays.
        """
        await self.linked()
        file = Path(self.a.cert)
        whole = file.read_bytes()
        file.write_bytes(whole[:100])
        self.a.service.look_at_files()
        self.b.heard.link.close(503, "test", 0.0)
        await until(lambda: len(self.b.heard.reasons) == 1 and self.b.heard.links and self.a.heard.links)

        file.write_bytes(whole)
        self.a.service.look_at_files()
        self.assertEqual(1, len(self.a.heard.links))

    async def test_a_pin_is_rotated(self) -> None:
        """
        A renewed key is accepted once it is pinned; without the old pin, links by the old key end at once.
        """
        old = self.pin(self.a.cert)
        renewed = self.a.authority.issue("msg-node.a.example", file="renewed")
        self.b.trust(self.a, pins=[old, self.pin(renewed)])
        self.run_node(self.b)
        self.a.trust(self.b, dial=True)
        self.run_node(self.a)
        await until(lambda: self.b.heard.links)

        self.a.cert = renewed
        self.a.reload()
        self.b.trust(self.a, pins=[self.pin(renewed)])
        self.b.reload()
        await until(lambda: len(self.b.heard.reasons) == 1 and self.b.heard.links)

        self.assertIn("is not pinned for a.example", self.b.heard.reasons[0])

    def pin(self, path: str) -> str:
        return pin_of(x509.load_pem_x509_certificate(Path(path).read_bytes()))

    async def test_a_certificate_that_becomes_revoked(self) -> None:
        """
        The link ends at once when the list on disk is renewed, and there is none until the certificate is.
        """
        self.b.own["crl"] = self.a.authority.revoke(self.b.cert)
        await self.linked()
        self.a.authority.revoke(self.a.cert)
        self.b.service.look_at_files()
        await until(lambda: self.a.heard.reasons and self.a.service.dialers["b.example"].last.is_over)

        self.assertEqual([], self.b.heard.links)
        self.assertIn("was revoked by CN=Test authority", self.a.heard.reasons[0])

        self.a.authority.issue("msg-node.a.example")
        self.a.service.look_at_files()
        await until(lambda: self.b.heard.links)

    async def test_revoked_certificate(self) -> None:
        """
        A node with a revoked certificate gets no link.
        """
        self.b.own["crl"] = self.a.authority.revoke(self.a.cert)

        await self.refused("was revoked by CN=Test authority")

    async def refused(self, words: str, at: Callable[[], LinkNode] | None = None) -> None:
        """
        A dials B, and gets no link; the words are in the close entry or the log of one of them.
        """
        self.b.trust(self.a)
        self.run_node(self.b)
        self.a.trust(self.b, dial=True)
        self.run_node(self.a)
        await until(lambda: self.a.table.counts["refused-403"] or self.a.heard.links or self.said())
        await turns(0.1)

        self.assertEqual(([], []), (self.a.heard.links, self.b.heard.links))
        self.assertIn(words, self.said())

    def said(self) -> str:
        return " ".join(connection.reason for node in (self.a, self.b) for connection in self.watched(node))

    def watched(self, node: LinkNode) -> list[Any]:
        return [dialer.last for dialer in node.service.dialers.values() if dialer.last is not None]

    async def test_certificate_of_another_authority(self) -> None:
        """
        A node with a certificate of an authority that the other does not trust gets no link.
        """
        self.a.cert = self.node("c.example").authority.issue("msg-node.a.example", file="foreign")

        await self.refused("no authority that is trusted for a.example vouches for the certificate")

    async def test_certificate_of_another_domain(self) -> None:
        """
        A node that says hello as another domain than its certificate's gets no link.
        """
        self.a.cert = self.a.authority.issue("msg-node.c.example")

        await self.refused("names msg-node.c.example; expected msg-node.a.example")

    async def test_expired_certificate(self) -> None:
        """
        A node with an expired certificate gets no link.
        """
        self.a.cert = self.a.authority.issue("msg-node.a.example", file="old", until=-DAY / 24)

        await self.refused("expired at")

    async def test_server_with_another_certificate(self) -> None:
        """
        The node that dials says nothing to a server that does not prove its domain.
        """
        self.b.cert = self.b.authority.issue("msg-node.c.example")

        await self.refused("names msg-node.c.example; expected msg-node.b.example")
        self.assertEqual(0, self.b.table.counts["refused-403"])

    async def test_node_that_claims_the_domain_of_the_other(self) -> None:
        """
        A hello with this node's own domain is refused.
        """
        self.a = LinkNode(self.directory / "b.example-n1", "b.example", "evil")
        self.b.peers = [{"domain": "x.example"}]
        self.run_node(self.b)
        said = await self.converse(self.hello("mn://b.example/evil"), cert=self.a.cert)

        self.assertEqual("the domain b.example is this node's own", said[-1].reason)

    # -- a peer that is no node -------------------------------------------------------

    def hello(self, node: str = "mn://a.example/n1", **more: Any) -> bytes:
        fields: dict[str, Any] = {
            "kind": "SERVER",
            "version": "1",
            "epoch": 1,
            "features": [],
            "contact": "",
            "max_bytes": 262144,
        }
        return codec.message([codec.encode(Hello(node=node, **(fields | more)))])

    def converse(self, *messages: bytes, cert: str = "", **more: Any) -> Awaitable[list[Any]]:
        """
        Connect to B as A does, send these WebSocket messages, and read until the end: the entries that came.
        """
        port = self.b.port
        return deferToThread(raw_client, port, cert or self.a.cert, messages, **more)

    def test_bad_conversations(self) -> Deferred[None]:
        """
        Garbage before the hello, other entries before it, two hellos, wrong types, text, and messages out of
        bounds end the connection with a close entry that says why.
        """
        return Deferred.fromCoroutine(self._bad_conversations())

    async def _bad_conversations(self) -> None:
        self.b.trust(self.a)
        self.run_node(self.b)
        pack = msgspec.msgpack.encode
        ping = pack([Ping(1)])
        for messages, words in (
            ((b"\xc1garbage",), "expected an array of entries"),
            ((ping,), "expected a hello first"),
            ((self.hello(), self.hello()), "expected one hello"),
            ((pack([["hello", 1]]),), "expected an array of entries"),
            ((self.hello("a.example"),), "expected a node as mn://"),
            ((self.hello("mn://c.example/n1"),), "the domain c.example is not a peer"),
            ((self.hello(kind="GOD"),), "expected the kind SERVER or CLIENT"),
            ((self.hello(max_bytes=1),), "expected max_bytes of 131072 or more"),
            ((self.hello(), pack([["ping"]] * 1025)), "expected at most 1024 entries"),
            ((self.hello(), pack([["data", [1]]])), "expected an array of entries"),
            ((self.hello(), pack([datagram(bytes(40_000))])), "expected an array of entries"),
        ):
            entries = await self.converse(*messages)

            self.assertIsInstance(entries[-1], Close)
            self.assertIn(words, entries[-1].reason)
        await until(lambda: not self.b.table.connections)
        self.assertEqual({}, self.b.table.links)

    async def test_oversized_messages(self) -> None:
        """
        A message that is larger than a hello may be, or than any may be, ends the connection unread.
        """
        self.b.trust(self.a)
        self.run_node(self.b)

        self.assertEqual([], await self.converse(bytes(20_000)))
        await self.converse(self.hello(), bytes(300_000))
        await until(lambda: not self.b.table.connections)

        self.assertGreaterEqual(self.b.table.counts["websocket"], 2)

    async def test_request_that_is_no_link(self) -> None:
        """
        Another path, another sub-protocol, or none is refused with a status that says what was expected;
        compression is not negotiated.
        """
        self.b.trust(self.a)
        self.run_node(self.b)

        for more, words in (
            ({"path": "/ws"}, "404 expected the path /link"),
            ({"protocol": "msgnode"}, "400 expected the sub-protocol msgnode-link.1"),
            ({"protocol": ""}, "400 expected the sub-protocol msgnode-link.1"),
        ):
            with self.assertRaises(ConnectionError) as raised:
                await self.converse(**more)
            self.assertIn(words, str(raised.exception))
        response = await self.converse(only_head=True)
        self.assertNotIn("permessage-deflate", str(response))

    async def test_client_without_a_certificate(self) -> None:
        """
        A client without a certificate does not get through the TLS handshake.
        """
        self.b.trust(self.a)
        self.run_node(self.b)

        with self.assertRaises(OSError):
            await self.converse(self.hello(), cert="none")

    async def test_silent_and_half_open_connections(self) -> None:
        """
        A connection that says nothing, in TLS or at all, is closed when its time for the hello is over, and
        meanwhile counts as a handshake; there is a limit for them.
        """
        self.b.trust(self.a)
        self.b.own = {"handshake_seconds": 6, "handshakes": 12}
        self.run_node(self.b)
        sockets = [socket.create_connection(("127.0.0.1", self.b.port)) for _ in range(5)]
        for each in sockets:
            self.addCleanup(each.close)

        await until(lambda: self.b.table.handshakes == 3 and self.b.table.counts["handshakes"] == 2)
        said = await deferToThread(self.read_all, sockets[0])

        self.assertEqual(b"", said)
        await until(lambda: not self.b.table.connections)

    async def test_tls_has_a_deadline_of_its_own(self) -> None:
        """
        A connection without TLS is cut before one that has finished its TLS handshake and says nothing.
        """
        self.b.trust(self.a)
        self.b.own = {"handshake_seconds": 6}  # two of them for TLS
        self.run_node(self.b)
        counts = self.b.table.counts
        context = ssl.create_default_context(cafile=self.b.authority.path)
        context.check_hostname = False
        context.load_cert_chain(self.a.cert)
        secured = await deferToThread(
            lambda: context.wrap_socket(socket.create_connection(("127.0.0.1", self.b.port)))
        )
        self.addCleanup(secured.close)
        self.addCleanup(socket.create_connection(("127.0.0.1", self.b.port)).close)

        await until(lambda: counts["tls"] and self.b.table.handshakes == 1)
        self.assertEqual(0, counts["silent"])
        await until(lambda: counts["silent"])

        self.assertEqual((1, 1), (counts["tls"], counts["silent"]))

    def read_all(self, connection: socket.socket) -> bytes:
        connection.settimeout(5)
        try:
            return connection.recv(100)
        except ConnectionResetError:
            return b""

    async def test_peer_that_never_reads(self) -> None:
        """
        A peer that never reads fills the queue of its link, and no more; the link refuses, and others go on.
        """
        self.b.trust(self.a)
        self.b.own = {"link_queue_bytes": 1_000_000}
        self.run_node(self.b)
        talking = self.converse(self.hello(), linger=3.0)
        await until(lambda: self.b.heard.links)
        link = self.b.heard.link

        sent = 0
        for _ in range(50):
            while link.send(datagram(bytes(30_000))):
                sent += 1
            await turns(0.01)

        self.assertLess(link.queue.bytes, 1_000_000)
        self.assertLess(sent * 30_000, 12_000_000)  # the kernel's buffers, too
        await talking

    async def test_flood_of_pings_and_unknown_entries(self) -> None:
        """
        A flood of pings whose answers nobody reads, and of entries without a meaning, costs no memory.
        """
        self.b.trust(self.a)
        self.run_node(self.b)
        flood = codec.message([codec.encode(Ping(n)) for n in range(1000)])
        unknown = msgspec.msgpack.encode([["later", "x" * 200]] * 1000)

        talking = self.converse(self.hello(), *[flood, unknown] * 200, linger=0.5)
        await until(lambda: self.b.heard.links)
        await talking

        self.assertEqual([], self.b.heard.entries)
        await until(lambda: not self.b.table.connections)


def raw_client(
    port: int,
    cert: str,
    messages: tuple[bytes, ...],
    path: str = "/link",
    protocol: str = "msgnode-link.1",
    linger: float = 0.0,
    only_head: bool = False,
) -> Any:
    """
    A WebSocket client by hand, in a thread: sends messages, reads to the end, returns the decoded entries.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if cert != "none":
        context.load_cert_chain(cert)
    with socket.create_connection(("127.0.0.1", port), 30) as plain, context.wrap_socket(plain) as tls:
        tls.settimeout(30)
        wanted = f"Sec-WebSocket-Protocol: {protocol}\r\n" if protocol else ""
        tls.sendall(
            f"GET {path} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{wanted}"
            "Sec-WebSocket-Extensions: permessage-deflate\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        data = b""
        while b"\r\n\r\n" not in data:
            read = tls.recv(65536)
            if not read:
                raise ConnectionError("closed without a response")
            data += read
        head, _, data = data.partition(b"\r\n\r\n")
        status = head.split(b"\r\n")[0].decode()
        if " 101 " not in status:
            raise ConnectionError(status.partition(" ")[2])
        if only_head:
            return head
        try:
            with contextlib.suppress(OSError):  # closed early: what it said is still there to read
                for message in messages:
                    tls.sendall(frame(message))
            if linger:
                time.sleep(linger)  # in a thread
                return []
            while b"\x88" not in after_entries(data) and (read := tls.recv(65536)):
                data += read
        except (ConnectionResetError, BrokenPipeError, ssl.SSLError):
            pass
    return entries_of(data)


def frame(message: bytes) -> bytes:
    size = len(message)
    if size < 126:
        return bytes((0x82, 0x80 | size)) + bytes(4) + message
    if size < 65536:
        return b"\x82\xfe" + struct.pack(">H", size) + bytes(4) + message
    return b"\x82\xff" + struct.pack(">Q", size) + bytes(4) + message


def frames(data: bytes) -> tuple[list[bytes], bytes]:
    """
    The messages of a server, and what comes behind them: an unfinished one, or a close frame.
    """
    found: list[bytes] = []
    while len(data) >= 10 and data[0] == 0x82:
        size, at = data[1], 2
        if size == 126:
            size, at = struct.unpack(">H", data[2:4])[0], 4
        elif size == 127:
            size, at = struct.unpack(">Q", data[2:10])[0], 10
        if len(data) < at + size:
            break
        found.append(data[at : at + size])
        data = data[at + size :]
    return found, data


def after_entries(data: bytes) -> bytes:
    return frames(data)[1][:1]


def entries_of(data: bytes) -> list[Any]:
    return [entry for message in frames(data)[0] for entry in codec.decode(message)]
