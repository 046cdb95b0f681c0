"""
Socket.IO on the wire: polls, WebSockets, and the change from one to the other.
"""

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.connectors.socketio import codec
from tests.support.durable import DurableNode
from tests.support.fakes import directory
from tests.support.http_client import HTTPClient, Response
from tests.support.network import Network
from tests.support.runtimes import TCPRuntime, WebSocketRuntime
from tests.support.socketio_runtime import (
    NewSocketPollRuntime,
    NewSocketWebSocketRuntime,
    SocketPollRuntime,
    SocketWebSocketRuntime,
    UpgradedRuntime,
    _Socket,
    emitted,
)

PATH = "/socket.io/?EIO=3&transport="
URL = "runtime://example.org/a"
OPEN = {"id": 1, "type": "open", "from": URL, "to": "mn:/session"}


class Probe(WebSocketRuntime):
    """
    A bare WebSocket of a client that polls; `raw` has its packets.
    """

    stub_class = _Socket

    def heard(self, packet: bytes) -> None:
        self.raw.append(packet)

    def say(self, *packets: bytes) -> list[bytes]:
        for packet in packets:
            if self.stub.state == self.stub.STATE_OPEN:
                self.stub.sendMessage(packet)
        self.network.pump()
        raw, self.raw = self.raw, []
        return raw


class SocketCase(SynchronousTestCase):
    """
    A node, a client that polls by hand, and a device `b` to talk to it.
    """

    def setUp(self) -> None:
        self.restart()

    def restart(self, **sections: Any) -> None:
        self.net = Network(**sections)
        self.other = TCPRuntime(self.net, "runtime://example.org/b").open()

    def request(self, method: str, query: str, body: bytes = b"", **headers: str) -> Response:
        return HTTPClient(self.net).request(method, f"/socket.io/{query}", body, **headers)

    def connect(self, version: int = 3) -> dict[str, Any]:
        """
        The first poll; what the client is told.
        """
        self.query = f"?EIO={version}&transport=polling"
        packets = codec.split(self.request("GET", self.query).body, version)
        self.assertEqual([b"0"], [packet[:1] for packet in packets])
        told = json.loads(packets[0][1:])
        self.query += f"&sid={told['sid']}"
        return told

    def open(self) -> None:
        """
        Connect, and open the session; its answer is fetched, but nothing tells so yet.
        """
        self.connect()
        self.assertEqual([b"40"], self.poll())
        self.assertEqual(b"ok", self.post(emitted(json.dumps(OPEN).encode())).body)
        self.assertIn(b'"code":200', self.poll()[0])

    def post(self, *packets: bytes) -> Response:
        return self.request("POST", self.query, codec.join(packets, 3))

    def start(self) -> HTTPClient:
        """
        A poll that may wait.
        """
        client = HTTPClient(self.net)
        client.start("GET", f"/socket.io/{self.query}")
        self.net.pump()
        return client

    def poll(self) -> list[bytes]:
        return self.packets(self.start())

    def packets(self, client: HTTPClient) -> list[bytes]:
        response = client.response
        assert response is not None, "no answer yet"
        self.assertEqual(200, response.status, response)
        return codec.split(response.body, 3)

    def update(self, id: int) -> dict[str, Any]:
        return {"id": id, "type": "update", "from": "x", "to": URL}

    def send(self, *ids: int) -> None:
        """
        The device sends these to the client.
        """
        self.other.send(*map(self.update, ids))

    def ids(self, packets: list[bytes]) -> list[int]:
        events = [packet for packet in packets if packet.startswith(codec.EVENT)]
        return [json.loads(packet[2:])[1]["id"] for packet in events]

    def probe(self) -> Probe:
        sid = self.query.partition("&sid=")[2]
        return Probe(self.net, path=f"{PATH}websocket&sid={sid}")

    def assertError(self, status: int, response: Response) -> None:
        self.assertEqual(status, response.status)
        body = response.json()
        self.assertEqual({"code": status, "desc": body["desc"], "description": body["desc"]}, body)


class PollingTests(SocketCase):
    """
    Polls, as the NodejsProtoStub makes them.
    """

    def test_first_poll_is_the_engineio_handshake(self) -> None:
        """
        The first poll names the client and the heartbeats; the second connects it to the namespace.
        """
        response = self.request("GET", "?EIO=3&transport=polling&t=Lx&b64=1")

        self.assertEqual("text/plain; charset=UTF-8", response.headers["Content-Type"])
        length, _, packet = response.body.partition(b":")
        self.assertEqual(int(length), len(packet))
        told = json.loads(packet[1:])
        self.assertEqual((["websocket"], 25000, 60000), tuple(told[k] for k in list(told)[1:4]))
        self.query = f"?EIO=3&transport=polling&sid={told['sid']}"
        self.assertEqual(b"2:40", self.start().response.body)

    def test_runtime_opens_its_session_with_a_string(self) -> None:
        """
        A runtime opens its session with a string and is answered with an object.
        """
        self.connect()
        self.poll()
        waiting = self.start()

        answer = self.post(emitted(json.dumps(OPEN).encode()))

        self.assertEqual((200, b"ok", "text/html"), (*answer[:3:2], answer.headers["Content-Type"]))
        name, reply = json.loads(self.packets(waiting)[0][2:])
        self.assertEqual(("message", 1, 200), (name, reply["id"], reply["body"]["code"]))

    def test_delivered_by_the_next_poll(self) -> None:
        """
        What an answer carried is given again after the next `open`, unless a poll followed it.
        """
        self.open()
        self.send(1)
        self.assertEqual([1], self.ids(self.poll()))
        self.send(2, 3)
        self.assertEqual([2, 3], self.ids(self.poll()))

        runtime = TCPRuntime(self.net, URL)
        self.net.advance(90)  # it never polled again
        runtime.connect()
        runtime.open()

        self.assertEqual([2, 3], [message["id"] for message in runtime.take()])

    def test_lost_poll(self) -> None:
        """
        A client whose waiting poll is cut is away at once; what comes waits for its next `open`.
        """
        self.open()
        waiting = self.start()

        waiting.hang_up()

        self.assertIsNone(self.net.node.sessions.get(URL).connection)
        self.send(4)
        self.open_again()
        self.assertEqual([1, 4], self.ids(self.seen))  # the answer to `open` first

    def open_again(self) -> None:
        self.connect()
        self.poll()
        self.post(emitted(json.dumps(OPEN).encode()))
        self.seen = self.poll()

    def test_restart_of_the_client(self) -> None:
        """
        Its next connection gets what the last answer of the older one carried.
        """
        self.open()
        self.send(1, 2)
        self.assertEqual([1, 2], self.ids(self.poll()))

        self.open_again()

        self.assertEqual([1, 1, 2], self.ids(self.seen))

    def test_large_answers(self) -> None:
        """
        Of much that waits an answer carries a part; all of it comes, in order.
        """
        self.open()
        for n in range(60):
            self.other.send({**self.update(n), "body": {"value": "v" * 50_000}})
        seen: list[int] = []

        sizes = []
        while len(seen) < 60:
            client = self.start()
            sizes.append(len(client.response.body))
            seen += self.ids(self.packets(client))

        self.assertEqual(list(range(60)), seen)
        self.assertLess(max(sizes), 1_200_000)

    def test_ping_is_answered_with_what_it_carries(self) -> None:
        """
        A ping is answered, with what it carries.
        """
        self.connect()
        self.poll()

        self.post(b"2", b"2x")

        self.assertEqual([b"3", b"3x"], self.poll())

    def test_who_neither_pings_nor_polls_for_85_seconds_is_gone(self) -> None:
        """
        Who neither pings nor polls for 85 seconds is gone.
        """
        self.open()
        self.net.advance(80)
        self.assertIsNotNone(self.net.node.sessions.get(URL).connection)
        self.post(b"2")
        self.net.advance(80)
        self.assertEqual(2, len(self.net.node.sessions.connections))

        self.net.advance(30)

        self.assertEqual(1, len(self.net.node.sessions.connections))
        self.assertError(400, self.post(b"2"))

    def test_client_leaves(self) -> None:
        """
        Who says goodbye, in either protocol, is gone at once; a poll that waits is answered.
        """
        for last in (b"1", b"41"):
            self.open()
            waiting = self.start()

            self.assertEqual(200, self.post(last).status)

            self.assertEqual([b"6"], self.packets(waiting))
            self.assertIsNone(self.net.node.sessions.get(URL).connection)
            self.assertError(400, self.post(b"2"))

    def test_close_is_followed_by_the_reason_and_a_disconnect(self) -> None:
        """
        `close` is followed by the reason and a disconnect, and the next poll by the end.
        """
        self.open()

        self.post(emitted(json.dumps({**OPEN, "type": "close"}).encode()))

        self.assertEqual([b'42["close",{"code":1000,"reason":"closed"}]', b"41"], self.poll())
        self.assertError(400, self.post(emitted(json.dumps(self.update(1)).encode())))
        self.assertEqual(200, self.post(b"1").status)
        self.assertEqual([b"1"], self.poll())
        self.assertError(400, self.request("GET", self.query))

    def test_close_forgotten(self) -> None:
        """
        Who does not fetch the reason is forgotten.
        """
        self.open()
        self.post(emitted(json.dumps({**OPEN, "type": "close"}).encode()))

        self.net.advance(31)

        self.assertError(400, self.request("GET", self.query))

    def test_zombies(self) -> None:
        """
        A library that connected again, beneath a stub that is done, is sent away for good.
        """
        self.connect()
        self.poll()
        waiting = self.start()

        self.net.advance(11)

        packets = self.packets(waiting)
        self.assertIn(b'"code":4408', packets[0])
        self.assertEqual([b"41"], packets[1:])

    def test_reasons_not_fetched(self) -> None:
        """
        Of clients that were closed so many may come for the reason; the node forgets the others at once.
        """
        self.restart(limits={"delayed_closes": 2})
        queries = []
        for _ in range(5):
            self.connect()
            self.poll()
            queries.append(self.query)

        self.net.advance(11)

        found = [self.request("GET", f"{query}").status for query in queries]
        self.assertEqual([400, 400, 400, 200, 200], found)

    def test_comes_back_when_the_node_stops(self) -> None:
        """
        Its library is not told to stay away when the node will be back.
        """
        self.net.node.sessions.startService()
        self.open()
        waiting = self.start()

        self.net.node.sessions.stopService()
        self.net.pump()

        self.assertEqual(
            [b'42["close",{"code":1001,"reason":"going away","retry_after":1.0}]'], self.packets(waiting)
        )
        self.assertEqual([b"1"], self.poll())
        self.assertError(503, self.request("GET", "?EIO=3&transport=polling"))

    def test_polled_event_is_acknowledged_once_taken(self) -> None:
        """
        An event that asks for it is acknowledged once it was taken.
        """
        self.open()

        self.post(b'4212["message",%s]' % json.dumps(self.update(5)).encode())

        packets = self.poll()
        self.assertIn(b"4312[]", packets)
        self.assertEqual([5], self.ids(packets))

    def test_other_namespace(self) -> None:
        """
        There is no namespace but `/`.
        """
        self.connect()
        self.poll()

        self.post(b"40/chat", b'42/chat,["message",{}]')

        self.assertEqual([b'44/chat,"Invalid namespace"'], self.poll())

    def test_client_too_many_is_told_to_come_later(self) -> None:
        """
        A client too many is told to come later.
        """
        self.restart(limits={"connections": 1})

        response = self.request("GET", "?EIO=3&transport=polling")

        self.assertError(503, response)
        self.assertEqual("30", response.headers["Retry-After"])
        self.assertEqual(1, len(self.net.node.sessions.connections))

    def test_new_protocol_pings(self) -> None:
        """
        In version 4 the node pings, and who does not answer is gone.
        """
        runtime = NewSocketPollRuntime(self.net, URL).open()
        self.net.advance(200)
        self.assertTrue(runtime.is_connected)

        runtime.silent = True
        runtime.stop_reading()
        self.net.advance(75)

        self.assertEqual(1, len(self.net.node.sessions.connections))


class RefusedTests(SocketCase):
    """
    Requests that are none of a client.
    """

    def test_each_is_refused_in_words_and_with_the_status(self) -> None:
        """
        Each is refused in words, and with the status that HTTP has for it.
        """
        self.connect()
        sid = self.query.partition("&sid=")[2]
        for status, method, query in (
            (400, "GET", ""),
            (400, "GET", "?EIO=3"),
            (400, "GET", "?EIO=2&transport=polling"),
            (400, "GET", "?transport=polling"),
            (400, "GET", "?EIO=3&transport=flashsocket"),
            (400, "GET", "?EIO=3&transport=polling&j=0"),
            (400, "GET", "?EIO=3&transport=polling&sid=unknown"),
            (400, "POST", "?EIO=3&transport=polling"),
            (405, "DELETE", f"?EIO=3&transport=polling&sid={sid}"),
            (404, "GET", "x/?EIO=3&transport=polling"),
            (426, "GET", "?EIO=3&transport=websocket"),
        ):
            self.assertError(status, self.request(method, query))

    def test_garbled_body(self) -> None:
        """
        A body that is wrong is refused whole, and the client lives.
        """
        self.open()
        packet = emitted(json.dumps(self.update(1)).encode())

        for body in (b"", b"x", b"%d:%s" % (len(packet) + 1, packet), b"\x00\x04\xff42[]", b"2:4\xff"):
            self.assertError(400, self.request("POST", self.query, body))

        self.send(2)
        self.assertEqual([2], self.ids(self.poll()))

    def test_garbled_packets(self) -> None:
        """
        Packets that say nothing are counted and passed over; what stands beside them is carried.
        """
        self.open()
        before = self.net.node.counts.unreadable

        nonsense = [
            b"9",
            b"7x",
            b"4",
            b"4x",
            b"45-[]",
            b"42",
            b"42[",
            b'42["chat",1]',
            b'42["message"]',
            b"5",
        ]
        self.post(*nonsense, emitted(json.dumps(self.update(1)).encode()))

        self.assertEqual(len(nonsense), self.net.node.counts.unreadable - before)
        self.assertEqual([1], self.ids(self.poll()))

    def test_two_polls(self) -> None:
        """
        Two polls at once end the client; its session goes on with the next.
        """
        self.open()
        first = self.start()

        second = self.start()

        self.assertError(400, second.response)
        self.assertEqual([b"6"], self.packets(first))
        self.assertError(400, self.post(b"2"))
        self.send(3)
        runtime = SocketPollRuntime(self.net, URL)
        runtime.open()
        self.assertEqual([3], [message["id"] for message in runtime.take()])

    def test_message_beyond_the_limit_closes_the_client(self) -> None:
        """
        A message beyond the limit closes the client; a body beyond twice that is refused by its length.
        """
        self.restart(limits={"message_bytes": 1000})
        self.open()
        self.assertEqual(413, self.request("POST", self.query, b"x", Content_Length="2001").status)

        message = {**self.update(1), "body": {"value": "v" * 1000}}
        self.post(emitted(json.dumps(message).encode()))

        self.assertIn(b'"code":1009', self.poll()[0])
        self.assertEqual(1, len(self.net.node.sessions.connections))

    def test_pinging_client_that_never_polls_is_sent_away(self) -> None:
        """
        Who pings and pings, and never polls, is sent away.
        """
        self.connect()

        for _ in range(8):
            self.post(*[b"2" + b"x" * 1000] * 500)

        self.assertIn(b'"code":4413', self.poll()[-1])
        self.assertEqual(1, len(self.net.node.sessions.connections))

    def test_origins(self) -> None:
        """
        A page is told that it may ask, with its cookies; where origins are restricted, another may not.
        """
        headers = self.request("GET", "?EIO=3&transport=polling", Origin="https://a.example").headers
        self.assertEqual("https://a.example", headers["Access-Control-Allow-Origin"])
        self.assertEqual("true", headers["Access-Control-Allow-Credentials"])
        asked = self.request("OPTIONS", "?EIO=3&transport=polling&sid=x", Origin="https://a.example")
        self.assertEqual(204, asked.status)

        self.restart(allowed_origins=["https://a.example"])

        for origin, status in (("https://a.example", 200), ("https://b.example", 403)):
            self.assertEqual(status, self.request("GET", "?EIO=3&transport=polling", Origin=origin).status)
            page = Probe(self.net, path=f"{PATH}websocket", headers={"Origin": origin})
            self.assertEqual(status == 200, page.is_connected)


class UpgradeTests(SocketCase):
    """
    From polling to WebSocket.
    """

    def test_probe_upgrades_polling_to_websocket(self) -> None:
        """
        The probe is answered, the poll that waits is released, and what comes next comes by WebSocket.
        """
        self.open()
        waiting = self.start()
        probe = self.probe()

        self.assertEqual([b"3probe"], probe.say(b"2probe"))
        self.assertEqual([b"6"], self.packets(waiting))
        self.send(1)
        self.assertEqual([], probe.raw)
        packets = probe.say(b"5")

        self.assertEqual([1], self.ids(packets))
        self.send(2)
        self.assertEqual([2], self.ids(probe.raw))
        self.assertError(400, self.request("GET", self.query))
        self.assertError(400, self.post(b"2"))

    def test_polls_while_it_probes(self) -> None:
        """
        A poll that begins meanwhile is not held: with what waits, or with nothing after a moment.
        """
        self.open()
        probe = self.probe()
        probe.say(b"2probe")
        self.send(1)

        self.assertEqual([1], self.ids(self.poll()))
        empty = self.start()
        self.assertIsNone(empty.response)
        self.net.clock.advance(0.1)
        self.net.pump()

        self.assertEqual([b"6"], self.packets(empty))
        self.assertEqual([], self.ids(probe.say(b"5")))  # 1 had come: a poll followed it

    def test_nothing_twice(self) -> None:
        """
        What the last poll's answer carried is not given again by WebSocket; what it did not carry is.
        """
        self.open()
        probe = self.probe()
        probe.say(b"2probe")
        self.send(1)
        self.assertEqual([1], self.ids(self.poll()))
        self.send(2)

        self.assertEqual([2], self.ids(probe.say(b"5")))

    def test_resume_across(self) -> None:
        """
        A client that counts for itself gets every number once, whichever way it comes.
        """
        self.connect()
        self.poll()
        opening = {**OPEN, "body": {"resume": True}}
        self.post(emitted(json.dumps(opening).encode()))
        self.send(1, 2)
        self.assertEqual([1, 1, 2], self.ids(self.poll()))
        probe = self.probe()
        probe.say(b"2probe")
        self.send(3)

        self.assertEqual([3], self.ids(probe.say(b"5")))
        self.send(4)

        self.assertEqual([4], self.ids(probe.raw))
        outbox = self.net.node.sessions.get(URL).mailbox.outbox
        self.assertEqual((0, 4), (outbox.acknowledged, outbox.last))

    def test_much_resumes_across(self) -> None:
        """
        However much waits for it while it changes.
        """
        self.connect()
        self.poll()
        self.post(emitted(json.dumps({**OPEN, "body": {"resume": True}}).encode()))
        self.poll()
        waiting = self.start()
        probe = self.probe()
        for n in range(60):
            self.other.send({**self.update(n), "body": {"value": "v" * 50_000}})
        seen = self.ids(self.packets(waiting)) + self.ids(self.poll())

        seen += self.ids(probe.say(b"2probe", b"5"))

        self.assertEqual(list(range(60)), seen)

    def test_odd_order(self) -> None:
        """
        A probe that says anything else is closed; the client polls on, and may try again.
        """
        self.open()
        for packets in ([b"5"], [b"2"], [b"x"], [b"2probe", b"2"], [b"2probe", emitted(b"{}")]):
            probe = self.probe()
            probe.say(*packets)
            self.assertEqual(1002, probe.code, packets)
            self.send(1)
            self.assertEqual([1], self.ids(self.poll()), packets)

        probe = self.probe()
        probe.say(b"2probe", b"5")
        self.send(2)
        self.assertEqual([2], self.ids(probe.raw))

    def test_probe_given_up(self) -> None:
        """
        A probe that is lost, or goes no further for 10 seconds, changes nothing.
        """
        self.open()
        probe = self.probe()
        probe.say(b"2probe")
        probe.drop()
        slow = self.probe()
        slow.say(b"2probe")
        self.post(b"2")

        self.net.advance(11)

        self.assertFalse(slow.is_connected)
        self.send(1)
        self.assertEqual([1], self.ids(self.poll()))

    def test_newer_probe(self) -> None:
        """
        Of two attempts the newer counts.
        """
        self.open()
        older, newer = self.probe(), self.probe()

        self.assertFalse(older.is_connected)
        newer.say(b"2probe", b"5")
        self.send(1)

        self.assertEqual([1], self.ids(newer.raw))

    def test_websocket_for_a_client_that_is_not_known_or_has_one(self) -> None:
        """
        A WebSocket for a client that is not known, or has one already, is refused.
        """
        self.open()
        probe = self.probe()
        probe.say(b"2probe", b"5")

        self.assertFalse(self.probe().is_connected)
        for query in ("websocket&sid=unknown", "websocket&EIO=9"):
            path = PATH.replace("EIO=3&", "") + query if "EIO" in query else PATH + query
            self.assertFalse(Probe(self.net, path=path).is_connected)
        self.send(1)
        self.assertEqual([1], self.ids(probe.raw))

    def test_closed_while_it_probes(self) -> None:
        """
        A client that is closed meanwhile takes its probe with it.
        """
        self.open()
        probe = self.probe()
        probe.say(b"2probe")

        self.post(emitted(json.dumps({**OPEN, "type": "close"}).encode()))
        self.net.pump()

        self.assertFalse(probe.is_connected)

    def test_client_whose_websocket_is_cut_is_away(self) -> None:
        """
        A client whose WebSocket is cut is away; it may not poll on.
        """
        runtime = UpgradedRuntime(self.net, URL)
        runtime.open()

        runtime.drop()

        self.assertIsNone(self.net.node.sessions.get(URL).connection)
        self.assertEqual(1, len(self.net.node.sessions.connections))


class WebSocketTests(SocketCase):
    """
    Clients that begin with a WebSocket.
    """

    def test_websocket_client_is_connected_by_version(self) -> None:
        """
        In version 3 the client is connected by itself; in version 4 when it asks.
        """
        old = SocketWebSocketRuntime(self.net, URL)
        self.assertEqual([b"0", b"40"], [packet[:2].rstrip(b"{") for packet in old.packets])
        self.assertEqual([], json.loads(old.packets[0][1:])["upgrades"])

        new = NewSocketWebSocketRuntime(self.net, URL)
        self.net.pump()

        self.assertEqual([b"0{", b"40"], [packet[:2] for packet in new.packets])
        self.assertIn("sid", json.loads(new.packets[1][2:]))

    def test_closing(self) -> None:
        """
        The reason comes as an event, and once more with the WebSocket's Close.
        """
        probe = Probe(self.net, path=f"{PATH}websocket")

        probe.say(emitted(json.dumps({**OPEN, "from": "mn:/session"}).encode()))

        self.assertEqual((4403, "refused"), (probe.code, probe.reason))

    def test_binary_socketio_frame_closes_the_connection(self) -> None:
        """
        A binary frame closes the connection: messages are text.
        """
        probe = Probe(self.net, path=f"{PATH}websocket")

        probe.stub.sendMessage(b"\x04x", isBinary=True)
        self.net.pump()

        self.assertEqual(1003, probe.code)
        self.assertEqual(1, len(self.net.node.sessions.connections))

    def assertNotReadFrom(self, deaf: Any, most: int) -> None:
        """
        The node takes nothing more from it.
        """
        self.assertTrue(deaf.link.serverIO.deaf)
        self.assertLess(deaf.link.serverIO.size, most)

    def test_unread_refusals(self) -> None:
        """
        Who asks for namespaces that are not there, and reads no answer, is not read from until it reads them.
        """
        deaf = NewSocketWebSocketRuntime(self.net, URL).open()
        before = len(deaf.packets)
        deaf.stop_reading()

        for _ in range(2000):
            deaf.say(b"40/" + b"n" * 400 + b",")
        self.net.pump()

        self.assertNotReadFrom(deaf, 350_000)
        deaf.read_again()
        self.assertFalse(deaf.link.serverIO.deaf)
        self.assertEqual(2000, len(deaf.packets) - before)

    def test_unread_acknowledgements(self) -> None:
        """
        So is who has its messages acknowledged, and reads none of that.
        """
        deaf = SocketWebSocketRuntime(self.net, URL).open()
        deaf.stop_reading()
        update = {**self.update(1), "from": URL, "to": self.other.url}
        message = emitted(json.dumps(update).encode())[2:]

        for number in range(20_000):
            deaf.say(b"42%020d%s" % (number, message))
        self.net.pump()

        self.assertNotReadFrom(deaf, 200_000)

    def test_websocket_pings_wait_while_pongs_are_unread(self) -> None:
        """
        Pings of WebSocket get no pong while the last ones are not read.
        """
        deaf = SocketWebSocketRuntime(self.net, URL).open()
        deaf.stop_reading()

        for _ in range(5000):
            deaf.stub.sendPing(b"x" * 125)
        self.net.pump()

        self.assertLess(deaf.link.serverIO.size, 100_000)

    def test_who_neither_pings_nor_speaks_for_85_seconds_is_cut(self) -> None:
        """
        Who neither pings nor speaks for 85 seconds is cut off.
        """
        runtime = SocketWebSocketRuntime(self.net, URL)
        runtime.open()
        runtime.silent = True

        self.net.advance(125)

        self.assertFalse(runtime.is_connected)
        self.assertIsNone(self.net.node.sessions.get(URL).connection)

    def test_socketio_client_counts_as_one_connection(self) -> None:
        """
        Whatever carries it, a client counts as one connection of `socketio`.
        """
        UpgradedRuntime(self.net, URL).open()
        SocketPollRuntime(self.net, URL + "2").open()

        page = HTTPClient(self.net, "admin").request("GET", "/metrics").body.decode()

        self.assertIn('msgnode_connections{connector="socketio"} 2.0', page)
        self.assertIn('msgnode_sessions{connector="socketio",state="attached"} 2.0', page)


class FullDiskTests(SocketCase):
    """
    A disk that takes nothing: what a client of Socket.IO may rely on, and that it is not lost over it.
    """

    def setUp(self) -> None:
        self.node: Any = DurableNode(directory(self))
        self.addCleanup(lambda: (self.node.spool.close(), self.node.store.shut()))
        self.net = Network(node=self.node)
        self.other = TCPRuntime(self.net, "runtime://example.org/b").open()
        self.open()
        self.disk = self.node.disk
        self.disk.full = True
        self.other.drop()
        self.net.pump()

    def emit(self, *numbers: int) -> Response:
        message = {**self.update(0), "from": URL, "to": "runtime://example.org/b"}
        event = emitted(json.dumps(message).encode())[2:]
        return self.post(*(b"42%d%s" % (number, event) for number in numbers))

    def test_post_is_answered_ok_while_the_disk_is_full(self) -> None:
        """
        A POST is answered as ever, for what else could be said would end the client; the message is carried.
        """
        self.assertEqual((200, b"ok"), (self.emit(7).status, self.emit(8).body))

        self.assertEqual(2, len(self.node.sessions.get("runtime://example.org/b").mailbox.undelivered()))

    def test_event_is_acknowledged_when_it_is_on_disk(self) -> None:
        """
        What the application asked to be told is said when the message is on disk, and not before.
        """
        waiting = self.start()
        self.emit(7)
        self.net.advance(5)
        self.assertIsNone(waiting.response)

        self.disk.full = False
        self.net.advance(3)

        self.assertEqual([b"437[]"], self.packets(waiting))

    def test_acknowledgement_by_websocket(self) -> None:
        """
        So it is by WebSocket.
        """
        runtime = SocketWebSocketRuntime(self.net, "runtime://example.org/c").open()
        message = {**self.update(5), "from": runtime.url, "to": "runtime://example.org/b"}
        runtime.say(b"425" + emitted(json.dumps(message).encode())[2:])
        self.net.advance(5)
        self.assertNotIn(b"435[]", runtime.packets)

        self.disk.full = False
        self.net.advance(3)

        self.assertIn(b"435[]", runtime.packets)

    def test_who_asks_for_more_than_a_thousand_of_them_meanwhile(self) -> None:
        """
        Who asks for more than a thousand of them meanwhile is closed, and may come back.
        """
        self.emit(*range(1001))

        self.assertEqual(
            [b'42["close",{"code":1013,"reason":"full","retry_after":30.0}]', b"1"],
            self.poll() + self.poll(),
        )
