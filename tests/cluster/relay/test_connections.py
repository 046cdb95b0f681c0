"""
Connections of clients that do not count their messages, whose session moved to another node.
"""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.cluster.relay.connection_wire import Attach, Close, Detached, Gone, Pause, Piece, Read, encode
from msgnode.protocol.close_codes import SUPERSEDED
from msgnode.protocol.message import compose
from tests.support.relaying import A, B, RelayingNodes
from tests.support.runtimes import Runtime, TCPRuntime, WebSocketRuntime

PAGE, LAMP, FAN = (f"runtime://example.org/{name}" for name in ("page", "lamp", "fan"))
SM = "domain://msg-node.example.org/sm"
TOPIC = "comm://example.org/1/changes"


class TwoTabs(SynchronousTestCase):
    """
    One page in two tabs: the first at node `a`, the second at `b`, which holds their session. A lamp and a
    fan are at `b`.
    """

    connect: type[Runtime] = TCPRuntime

    def setUp(self) -> None:
        self.restart()

    def restart(self, **sections: Any) -> None:
        self.nodes = RelayingNodes(**sections)
        self.lamp = TCPRuntime(self.nodes.b, LAMP).open()
        self.first = self.connect(self.nodes.a, PAGE).open()
        self.nodes.let_go(self.nodes.a, PAGE)
        self.second = self.connect(self.nodes.b, PAGE).open()
        self.nodes.run(0.5)

    def send(self, client: Runtime, *messages: Any) -> None:
        client.send(*messages)
        self.nodes.run()

    def event(self, n: int, to: str = LAMP, **fields: Any) -> dict[str, Any]:
        return {"id": n, "type": "event", "from": f"{PAGE}/x", "to": to, **fields}

    def subscribe(self, n: int, address: str = TOPIC) -> dict[str, Any]:
        return {
            "id": n,
            "type": "subscribe",
            "from": f"{PAGE}/x",
            "to": SM,
            "body": {"resources": [address]},
        }

    @staticmethod
    def ids(messages: list[dict[str, Any]]) -> list[Any]:
        return [message["id"] for message in messages]

    # -- both tabs --------------------------------------------------------------------

    def test_both_tabs_speak(self) -> None:
        """
        Messages of both tabs arrive, each tab's in order, and neither is closed.
        """
        for n in range(0, 20, 2):
            self.first.send(self.event(n))
            self.send(self.second, self.event(n + 1))

        came = self.ids(self.lamp.take())
        self.assertEqual([list(range(0, 20, 2)), list(range(1, 20, 2))], [came_of(came, n) for n in (0, 1)])
        self.assertEqual((True, True), (self.first.is_connected, self.second.is_connected))

    def test_node_answers_the_tab_that_asked(self) -> None:
        """
        A subscription of the first tab is the session's, and its answer goes to that tab alone.
        """
        self.send(self.first, self.subscribe(5))
        self.send(self.lamp, {"id": 6, "type": "update", "from": LAMP, "to": TOPIC})

        self.assertEqual([(5, 200)], [(m["id"], m["body"]["code"]) for m in self.first.take()])
        self.assertEqual([6], self.ids(self.second.take()))

    def test_messages_go_to_the_newest_tab(self) -> None:
        """
        What others send to the page goes to the tab that opened the session last.
        """
        self.send(self.lamp, {"id": 7, "type": "event", "from": LAMP, "to": f"{PAGE}/x"})

        self.assertEqual(([], [7]), (self.ids(self.first.take()), self.ids(self.second.take())))

    def test_refusal_comes_back(self) -> None:
        """
        An error goes to the tab whose message it is about.
        """
        self.send(self.first, {"id": 8, "type": "read", "from": f"{PAGE}/x", "to": f"{SM}/none"})

        self.assertEqual([(8, 501)], [(m["id"], m["body"]["code"]) for m in self.first.take()])
        self.assertEqual([], self.second.take())

    def test_long_messages(self) -> None:
        """
        A message longer than a payload between nodes arrives whole and in its order.
        """
        long = {"text": "ż" * 100_000}

        self.first.send(self.event(1, body=long))
        self.send(self.first, self.event(2))
        self.nodes.run(0.5)

        came = self.lamp.take()
        self.assertEqual([1, 2], self.ids(came))
        self.assertEqual(long, came[0]["body"])

    def test_traffic_log_names_the_client_as_its_node_saw_it(self) -> None:
        """
        The message of the first tab is counted once in the domain, at the node of the session.
        """
        before = [network.node.counts.received for network in (self.nodes.a, self.nodes.b)]
        self.send(self.first, self.event(1))

        after = [network.node.counts.received for network in (self.nodes.a, self.nodes.b)]
        self.assertEqual([0, 1], [now - then for now, then in zip(after, before, strict=True)])

    def test_answer_under_way_when_the_session_moves(self) -> None:
        """
        An answer that comes after the session was let go is sent to the tab that asked.
        """
        nodes = self.nodes = RelayingNodes()
        first = self.connect(nodes.a, PAGE).open()
        session = nodes.a.node.sessions.get(PAGE)
        assert session is not None
        assert session.connection is not None
        connection = session.connection

        nodes.a.node.sessions.release(session, SUPERSEDED)
        session.answer(compose(5, "response", SM, PAGE, {"code": 200}), connection)
        nodes.run()

        self.assertEqual([5], self.ids(first.take()))

    # -- ends -------------------------------------------------------------------------

    def test_first_tab_closes(self) -> None:
        """
        A tab that is closed leaves nothing at either node, and the session stays.
        """
        self.first.drop()
        self.nodes.run()

        self.assertEqual(0, self.nodes.relays[A].connections_now)
        self.send(self.second, self.event(1))
        self.assertEqual([1], self.ids(self.lamp.take()))
        self.assertEqual(2, len(self.nodes.b.node.sessions.connections))

    def test_session_ends(self) -> None:
        """
        When the second tab closes the session, the first may open one again.
        """
        self.send(self.second, {"id": 9, "type": "close", "from": PAGE, "to": "mn:/session"})
        self.nodes.run()

        self.send(self.first, self.event(1))
        self.assertEqual([(1, 401)], [(m["id"], m["body"]["code"]) for m in self.first.take()])
        self.assertEqual(200, self.first.session("open", **{"from": PAGE})["body"]["code"])

    def test_first_tab_opens_the_session_again(self) -> None:
        """
        A tab that opens a session where it is speaks for that one from then on.
        """
        self.first.open()
        self.nodes.run()

        session = self.nodes.a.node.sessions.get(PAGE)
        assert session is not None
        self.assertIsNotNone(session.connection)
        self.assertEqual(0, self.nodes.relays[A].connections_now)

    def test_session_moves_back(self) -> None:
        """
        When the session comes back to the first node, the tab there belongs to it as before, and the other
        tab is relayed.
        """
        self.nodes.let_go(self.nodes.b, PAGE)
        third = self.connect(self.nodes.a, PAGE).open()
        self.nodes.run(1)

        for n, tab in enumerate((self.first, self.second, third)):
            self.send(tab, self.subscribe(n, f"comm://example.org/{n}/changes"))
            self.assertEqual([(n, 200)], [(m["id"], m["body"]["code"]) for m in tab.take()])
        self.assertEqual([0, 1], [self.nodes.relays[node].connections_now for node in (A, B)])
        session = self.nodes.a.node.sessions.get(PAGE)
        assert session is not None
        self.assertEqual(3, len([each for each in session.bindings if each.startswith("comm:")]))

    # -- faults -----------------------------------------------------------------------

    def test_link_to_the_holder_is_cut(self) -> None:
        """
        A tab whose messages may be lost with the link is closed, as if its own connection were lost; it comes
        back, and opens the session again.
        """
        self.send(self.first, self.event(1))
        self.nodes.cluster.cut(A, B)
        self.nodes.run()

        self.assertEqual((1001, 0), (self.first.code, self.nodes.relays[A].connections_now))
        self.assertTrue(self.second.is_connected)
        again = self.connect(self.nodes.a, PAGE)
        self.assertEqual(200, again.session("open", **{"from": PAGE})["body"]["code"])

    def test_holder_is_not_found(self) -> None:
        """
        After ten seconds the tab is like a new connection: what it sent is answered 401, and it may open.
        """
        nodes = self.nodes = RelayingNodes()
        first = self.connect(nodes.a, PAGE).open()
        nodes.let_go(nodes.a, PAGE)
        first.send(self.event(1))
        nodes.run(9)
        self.assertEqual([], first.take())
        nodes.run(2)

        self.assertEqual([(1, 401)], [(m["id"], m["body"]["code"]) for m in first.take()])
        self.assertEqual(200, first.session("open", **{"from": PAGE})["body"]["code"])

    def test_session_of_another_user(self) -> None:
        """
        A connection never speaks for a session of another user with the same name.
        """
        nodes = self.nodes = RelayingNodes()
        lamp = TCPRuntime(nodes.b, LAMP).open()
        first = self.connect(nodes.a, PAGE).open()
        nodes.let_go(nodes.a, PAGE)
        self.connect(nodes.b, PAGE).open()
        session = nodes.b.node.sessions.get(PAGE)
        assert session is not None
        session.identity = "user://example.org/mallory"
        nodes.run(11)

        self.send(first, self.event(1))
        self.assertEqual([], lamp.take())
        self.assertEqual([401], [m["body"]["code"] for m in first.take()])

    def test_client_that_sends_faster_than_the_link(self) -> None:
        """
        A client is not read while much of it waits for the other node, and nothing of it is lost.
        """
        self.nodes.cluster.stop(B)
        body = {"text": "x" * 50_000}
        for n in range(60):
            self.first.send(self.event(n, body=body))
        self.nodes.run(0.2)
        self.nodes.cluster.resume(B)
        self.nodes.run(4)

        self.assertEqual(list(range(60)), self.ids(self.lamp.take()))

    def test_nothing_that_a_member_sends_ends_the_relay(self) -> None:
        """
        Statements that make no sense change nothing for the tabs.
        """
        attach = Attach(1, PAGE, 0, "", "line", "peer", "")
        for payload in (
            b"\xc1",
            encode(attach),
            encode(attach),
            encode(Piece(77, False, True, b"x")),
            encode(Piece(77, True, True, b"x")),
            encode(Gone(77)),
            encode(Pause(77, True)),
            encode(Detached(77, True)),
            encode(Close(77, 1000, "", None)),
            encode(Read(1 << 60)),
        ):
            for of, to in ((A, B), (B, A)):
                self.nodes.cluster.nodes[of].send(to, b"s" + payload)
        self.nodes.run()

        self.send(self.first, self.event(1))
        self.assertEqual([1], self.ids(self.lamp.take()))


class TwoWebSocketTabs(TwoTabs):
    """
    The same by WebSocket.
    """

    connect = WebSocketRuntime


class LeavingTests(SynchronousTestCase):
    """
    Connections that do not stay.
    """

    def test_client_that_resumes_is_closed(self) -> None:
        """
        A client that counts its messages is closed as superseded: it comes back where its session is.
        """
        nodes = RelayingNodes()
        page = TCPRuntime(nodes.a, PAGE)
        page.session("open", body={"resume": True}, **{"from": PAGE})

        nodes.let_go(nodes.a, PAGE)
        nodes.run()

        self.assertEqual((4409, 0), (page.code, nodes.relays[A].connections_now))


def came_of(ids: list[int], rest: int) -> list[int]:
    return [each for each in ids if each % 2 == rest]
