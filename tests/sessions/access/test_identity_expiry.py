"""
A token by each way in, and what of it is there after a restart.
"""

from base64 import urlsafe_b64encode
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.support.durable import DurableNode
from tests.support.fakes import Client, directory
from tests.support.http_client import HTTPClient
from tests.support.network import Network
from tests.support.openid import OTHER_RSA, provider
from tests.support.poll_case import URL, PollCase
from tests.support.runtimes import M2Runtime, TCPRuntime, WebSocketRuntime
from tests.support.socketio_runtime import (
    NewSocketPollRuntime,
    NewSocketWebSocketRuntime,
    SocketPollRuntime,
    SocketWebSocketRuntime,
    UpgradedRuntime,
)
from tests.support.world import World

ANN = "user://example.org/ann@example.org"
RUNTIME = "runtime://example.org/1"
IDENTITY = {"auth": "required", "providers": [provider()]}


def encoded(token: str) -> str:
    return "bearer." + urlsafe_b64encode(token.encode()).rstrip(b"=").decode()


class SocketTests(SynchronousTestCase):
    """
    WebSocket and lines.
    """

    def setUp(self) -> None:
        self.net = Network(identity=IDENTITY)
        self.token = self.net.node.world.openid.token()

    def opening(self, token: str | None = None) -> dict[str, Any]:
        body = {"body": {"token": token}} if token else {}
        return {"id": 1, "type": "open", "from": RUNTIME, "to": "mn:/session", **body}

    def assertOpen(self, runtime: Any) -> None:
        self.assertEqual([200], [message["body"]["code"] for message in runtime.take()])
        self.assertEqual(ANN, self.net.node.sessions.get(RUNTIME).identity)

    def assertRefused(self, runtime: Any, code: int = 4401) -> None:
        self.net.advance(6)
        self.assertEqual(([], code), (runtime.take(), runtime.code))
        self.assertEqual(0, len(self.net.node.sessions))

    def test_in_the_websocket_request_authorization_header(self) -> None:
        """
        In the WebSocket request's Authorization header.
        """
        runtime = WebSocketRuntime(self.net, headers={"Authorization": f"Bearer {self.token}"})
        runtime.send(self.opening())

        self.assertOpen(runtime)

    def test_token_as_subprotocol_is_never_chosen(self) -> None:
        """
        As a sub-protocol, which a browser can set; it is never chosen.
        """
        for offered, chosen in (
            (["msgnode", encoded(self.token)], "msgnode"),
            ([encoded(self.token), "msgnode"], "msgnode"),
            ([encoded(self.token)], None),
        ):
            runtime = WebSocketRuntime(self.net, protocols=offered)
            runtime.send(self.opening())

            self.assertEqual(chosen, runtime.subprotocol)
            self.assertOpen(runtime)

    def test_once_its_session_is_open_the_connection_keeps(self) -> None:
        """
        Once its session is open the connection keeps no copy of its token.
        """
        WebSocketRuntime(self.net, headers={"Authorization": f"Bearer {self.token}"}).send(self.opening())
        WebSocketRuntime(self.net, protocols=["msgnode", encoded(self.token)]).send(self.opening())

        self.assertEqual(2, len(self.net.node.sessions.connections))
        for connection in self.net.node.sessions.connections:
            self.assertNotIn(self.token, repr(vars(connection)))
            self.assertNotIn(encoded(self.token), repr(vars(connection)))

    def test_token_that_is_no_good_in_any_place_is_refused(self) -> None:
        """
        A token that is no good, in any place, is refused.
        """
        bad = self.net.node.world.openid.token(OTHER_RSA)
        for how in (
            {"headers": {"Authorization": f"Bearer {bad}"}},
            {"headers": {"Authorization": "Basic YTpi"}},
            {"protocols": ["msgnode", encoded(bad)]},
            {"protocols": ["msgnode", "bearer."]},
            {"protocols": ["msgnode", "bearer.!"]},
            {"protocols": ["msgnode", "bearer"]},
            {},
        ):
            runtime = WebSocketRuntime(self.net, **how)
            runtime.send(self.opening())
            self.assertRefused(runtime)

    def test_matrix_stub(self) -> None:
        """
        A stub that never says open shows it in its request, and may speak before it is looked at.
        """
        runtime = M2Runtime(self.net, headers={"Authorization": f"Bearer {self.token}"}, url=RUNTIME)
        runtime.send({"id": 1, "type": "x", "from": RUNTIME, "to": RUNTIME})

        self.assertEqual([1], [message["id"] for message in runtime.take()])
        self.assertEqual(ANN, self.net.node.sessions.get(RUNTIME).identity)

    def test_matrix_stub_without(self) -> None:
        """
        Without it the stub is refused.
        """
        self.assertRefused(M2Runtime(self.net, url=RUNTIME))

    def test_line_has_only_the_message_itself_to_put(self) -> None:
        """
        A line has only the message itself to put it in.
        """
        runtime = TCPRuntime(self.net)
        runtime.send(self.opening(self.token))
        self.assertOpen(runtime)

        other = TCPRuntime(Network(identity=IDENTITY))
        other.send(self.opening())
        other.network.advance(6)
        self.assertEqual((4401, "token", None), (other.code, other.reason, other.retry_after))

    def test_slow_provider(self) -> None:
        """
        What is sent in one go with an open that must wait is carried after it, on every connector.
        """
        for make in (WebSocketRuntime, TCPRuntime):
            net = Network(identity=IDENTITY)
            net.node.world.provider_wires.refuse = "hang"
            runtime = make(net)
            ping = {"id": 2, "type": "x", "from": RUNTIME, "to": RUNTIME}
            runtime.send(self.opening(net.node.world.openid.token()), ping)
            net.advance(2)
            self.assertEqual([], runtime.take())
            net.advance(1)
            self.assertEqual(
                (4401, "token", 5), (runtime.code, runtime.reason.split(";")[0], runtime.retry_after)
            )

            net = Network(identity=IDENTITY)
            runtime = make(net)
            runtime.send(self.opening(net.node.world.openid.token()), ping)
            self.assertEqual([1, 2], [message["id"] for message in runtime.take()])


class PollTests(PollCase):
    """
    Long-polling.
    """

    def setUp(self) -> None:
        self.net = Network(identity=IDENTITY)
        self.openid = self.net.node.world.openid
        self.token = ""

    opening = {"id": 1, "type": "open", "from": URL, "to": "mn:/session"}

    def test_in_the_request_authorization_header_or_in_open(self) -> None:
        """
        In the request's Authorization header, or in `open`; the keys may have to be fetched first.
        """
        for response in (
            self.post(self.opening, token=self.openid.token()),
            self.post({**self.opening, "body": {"token": self.openid.token()}}, token=""),
        ):
            self.assertEqual(200, response.status)
            reply = response.json()["messages"][0]
            self.assertEqual(200, reply["body"]["code"])
            self.assertEqual(ANN, self.net.node.sessions.get(URL).identity)
        self.assertEqual(204, self.get("?wait=0", token=reply["body"]["runtimeToken"]).response.status)

    def test_without_a_token_or_with_a_bad_one_the_status_is_401(self) -> None:
        """
        Without a token, or with a bad one, the status is 401.
        """
        for token in ("", "nonsense", self.openid.token(OTHER_RSA), self.openid.token(exp=1)):
            self.assertError(401, self.post(self.opening, token=token))

    def test_provider_that_is_silent_makes_it_401_with_a_time(self) -> None:
        """
        A provider that is silent makes it 401 with a time to come back.
        """
        self.net.node.world.provider_wires.refuse = "hang"
        client = self.start("POST", "", self.opening, token=self.openid.token())
        self.net.advance(2)
        self.assertIsNone(client.response)
        self.net.advance(1)

        self.assertError(401, client.response)
        self.assertEqual("5", client.response.headers["Retry-After"])

    def test_client_that_hangs_up_while_it_waits_opens_nothing(self) -> None:
        """
        A client that hangs up while it waits opens nothing.
        """
        self.net.node.world.provider_wires.refuse = "hang"
        client: HTTPClient = self.start("POST", "", self.opening, token=self.openid.token())
        client.hang_up()
        self.net.advance(3)

        self.assertEqual(0, len(self.net.node.sessions))
        self.assertEqual(set(), set(self.net.node.sessions.connections))

    def test_get_hears_the_warning(self) -> None:
        """
        A GET hears the warning; once the identity has ended, the session's token is answered 401.
        """
        opened = self.post(self.opening, token=self.openid.token())
        self.token = opened.json()["messages"][0]["body"]["runtimeToken"]
        poller = self.get("?wait=30")
        self.net.advance(25)
        for _ in range(20):
            self.net.advance(26)
            if poller.response is not None and poller.response.status == 200:
                break
            poller = self.get("?wait=25&after=0")
        body = poller.response.json()["messages"][0]["body"]
        self.assertEqual("token", body["attribute"])
        self.assertGreater(body["value"], 0)
        self.net.advance(91)

        self.assertError(401, self.get("?wait=0").response)
        self.assertEqual("", self.net.node.sessions.get(URL).identity)


class SocketIOTests(SynchronousTestCase):
    """
    Socket.IO, by polling, by WebSocket, and from one to the other.
    """

    kinds = (
        SocketPollRuntime,
        NewSocketPollRuntime,
        SocketWebSocketRuntime,
        NewSocketWebSocketRuntime,
        UpgradedRuntime,
    )
    opening = {"id": 1, "type": "open", "from": RUNTIME, "to": "mn:/session"}

    def test_in_the_authorization_header_of_the_first_request(self) -> None:
        """
        In the Authorization header of the first request; once the session is open no copy is kept.
        """
        for kind in self.kinds:
            net = Network(identity=IDENTITY)
            token = net.node.world.openid.token()
            client: Any = kind(net, headers={"Authorization": f"Bearer {token}"})
            client.send(self.opening)

            self.assertEqual([200], [message["body"]["code"] for message in client.take()], kind)
            self.assertEqual(ANN, net.node.sessions.get(RUNTIME).identity)
            [connection] = net.node.sessions.connections
            self.assertNotIn(token, repr(vars(connection)))

    def test_in_open(self) -> None:
        """
        In `open`.
        """
        for kind in self.kinds:
            net = Network(identity=IDENTITY)
            client: Any = kind(net)
            client.send({**self.opening, "body": {"token": net.node.world.openid.token()}})

            self.assertEqual([200], [message["body"]["code"] for message in client.take()], kind)
            self.assertEqual(ANN, net.node.sessions.get(RUNTIME).identity)

    def test_without_one_or_with_one_that_is_no_good_the_session(self) -> None:
        """
        Without one, or with one that is no good, the session is refused.
        """
        for kind in self.kinds:
            for headers in ({}, {"Authorization": "Bearer x.y.z"}):
                net = Network(identity=IDENTITY)
                client: Any = kind(net, headers=headers)
                client.send(self.opening)
                net.advance(6)

                self.assertEqual(([], 4401), (client.take(), client.code), kind)
                self.assertEqual(0, len(net.node.sessions))


class RestartTests(SynchronousTestCase):
    """
    The node is killed, and comes back.
    """

    def setUp(self) -> None:
        self.node = DurableNode(directory(self), world=World, identity={**IDENTITY, "auth": "optional"})
        self.addCleanup(lambda: (self.node.spool.close(), self.node.store.shut()))
        self.token = self.opened().token

    def opened(self, **more: Any) -> Client:
        client = Client(self.node)
        body = {"token": self.node.world.openid.token(**more)}
        client.tell({"id": 1, "type": "open", "from": RUNTIME, "to": "mn:/session", "body": body})
        self.node.world.pump()
        client.tell(
            {
                "id": 2,
                "type": "subscribe",
                "from": RUNTIME,
                "to": "domain://msg-node.example.org/sm",
                "body": {"resources": ["comm://a/1"]},
            }
        )
        self.node.clock.advance(0)
        client.token = client.take()[0]["body"]["runtimeToken"]
        return client

    def come_back(self, token: str = "") -> Client:
        client = Client(self.node)
        from_ = f"{RUNTIME}/{token}" if token else RUNTIME
        client.tell({"id": 1, "type": "re-open", "from": from_, "to": "mn:/session"})
        return client

    def test_who_the_session_is_who_vouched_and_until(self) -> None:
        """
        Who the session is, who vouched and until when is known after it; the provider is not asked.
        """
        before = self.node.sessions.get(RUNTIME).proof
        self.node = self.node.killed()

        session = self.node.sessions.get(RUNTIME)
        self.assertEqual((ANN, before), (session.identity, session.proof))
        self.node.world.provider_wires.refuse = "hang"
        self.assertIs(session, self.come_back(self.token).session)
        self.assertEqual(ANN, session.identity)

    def test_still_its_owners(self) -> None:
        """
        Nobody else takes it, by its name alone.
        """
        self.node = self.node.killed()

        self.assertIsNone(self.come_back().session)

    def test_identity_that_ended_while_down_is_gone(self) -> None:
        """
        An identity that ended while the node was down is not there when it is up.
        """
        self.node.clock.advance(100)
        self.node = self.node.killed()
        self.node = self.at(700)

        self.assertEqual("", self.node.sessions.get(RUNTIME).identity)
        self.assertEqual(ANN, self.node.sessions.get(RUNTIME).proof.user)

    def test_removed_meanwhile(self) -> None:
        """
        Nor is that of a provider that is no longer in the configuration; the session's token does not do.
        """
        other = provider(domain="example.net", issuer="https://id.example.net")
        self.node.sections = {"identity": {"auth": "optional", "providers": [other]}}
        self.node = self.node.killed()

        self.assertEqual("", self.node.sessions.get(RUNTIME).identity)
        self.assertIsNone(self.come_back(self.token).session)

    def at(self, seconds: float) -> DurableNode:
        self.node.spool.close()
        self.node.store.shut()
        clock = type(self.node.clock)()
        clock.advance(seconds)
        return DurableNode(self.node.directory, clock, World, **self.node.sections)

    def test_ends_afterwards(self) -> None:
        """
        The clock of a token runs on over a restart: the warning comes, then the end.
        """
        self.node.clock.advance(500)
        self.node = self.node.killed()
        back = self.come_back(self.token)
        back.take()
        self.node.clock.advance(40)
        self.assertEqual([60], [message["body"]["value"] for message in back.take()])
        self.node.clock.advance(60)
        self.node.clock.advance(30)

        self.assertEqual(4401, back.lost.code)

    def test_what_a_newer_token_proved_is_what_is_there_after(self) -> None:
        """
        What a newer token proved is what is there after it.
        """
        self.node.clock.advance(300)
        back = self.come_back(self.token)
        back.take()
        newer = self.node.world.openid.token()
        back.tell({"id": 3, "type": "update", "to": "mn:/session", "body": {"token": newer}})
        self.node.clock.advance(0)
        self.node = self.node.killed()

        self.assertEqual(900, self.node.sessions.get(RUNTIME).proof.until)

    def test_no_token_on_disk(self) -> None:
        """
        No file holds the token, nor its signature.
        """
        token = self.node.world.openid.token(sub="other")
        self.opened(sub="other")
        self.node.settle()

        for file in self.node.directory.rglob("*"):
            if file.is_file():
                self.assertNotIn(token.split(".")[2].encode(), file.read_bytes(), file)
