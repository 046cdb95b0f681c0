"""
The way to a WebSocket: its handshake, sub-protocols, origins, compression.
"""

import json
from collections import Counter
from typing import Any

from autobahn.websocket.compress import (
    PerMessageDeflateOffer,
    PerMessageDeflateResponse,
    PerMessageDeflateResponseAccept,
)
from twisted.internet.address import IPv4Address
from twisted.internet.protocol import Protocol
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import globalLogPublisher

from msgnode.connectors.peer_faults import PeerLog
from tests.support.fastpath_pair import frame
from tests.support.http_client import HTTPClient
from tests.support.runtimes import WebSocketRuntime, dumps
from tests.support.websocket_case import UPGRADE, WebSocketCase


class HandshakeTests(WebSocketCase):
    """
    The way in.
    """

    def test_offered_msgnode_subprotocol_is_chosen(self) -> None:
        """
        `msgnode` is chosen when it is among what the client offers; else none is, and the client connects.
        """
        for offered, chosen in (
            (["msgnode"], "msgnode"),
            (["wamp.2.json", "msgnode", "x"], "msgnode"),
            (["wamp.2.json", "MSGNODE"], None),
            (None, None),
        ):
            runtime = self.client(protocols=offered)

            self.assertEqual(chosen, runtime.subprotocol)
            self.assertEqual(200, runtime.session("open", **{"from": runtime.url})["body"]["code"])

    def test_browsers_headers(self) -> None:
        """
        The request of a browser is accepted, in whatever case it writes the words.
        """
        for headers in (UPGRADE, {**UPGRADE, "Upgrade": "WebSocket", "Connection": "upgrade"}):
            client = HTTPClient(self.net)
            client.start("GET", "/ws", Origin="https://app.example.org", **headers)
            self.net.pump()

            self.assertTrue(client.came.startswith(b"HTTP/1.1 101 "))
            self.assertIn(b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", client.came)

    def test_not_an_upgrade(self) -> None:
        """
        A plain request, or another method, at a WebSocket address is answered 426.
        """
        for path in ("/ws", "/stub/connect", "/stub/connect?runtimeURL=runtime%3A%2F%2Fd%2F1"):
            for response in (self.get(path), self.get(path, "POST"), self.get(path, "POST", **UPGRADE)):
                self.assertEqual(426, response.status)
                self.assertEqual("websocket", response.headers["Upgrade"])
                self.assertEqual(426, response.json()["code"])

    def test_bad_upgrade(self) -> None:
        """
        An upgrade that is wrong is refused, and the node is well.
        """
        for changes, status in (
            ({"Sec_WebSocket_Version": "12"}, 400),
            ({"Sec_WebSocket_Version": "x"}, 400),
            ({"Sec_WebSocket_Key": "short"}, 400),
            ({"Connection": "keep-alive"}, 400),
        ):
            self.assertEqual(status, self.get("/ws", **{**UPGRADE, **changes}).status, changes)
        self.assertEqual(set(), set(self.net.node.sessions.connections))
        self.client().open()

    def test_unknown_path(self) -> None:
        """
        Any other path is answered 404 in words, for upgrades too.
        """
        for path in (
            "/wss",
            "/ws/x",
            "/WS",
            "/stub",
            "/stub/",
            "/stub/connect/x",
            "/localhost/ws",
            "/poll/x",
            "//ws",
        ):
            for headers in ({}, UPGRADE):
                response = self.get(path, **headers)

                self.assertEqual(404, response.status, path)
                self.assertEqual(404, response.json()["code"])

    def test_root_answers_a_small_page(self) -> None:
        """
        `GET /` answers a small page.
        """
        response = self.get("/")

        self.assertEqual(200, response.status)
        self.assertEqual("text/html; charset=utf-8", response.headers["Content-Type"])
        self.assertIn(b"/ws", response.body)

    def test_any_origin(self) -> None:
        """
        Pages of any origin may connect, unless it is configured.
        """
        for origin in ("https://app.example.org", "null", "file://"):
            runtime = self.client(headers={"Origin": origin})

            self.assertEqual(200, runtime.session("open")["body"]["code"], origin)

    def test_allowed_origins(self) -> None:
        """
        With a list of origins others are refused; what is no browser names none and may connect.
        """
        self.restart(allowed_origins=["https://app.example.org"])

        for origin, status in (
            ("https://app.example.org", 101),
            ("https://evil.example", 403),
            ("http://app.example.org", 403),
            ("https://app.example.org.evil.example", 403),
            ("https://app.example.org:8443", 403),
            ("null", 403),
        ):
            client = HTTPClient(self.net)
            client.start("GET", "/ws", Origin=origin, **UPGRADE)
            self.net.pump()
            self.assertTrue(client.came.startswith(b"HTTP/1.1 %d " % status), origin)
        self.client().open()

    def test_path_prefix(self) -> None:
        """
        Below the operator's prefix everything is there once more.
        """
        self.restart(path_prefix="/localhost/mn")

        runtime = self.client(path="/localhost/mn/ws").open()
        other = self.client("b").open()
        other.send(self.update(runtime))

        self.assertEqual([self.update(runtime)], runtime.take())
        self.assertEqual(200, self.get("/localhost/mn/live").status)
        self.assertEqual(200, self.get("/localhost/mn/").status)
        self.assertEqual(404, self.get("/localhost/ws").status)

    def test_websocket_peer_is_the_last_untrusted_hop(self) -> None:
        """
        Behind a trusted proxy the peer is the last hop that is none; others' claims are ignored.
        """
        proxies = ["10.0.0.1", "10.0.0.2"]
        header = {"X-Forwarded-For": "203.0.113.66, 198.51.100.7, 10.0.0.2"}
        for host, peer in (("10.0.0.1", "198.51.100.7"), ("192.0.2.1", "192.0.2.1:5")):
            self.restart(trusted_proxies=proxies)

            self.client(headers=header, peer=IPv4Address("TCP", host, 5))

            self.assertEqual([peer], [connection.peer for connection in self.net.node.sessions.connections])

    def upgraded(self, listener: str, path: str, behind: bytes) -> HTTPClient:
        """
        A client that sends frames in one write with its request, and has the answer.
        """
        client = HTTPClient(self.net, listener)
        headers = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in UPGRADE.items())
        client.transport.write(f"GET {path} HTTP/1.1\r\nHost: d\r\n{headers}\r\n".encode() + behind)
        self.net.pump()
        return client

    def test_frames_behind_the_upgrade(self) -> None:
        """
        Frames that come in one read with the request are not dropped, nor is what comes after them.
        """
        opening = dumps({"id": 1, "type": "open", "from": "runtime://example.org/a", "to": "mn:/session"})
        ping = dumps({"id": 2, "type": "ping", "to": "mn:/session"})
        for listener in ("web", "plain"):
            self.restart()

            client = self.upgraded(listener, "/ws", frame(opening) + frame(ping)[:9])
            client.transport.write(frame(ping)[9:] + frame(ping))
            self.net.pump()

            self.assertTrue(client.came.startswith(b"HTTP/1.1 101 "))
            self.assertEqual(3, client.came.count(b'"code":200'))

    def test_packets_behind_the_upgrade(self) -> None:
        """
        The same for Socket.IO.
        """
        event = json.dumps(
            ["message", {"id": 1, "type": "open", "from": "runtime://d/1", "to": "mn:/session"}]
        )

        client = self.upgraded("web", "/socket.io/?EIO=3&transport=websocket", frame(b"42" + event.encode()))

        self.assertEqual(["runtime://d/1"], [session.runtime for session in self.net.node.sessions])
        self.assertIn(b"runtimeToken", client.came)

    def test_frames_behind_a_bad_upgrade(self) -> None:
        """
        Behind a request that is refused they go nowhere.
        """
        opening = dumps({"id": 1, "type": "open", "from": "runtime://d/1", "to": "mn:/session"})
        self.restart(allowed_origins=["https://app.example.org"])
        client = HTTPClient(self.net)

        client.start("GET", "/ws", frame(opening), Content_Length="0", Origin="https://no.example", **UPGRADE)
        self.net.pump()

        self.assertTrue(client.came.startswith(b"HTTP/1.1 403 "))
        self.assertEqual(0, len(self.net.node.sessions))

    def test_upgrade_with_a_body(self) -> None:
        """
        A request for a WebSocket that has a body is answered 400: nobody can say where its frames begin.
        """
        for framing in ({"Content_Length": "5"}, {"Transfer_Encoding": "chunked"}):
            client = HTTPClient(self.net)

            client.start("GET", "/ws", **framing, **UPGRADE)
            client.transport.write(b"0\r\n\r\n")
            self.net.pump()

            self.assertTrue(client.came.startswith(b"HTTP/1.1 400 "))
            self.assertIn(b"has no body", client.came)

    def test_slow_loris(self) -> None:
        """
        A handshake that drips in is cut off at the deadline, however regularly a byte comes.
        """
        drip = Protocol()
        link = self.net.link("web", drip)
        request = b"GET /ws HTTP/1.1\r\nHost: example.org\r\n"

        for second in range(9):
            self.net.advance(1)
            self.assertFalse(link.over, second)
            drip.transport.write(request[second : second + 1])
        self.net.advance(1)

        self.assertTrue(link.over)

    def test_nothing_at_all(self) -> None:
        """
        Who connects and says nothing is cut off at the deadline.
        """
        link = self.net.link("web", Protocol())

        self.net.advance(11)

        self.assertTrue(link.over)

    def test_nagle_is_off_for_websocket(self) -> None:
        """
        Nagle's algorithm is off.
        """
        runtime = self.client()

        self.assertIn("no delay", runtime.link.serverIO.options[1:])


class FaultTests(WebSocketCase):
    """
    What strangers do wrong below messages.
    """

    def setUp(self) -> None:
        super().setUp()
        self.logged = EventLoggingObserver.createWithCleanup(self, globalLogPublisher)

    def assertCounted(self, **expected: int) -> None:
        lines = self.get("/metrics", listener="admin").body.decode().splitlines()
        found = [line for line in lines if line.startswith("msgnode_websocket_faults_total{")]
        counted = [f'msgnode_websocket_faults_total{{what="{what}"}} {n}.0' for what, n in expected.items()]
        self.assertEqual(counted, found)
        self.assertEqual([], [event["log_format"] for event in self.logged])

    def test_bad_frames(self) -> None:
        """
        Frames that are none are counted by what was wrong, and fill no log.
        """
        self.restart(limits={"message_bytes": 1000})
        for path in ("/ws", "/socket.io/?EIO=3&transport=websocket"):
            for bad in (frame(b"x", first=0xF1), frame(b"\xff"), frame(b"x" * 3000), frame(b"x", mask=None)):
                client = self.client(path=path)
                client.link.clientIO.write(bad)
                self.net.pump()

        self.assertCounted(frame=4, text=2, too_long=2)

    def test_bad_handshakes(self) -> None:
        """
        So are handshakes that are refused.
        """
        self.restart(allowed_origins=["https://app.example.org"])

        for headers in (
            {**UPGRADE, "Sec_WebSocket_Version": "1"},
            {**UPGRADE, "Origin": "https://no.example"},
        ):
            self.get("/ws", **headers)

        self.assertCounted(handshake=2)

    def test_client_that_answers_no_ping_or_close_is_dropped(self) -> None:
        """
        So are clients that answer no ping, and those that answer no Close.
        """
        self.client(answers_pings=False).open()
        deaf = self.client("b").open()
        deaf.stop_reading()

        deaf.close()
        self.net.advance(60)

        self.assertCounted(silent=2)

    def test_our_own_faults(self) -> None:
        """
        What is no fault of a client's is logged as before.
        """
        log = PeerLog(Counter())

        log.warn("{what} failed", what="the node")
        log.error("{what} failed", what="the node")
        log.debug("{what} goes well", what="the node")

        self.assertEqual(["warn", "error"], [event["log_level"].name for event in self.logged])


class CompressionTests(WebSocketCase):
    """
    permessage-deflate.
    """

    def offering(self, name: str = "a") -> WebSocketRuntime:
        """
        A client that offers compression, as browsers do.
        """

        def accept(response: Any) -> Any:
            if isinstance(response, PerMessageDeflateResponse):
                return PerMessageDeflateResponseAccept(response)
            return None

        options = {
            "perMessageCompressionOffers": [PerMessageDeflateOffer()],
            "perMessageCompressionAccept": accept,
        }
        return self.client(name, options=options).open()

    def written(self, runtime: WebSocketRuntime, sender: WebSocketRuntime, value: str) -> bytes:
        """
        The bytes on the wire for an update with that value, which then arrives.
        """
        runtime.stop_reading()
        sender.send(self.update(runtime, value))
        written = b"".join(runtime.link.serverIO.stream)
        runtime.read_again()
        self.assertEqual([self.update(runtime, value)], runtime.take())
        return written

    def test_nobody_gets_it_who_does_not_configure_it_because(self) -> None:
        """
        Nobody gets it who does not configure it, because it costs ten times the memory.
        """
        runtime = self.offering()

        self.assertEqual([], runtime.accepted.extensions)
        self.assertEqual(0x81, self.written(runtime, runtime, "v" * 5000)[0])

    def test_above_a_size(self) -> None:
        """
        Configured, it is used for long messages only, and without a context that both sides would keep.
        """
        self.restart(websocket={"compress_above_bytes": 1000})
        runtime, sender = self.offering(), self.offering("b")

        (extension,) = runtime.accepted.extensions
        self.assertTrue(extension.client_no_context_takeover)
        self.assertEqual(0x81, self.written(runtime, sender, "v" * 500)[0])
        long, again = self.written(runtime, sender, "v" * 5000), self.written(runtime, sender, "v" * 5000)
        self.assertEqual(0xC1, long[0])
        self.assertLess(len(long), 200)
        self.assertEqual(long, again)

    def test_who_does_not_offer_it_is_sent_plain_messages(self) -> None:
        """
        Who does not offer it is sent plain messages.
        """
        self.restart(websocket={"compress_above_bytes": 1000})
        runtime, sender = self.client().open(), self.offering("b")

        self.assertEqual(0x81, self.written(runtime, sender, "v" * 5000)[0])

    def test_deflated_message_over_the_limit_is_refused(self) -> None:
        """
        A short message that unpacks to one over the limit is refused like a long one.
        """
        self.restart(websocket={"compress_above_bytes": 1000}, limits={"message_bytes": 20_000})
        runtime, other = self.offering(), self.client("b").open()

        runtime.send(self.update(other, "v" * 500_000))

        self.assertEqual(1009, runtime.code)
        self.assertEqual([], other.take())

    def test_closing_takes_nothing_more(self) -> None:
        """
        What is sent to a client that the node is closing waits for its next connection.
        """
        self.restart(limits={"message_bytes": 1000})
        runtime, sender = self.client().open(), self.client("b").open()
        runtime.link.serverIO.stalled = True  # it does not hear the Close yet
        runtime.send(
            {"id": 1, "type": "update", "from": "x", "to": sender.url, "body": {"value": "v" * 2000}}
        )

        sender.send(self.update(runtime, "kept"))

        self.assertEqual("waiting", self.net.traffic_recorder.outcomes[-1])
        back = self.client().open()
        self.assertEqual([self.update(runtime, "kept")], back.take())

    def test_closed_cannot_open(self) -> None:
        """
        An `open` behind what closes the connection does not take a session over.
        """
        runtime, late = self.client().open(), self.client("c")
        late.stub.sendMessage(b"binary", isBinary=True)
        late.send({"id": 1, "type": "open", "from": runtime.url, "to": "mn:/session"})

        runtime.send(self.update(runtime, "mine"))

        self.assertEqual([self.update(runtime, "mine")], runtime.take())
        self.assertEqual(1003, late.code)
