"""
Requests of clients that reach another node of the domain than the one with their session.
"""

import json
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.trial.unittest import SynchronousTestCase

from msgnode.sessions.session import hashed
from tests.support.http_client import HTTPClient, Response
from tests.support.relaying import A, B, RelayingNodes
from tests.support.runtimes import TCPRuntime, dumps

ANN, LAMP = "runtime://example.org/ann", "runtime://example.org/lamp"
HYPERTY = "hyperty://example.org/ann"


class RelayingCase(SynchronousTestCase):
    """
    Ann polls, and her session is at node `a`, as is that of a lamp.
    """

    def setUp(self) -> None:
        self.restart()

    def restart(self, **sections: Any) -> None:
        self.nodes = RelayingNodes(**sections)
        self.lamp = TCPRuntime(self.nodes.a, LAMP).open()
        body = {"id": 1, "type": "open", "from": ANN, "to": "mn:/session"}
        answer = self.ask("POST", "/poll", body, token="", node=self.nodes.a).json()
        self.token = answer["messages"][0]["body"]["runtimeToken"]

    def start(
        self,
        method: str,
        path: str,
        body: Any = None,
        token: str | None = None,
        node: Any = None,
        **headers: str,
    ) -> HTTPClient:
        """
        A request to node `b`, or another, whose response may be outstanding.
        """
        token = self.token if token is None else token
        if token:
            headers["Authorization"] = f"Bearer {token}"
        peer = IPv4Address("TCP", "198.51.100.7", 5555)
        client = HTTPClient(node or self.nodes.b, peer=peer)
        client.start(method, path, b"" if body is None else dumps(body), **headers)
        self.nodes.run()
        return client

    def ask(self, *request: Any, **how: Any) -> Response:
        response = self.start(*request, **how).response
        assert response is not None
        return response

    def event(self, n: int, **fields: Any) -> dict[str, Any]:
        return {"id": n, "type": "event", "from": LAMP, "to": ANN, **fields}

    def got(self, response: Response | None) -> tuple[list[int], int]:
        assert response is not None
        self.assertEqual(200, response.status, response)
        answer = response.json()
        return [message["id"] for message in answer["messages"]], answer["cursor"]


class PollTests(RelayingCase):
    """
    Long-polling.
    """

    def test_waiting_poll_is_answered_by_the_holder(self) -> None:
        """
        A poll at another node waits until a message comes for the session.
        """
        poll = self.start("GET", "/poll?wait=25")
        self.assertIsNone(poll.response)

        self.lamp.send(self.event(1))
        self.nodes.run()

        self.assertEqual(([1], 1), self.got(poll.response))
        self.assertEqual("application/json", poll.response.headers["Content-Type"])

    def test_poll_ends_without_a_message(self) -> None:
        """
        A poll for which nothing comes is answered 204, as at the holder.
        """
        poll = self.start("GET", "/poll?wait=3")
        self.nodes.a.advance(4)
        self.nodes.run()

        self.assertEqual(204, poll.response.status)
        self.assertEqual(b"", poll.response.body)

    def test_answer_that_is_lost_comes_again(self) -> None:
        """
        A poll whose client left before the answer arrived loses nothing: the next names what it has.
        """
        poll = self.start("GET", "/poll?wait=25")
        self.lamp.send(self.event(1))
        self.nodes.a.pump()
        poll.hang_up()
        self.nodes.run()
        self.lamp.send(self.event(2))

        self.assertEqual(([1, 2], 2), self.got(self.ask("GET", "/poll?wait=0&after=0")))
        self.assertEqual(([1, 2], 2), self.got(self.ask("GET", "/poll?wait=0&after=0", node=self.nodes.a)))

    def test_link_that_ends_with_the_answer_on_its_way(self) -> None:
        """
        The client is answered 503 and when to come again, and gets the message then.
        """
        poll = self.start("GET", "/poll?wait=25")
        self.lamp.send(self.event(1))
        self.nodes.a.pump()
        self.nodes.away = [A]
        self.nodes.cluster.cut(A, B)
        self.nodes.run()

        self.assertEqual(503, poll.response.status)
        self.assertEqual("1", poll.response.headers["Retry-After"])
        self.assertEqual(f"{A}, which holds this session, went away", poll.response.json()["desc"])
        again = self.ask("GET", "/poll?wait=0&after=0")
        self.assertEqual(f"{A}, which holds this session, is not reached", again.json()["desc"])
        self.nodes.away = []
        self.nodes.cluster.restore(A, B)
        self.assertEqual(([1], 1), self.got(self.ask("GET", "/poll?wait=0&after=0")))

    def test_posts_are_taken_once(self) -> None:
        """
        A POST at either node is accepted by the session, and one that is repeated with its number once.
        """
        messages = [{"id": n, "type": "event", "from": f"{ANN}/x", "to": LAMP} for n in range(3)]
        posted = [
            self.ask("POST", f"/poll?seq={n + 1}", messages[n], node=node)
            for n, node in enumerate((self.nodes.a, self.nodes.b, self.nodes.a))
        ]
        again = self.ask("POST", "/poll?seq=2", messages[1:])

        self.assertEqual([202, 202, 202], [each.status for each in posted])
        self.assertEqual({"accepted": 2, "received": 3}, again.json())
        self.assertEqual([0, 1, 2], [message["id"] for message in self.lamp.take()])

    def test_refusals_are_those_of_the_holder(self) -> None:
        """
        What is wrong with a request is said in the same words at both nodes.
        """
        wrong: list[tuple[str, str, Any]] = [
            ("GET", "/poll?after=7", None),
            ("POST", "/poll", {"id": 1, "type": "open", "to": "mn:/session"}),
            ("POST", "/poll?seq=x", self.event(1)),
            ("POST", "/poll", [1]),
        ]
        for method, path, body in wrong:
            here, there = (self.ask(method, path, body, node=node) for node in (self.nodes.a, self.nodes.b))
            self.assertEqual((here.status, here.body), (there.status, there.body))
            self.assertEqual(400, here.status)

    def test_token_of_no_session(self) -> None:
        """
        A token that no node knows is refused as by a node that is alone.
        """
        response = self.ask("GET", "/poll", token="mns_unknown")

        self.assertEqual(
            (401, "no session has this token; open one"), (response.status, response.json()["desc"])
        )

    def test_session_that_ends(self) -> None:
        """
        A poll that waits at another node is answered when the session ends, and the token is unknown then.
        """
        poll = self.start("GET", "/poll?wait=25")

        close = {"id": 9, "type": "close", "from": ANN, "to": "mn:/session"}
        self.ask("POST", "/poll", close, node=self.nodes.a)
        self.nodes.run()

        self.assertEqual((401, "the session ended"), (poll.response.status, poll.response.json()["desc"]))
        self.assertEqual(401, self.ask("GET", "/poll?wait=0").status)

    def test_large_answers_and_posts(self) -> None:
        """
        Messages far longer than a payload between members arrive whole in both directions.
        """
        long = {"text": "ż" * 100_000}

        self.ask("POST", "/poll", {"id": 1, "type": "event", "from": ANN, "to": LAMP, "body": long})
        self.lamp.send(self.event(2, body=long))
        answer = self.ask("GET", "/poll?wait=0").json()

        self.assertEqual([long], [message["body"] for message in self.lamp.take()])
        self.assertEqual([long], [message["body"] for message in answer["messages"]])

    def test_too_many_relayed_requests(self) -> None:
        """
        Beyond the limit a poll is refused with 503 and when to come again; the session is not touched.
        """
        self.restart(cluster={"relayed_requests": 1})
        other = self.ask(
            "POST",
            "/poll",
            {"id": 1, "type": "open", "from": f"{ANN}2", "to": "mn:/session"},
            token="",
            node=self.nodes.a,
        ).json()["messages"][0]["body"]["runtimeToken"]
        waiting = self.start("GET", "/poll?wait=25")

        refused = self.ask("GET", "/poll?wait=0", token=other)

        self.assertEqual((503, "1"), (refused.status, refused.headers["Retry-After"]))
        self.assertIn("1 requests wait for", refused.json()["desc"])
        self.lamp.send(self.event(1))
        self.nodes.run()
        self.assertEqual(([1], 1), self.got(waiting.response))

    def test_long_query(self) -> None:
        """
        A query that no request needs is refused where it arrives.
        """
        response = self.ask("GET", f"/poll?x={'y' * 8200}")

        self.assertEqual(400, response.status)
        self.assertIn("a query has at most 8192 characters", response.json()["desc"])


class TrustTests(RelayingCase):
    """
    What the relaying node checks, and what it says of the client.
    """

    def test_origin_is_checked_where_the_request_arrives(self) -> None:
        """
        A page of a foreign origin is refused there, and one that is allowed gets its CORS headers from there.
        """
        self.restart(allowed_origins=["https://example.org"])

        foreign = self.ask("GET", "/poll?wait=0", Origin="https://evil.example")
        allowed = self.ask("GET", "/poll?wait=0", Origin="https://example.org")

        self.assertEqual((403, 0), (foreign.status, self.served() - 1))
        self.assertEqual(204, allowed.status)
        self.assertEqual("https://example.org", allowed.headers["Access-Control-Allow-Origin"])

    def served(self) -> int:
        members = self.nodes.a.node.member_relay
        assert members is not None
        return members.relay.counts.served

    def test_client_has_the_address_that_the_relaying_node_saw(self) -> None:
        """
        The holder knows the client by its address at the relaying node, not by a header of the client's.
        """
        self.nodes.a.node.config.trusted_proxies.append("192.0.2.0/24")
        poll = self.start("GET", "/poll?wait=25", X_Forwarded_For="203.0.113.9")

        session = self.nodes.a.node.sessions.get(ANN)
        assert session is not None
        assert session.connection is not None
        self.assertIsNone(poll.response)
        before = session.connection.peer
        self.nodes.a.node.sessions.connections.lost(session.connection)
        self.start("GET", "/poll?wait=25", X_Forwarded_For="203.0.113.9")
        assert session.connection is not None
        self.assertNotIn("203.0.113.9", before + session.connection.peer)

    def test_session_token_stays_at_the_relaying_node(self) -> None:
        """
        Nothing that goes between members has the session token in it.
        """
        self.ask("GET", "/poll?wait=0")
        self.ask("POST", "/message?wait=0", {"id": 1, "type": "event", "to": LAMP})

        sent = [payload for members in self.nodes.cluster.nodes.values() for _, payload in members.sent]
        self.assertEqual(4, len(sent))  # two requests and their responses
        self.assertFalse([payload for payload in sent if self.token.encode() in payload])

    def test_identity_token_is_not_relayed(self) -> None:
        """
        A token that is no session token is for the node that the request reached.
        """
        self.ask("POST", "/message", {"id": 1, "type": "read", "to": LAMP}, token="eyJhbGciOi.x.y")

        self.assertEqual(0, self.served())

    def test_rate_is_counted_at_the_holder(self) -> None:
        """
        A session has one rate at whichever nodes its messages arrive.
        """
        self.restart(limits={"session_rate_messages": 3})
        messages = [{"id": n, "type": "event", "from": f"{ANN}/x", "to": LAMP} for n in range(4)]

        for n, node in enumerate((self.nodes.a, self.nodes.b) * 2):
            self.ask("POST", "/poll", messages[n], node=node)

        refused = self.ask("GET", "/poll?wait=0").json()["messages"]
        self.assertEqual([0, 1, 2], [message["id"] for message in self.lamp.take()])
        self.assertEqual([(3, 429)], [(message["id"], message["body"]["code"]) for message in refused])


class RestTests(RelayingCase):
    """
    One message by /message, with a session token.
    """

    def test_request_is_answered_in_its_response(self) -> None:
        """
        The session sends the message, and the response of the other client is the HTTP response.
        """
        asked = self.start("POST", "/message", {"id": 5, "type": "read", "to": LAMP, "body": {}})
        got = self.lamp.take()
        self.lamp.send(
            {"id": 5, "type": "response", "from": LAMP, "to": got[0]["from"], "body": {"code": 200}}
        )
        self.nodes.run()

        self.assertEqual(ANN, got[0]["from"])
        self.assertEqual(200, asked.response.json()["body"]["code"])

    def test_message_without_a_response(self) -> None:
        """
        A message that expects none is accepted.
        """
        response = self.ask("POST", "/message", {"id": 5, "type": "event", "to": LAMP})

        self.assertEqual((202, {"accepted": 1}), (response.status, response.json()))
        self.assertEqual([5], [message["id"] for message in self.lamp.take()])

    def test_token_of_no_session(self) -> None:
        """
        A session token that no node knows is refused in the words of a node that is alone.
        """
        response = self.ask("POST", "/message", {"id": 5, "type": "event", "to": LAMP}, token="mns_x")

        self.assertEqual(401, response.status)
        self.assertIn("no session has this token; open a session", response.json()["desc"])


class SocketIOTests(RelayingCase):
    """
    Socket.IO clients whose polls reach both nodes in turn.
    """

    def connect(self) -> str:
        """
        The sid of a client of Engine.IO 4 at node `a`, connected to the namespace `/`.
        """
        query = "/socket.io/?EIO=4&transport=polling"
        begun = self.ask("GET", query, token="", node=self.nodes.a)
        sid: str = json.loads(begun.body[1:])["sid"]
        self.query = f"{query}&sid={sid}"
        self.assertEqual(b"ok", self.post(b"40"))
        self.assertTrue(self.poll().startswith(b"40"))
        return sid

    def post(self, packet: bytes, node: Any = None) -> bytes:
        client = HTTPClient(node or self.nodes.b)
        client.start("POST", self.query, packet)
        self.nodes.run()
        assert client.response is not None
        return client.response.body

    def poll(self, node: Any = None) -> bytes:
        return self.ask("GET", self.query, token="", node=node).body

    def packet(self, message: Any) -> bytes:
        return b"42" + json.dumps(["message", json.dumps(message)]).encode()

    def test_conversation_at_both_nodes(self) -> None:
        """
        The client opens its session and exchanges messages, wherever its polls and posts arrive.
        """
        self.connect()
        open_ = {"id": 1, "type": "open", "from": f"{ANN}3", "to": "mn:/session"}
        self.assertEqual(b"ok", self.post(self.packet(open_)))
        self.assertIn(b"runtimeToken", self.poll())
        for n in range(4):
            node = (self.nodes.a, self.nodes.b)[n % 2]
            self.post(self.packet({"id": n, "type": "event", "from": f"{ANN}3", "to": LAMP}), node)
            self.lamp.send(self.event(n, to=f"{ANN}3"))
            self.assertIn(b'"id": %d' % n, self.poll(node))

        self.assertEqual([0, 1, 2, 3], [message["id"] for message in self.lamp.take()])

    def test_websocket_at_another_node_is_refused(self) -> None:
        """
        A WebSocket that reaches another node is refused, and the client polls on.
        """
        sid = self.connect()
        upgrade = self.ask(
            "GET",
            f"/socket.io/?EIO=4&transport=websocket&sid={sid}",
            token="",
            Upgrade="websocket",
            Connection="Upgrade",
            Sec_WebSocket_Version="13",
            Sec_WebSocket_Key="dGhlIHNhbXBsZSBub25jZQ==",
        )

        self.assertEqual(400, upgrade.status)
        self.assertEqual(
            b"ok", self.post(self.packet({"id": 1, "type": "open", "from": f"{ANN}4", "to": "mn:/session"}))
        )
        self.assertIn(b"runtimeToken", self.poll())

    def test_poll_that_is_cut_off_ends_the_client(self) -> None:
        """
        A client whose waiting poll is cut off is gone, as at one node: its library connects again.
        """
        self.connect()
        poll = self.start("GET", self.query, token="")
        poll.hang_up()
        self.nodes.run()

        self.assertEqual(400, self.ask("GET", self.query, token="").status)

    def test_unknown_sid(self) -> None:
        """
        A sid of no client is refused, also with the tag of a node.
        """
        sid = self.connect()
        self.query = self.query.replace(sid, "x" * 20 + sid[-8:])

        self.assertIn(b"no client has this 'sid'", self.poll())


class ResourceTests(RelayingCase):
    """
    REST at a node that does not hold the session.
    """

    def test_resource_is_asked_by_the_holder(self) -> None:
        """
        A request to a resource with a session token is sent by the holder, with its conditions.
        """
        body = {"resources": ["hyperty://example.org/lamp a"]}
        self.lamp.ask(type="subscribe", to="domain://msg-node.example.org/sm", body=body)
        path = "/resource/hyperty://example.org/lamp%20a?a=1"

        asked = self.start("GET", path, If_None_Match='"7"', Prefer="wait=5")
        [message] = self.lamp.take()
        response = {"id": message["id"], "type": "response", "from": message["to"], "to": message["from"]}
        self.lamp.send({**response, "body": {"code": 200, "version": 7}})
        self.nodes.run()

        self.assertEqual((ANN, {"a": "1"}), (message["from"], message["body"]))
        answer = asked.response
        assert answer is not None
        self.assertEqual((304, '"7"'), (answer.status, answer.headers["ETag"]))
        self.assertEqual("wait=5", answer.headers["Preference-Applied"])

    def test_name_of_the_session_of_a_stream(self) -> None:
        """
        A node that gets a stream with the token of a session elsewhere learns the name of the session.
        """
        names = self.nodes.b.node.member_relay.names
        found = names.find(A, hashed(self.token))
        self.nodes.run()

        self.assertEqual(ANN, self.successResultOf(found))

    def test_stream_with_a_token_that_no_session_has(self) -> None:
        """
        A stream with a token that no node knows is refused.
        """
        answer = self.ask("GET", "/events?resource=comm://example.org/x/changes", token="mns_" + "x" * 43)

        self.assertEqual(401, answer.status)
