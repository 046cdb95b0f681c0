"""
How many connections there may be, in all and from one address.
"""

import json
from typing import Any

from twisted.internet.address import IPv4Address, UNIXAddress
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from msgnode.config.loader import check
from msgnode.sessions.limits.connection_limits import ConnectionLimits
from tests.support.fakes import MemoryNode
from tests.support.http_client import HTTPClient
from tests.support.network import Network
from tests.support.poll_runtime import PollRuntime
from tests.support.runtimes import TCPRuntime, WebSocketRuntime
from tests.support.websocket_case import UPGRADE

RUNTIME = "runtime://example.org/"


class From:
    """
    A connection that comes from somewhere.
    """

    def __init__(self, peer: str) -> None:
        self.peer = peer


def address(host: str, port: int = 1) -> IPv4Address:
    return IPv4Address("TCP", host, port)


class NameTests(SynchronousTestCase):
    """
    Who a connection comes from, behind proxies and without.
    """

    def setUp(self) -> None:
        self.connection_limits = ConnectionLimits(check({"trusted_proxies": ["192.0.2.9"]}, "test"))
        self.observer = EventLoggingObserver.createWithCleanup(self, globalLogPublisher)

    def logged(self) -> list[str]:
        return [
            formatEvent(event)
            for event in self.observer
            if event["log_namespace"] == "msgnode.sessions.limits.connection_limits"
        ]

    def test_untrusted(self) -> None:
        """
        Who says X-Forwarded-For and is no trusted proxy is not believed, and logged once.
        """
        found = {self.connection_limits.named(address("192.0.2.1"), "203.0.113.7") for _ in range(3)}

        self.assertEqual({"192.0.2.1:1"}, found)
        self.assertEqual(
            ["192.0.2.1 sends X-Forwarded-For, but is not one of trusted_proxies"], self.logged()
        )

    def test_trusted_proxy_is_believed(self) -> None:
        """
        Who is one is believed, without a word.
        """
        self.assertEqual("203.0.113.7", self.connection_limits.named(address("192.0.2.9"), "203.0.113.7"))
        self.assertEqual([], self.logged())

    def test_however_many_say_so_the_log_has_few_lines(self) -> None:
        """
        However many say so, the log has few lines.
        """
        for n in range(200):
            self.connection_limits.named(address(f"198.51.100.{n}"), "203.0.113.7")

        self.assertEqual(10, len(self.logged()))

    def test_untrusted_proxy_is_logged_once_for_all_connectors(self) -> None:
        """
        However often a client says so, by WebSocket and by HTTP, it is one line.
        """
        net = Network()
        for n in range(3):
            WebSocketRuntime(net, RUNTIME + str(n), headers={"X-Forwarded-For": "203.0.113.7"})
            HTTPClient(net).request("POST", "/poll", b"{}", X_Forwarded_For="203.0.113.7")
            body = b'{"id":1,"type":"open","from":"runtime://example.org/p","to":"mn:/session"}'
            HTTPClient(net).request("POST", "/poll", body, X_Forwarded_For="203.0.113.7")

        self.assertEqual(1, len(self.logged()))


class CountTests(SynchronousTestCase):
    """
    The counting itself.
    """

    def connection_limits(self, **limits: Any) -> ConnectionLimits:
        trusted = limits.pop("trusted", [])
        return ConnectionLimits(check({"limits": limits, "trusted_proxies": trusted}, "test"))

    def test_connection_over_the_limit_has_to_go(self) -> None:
        """
        One more than the limit has to go; when another is gone, the next one may come.
        """
        connection_limits = self.connection_limits(connections=3)
        here = [From(f"192.0.2.{n}:1") for n in range(4)]

        self.assertEqual([True, True, True, False], [connection_limits.admit(one) for one in here])
        connection_limits.gone(here[3])
        connection_limits.gone(here[0])
        self.assertTrue(connection_limits.admit(From("192.0.2.9:1")))
        self.assertEqual((3, 1), (len(connection_limits), connection_limits.refused))

    def test_from_one_address(self) -> None:
        """
        So it is for one address; others do not mind.
        """
        connection_limits = self.connection_limits(connections_per_ip=2)

        found = [connection_limits.admit(From(f"192.0.2.1:{port}")) for port in range(3)]

        self.assertEqual([True, True, False], found)
        self.assertTrue(connection_limits.admit(From("192.0.2.2:1")))

    def test_connection_counts_once_however_often_it_arrives(self) -> None:
        """
        A connection counts once, however often it arrives and goes.
        """
        connection_limits = self.connection_limits(connections=1)
        one = From("192.0.2.1:1")

        self.assertTrue(connection_limits.admit(one) and connection_limits.admit(one))
        self.assertEqual(1, len(connection_limits))
        for _ in range(2):
            connection_limits.gone(one)
        self.assertEqual(0, len(connection_limits))

    def test_no_address(self) -> None:
        """
        UNIX sockets and trusted proxies have no limit of their own.
        """
        connection_limits = self.connection_limits(connections_per_ip=1, connections=4, trusted=["192.0.2.1"])

        peers = ["unix", "unix", "192.0.2.1:1", "192.0.2.1:2", "unix"]
        self.assertEqual([True] * 4 + [False], [connection_limits.admit(From(peer)) for peer in peers])
        self.assertEqual("", connection_limits.host(UNIXAddress(None)))

    def test_unheard(self) -> None:
        """
        Sockets far beyond a limit, a tenth and a hundred more, are not even heard.
        """
        for limits in ({"connections": 100}, {"connections_per_ip": 100}):
            connection_limits = self.connection_limits(**limits)
            for _ in range(210):
                self.assertTrue(connection_limits.may_accept(address("192.0.2.1")))
                connection_limits.enter("192.0.2.1")

            self.assertFalse(connection_limits.may_accept(address("192.0.2.1")))
            self.assertEqual(
                "connections_per_ip" in limits, connection_limits.may_accept(address("192.0.2.2"))
            )
            self.assertEqual(1 + ("connections_per_ip" not in limits), connection_limits.dropped)

    def test_forgets(self) -> None:
        """
        An address nobody comes from any more takes no memory.
        """
        connection_limits = self.connection_limits()
        here = [From(f"192.0.2.{n}:1") for n in range(100)]
        for one in here:
            connection_limits.admit(one)
        for one in here:
            connection_limits.gone(one)

        self.assertEqual(({}, {}), (connection_limits._hosts, connection_limits._admitted))


class ListenerTests(SynchronousTestCase):
    """
    What somebody is told who is one too many.
    """

    def setUp(self) -> None:
        self.net = Network(limits={"connections": 2})
        self.first = WebSocketRuntime(self.net, RUNTIME + "a").open()
        self.second = TCPRuntime(self.net, RUNTIME + "b").open()

    def test_websocket_is_opened_and_closed_with_1013_which_says(self) -> None:
        """
        A WebSocket is opened and closed with 1013, which says when to come back.
        """
        third = WebSocketRuntime(self.net, RUNTIME + "c")

        self.assertEqual(1013, third.code)
        self.assertTrue(third.reason.startswith("full; retry_after="), third.reason)
        self.assertGreaterEqual(float(third.reason.partition("=")[2]), 30)

    def test_open_comes_too_late(self) -> None:
        """
        Who is one too many cannot open a session, nor take one over, though its `open` is under way already.
        """
        late = HTTPClient(self.net)
        late.request("GET", "/ws", **UPGRADE)
        opening = json.dumps({"id": 1, "type": "open", "from": self.first.url, "to": "mn:/session"}).encode()
        late.transport.write(b"\x81" + bytes((0x80 | len(opening),)) + bytes(4) + opening)
        query = f"/stub/connect?runtimeURL={self.first.url}"
        HTTPClient(self.net).request("GET", query, **UPGRADE)
        self.net.pump()

        update = {"id": 2, "type": "update", "from": "x", "to": self.first.url}
        self.second.send(update)
        self.assertEqual([update], self.first.take())

    def test_line_is_told_the_same(self) -> None:
        """
        A line is told the same.
        """
        third = TCPRuntime(self.net, RUNTIME + "c")

        self.assertEqual((1013, "full"), (third.code, third.reason))
        assert third.retry_after is not None
        self.assertGreaterEqual(third.retry_after, 30)

    def test_polling_client_gets_503_with_retry_after(self) -> None:
        """
        A polling client gets 503 with Retry-After.
        """
        body = json.dumps({"id": 1, "type": "open", "from": RUNTIME + "c", "to": "mn:/session"})

        response = HTTPClient(self.net).request("POST", "/poll", body.encode())

        self.assertEqual(503, response.status)
        self.assertGreaterEqual(int(response.headers["Retry-After"]), 30)

    def test_next_connection_comes_when_one_has_gone(self) -> None:
        """
        When somebody has gone the next one may come, and nobody was counted twice.
        """
        for name in "cdefgh":
            WebSocketRuntime(self.net, RUNTIME + name)
        self.net.advance(10)
        self.first.drop()
        self.net.pump()

        WebSocketRuntime(self.net, RUNTIME + "i").open()

        self.assertEqual(2, len(self.net.node.connection_limits))

    def test_admin_listener_has_no_limit(self) -> None:
        """
        The admin listener has no limit, and says how many were turned away.
        """
        WebSocketRuntime(self.net, RUNTIME + "c")

        page = HTTPClient(self.net, "admin").request("GET", "/metrics").body

        self.assertIn(b'msgnode_connections_rejected_total{how="told"} 1.0', page)


class SocketTests(SynchronousTestCase):
    """
    Sockets that say nothing.
    """

    def test_sockets_that_never_ask_for_anything_count(self) -> None:
        """
        Sockets that never ask for anything count, and beyond the limit they are closed unheard.
        """
        net = Network(limits={"connections": 10})
        silent = [HTTPClient(net) for _ in range(111)]
        self.assertEqual(111, len(net.node.connection_limits))

        late: list[HTTPClient | TCPRuntime] = [HTTPClient(net), TCPRuntime(net, RUNTIME + "a")]
        net.pump()

        self.assertEqual([False, False], [client.is_connected for client in late])
        self.assertEqual(2, net.node.connection_limits.dropped)
        net.advance(75)
        self.assertEqual(0, len(net.node.connection_limits))
        self.assertFalse(any(client.is_connected for client in silent))

    def test_upgraded_counts_once(self) -> None:
        """
        A socket that becomes a WebSocket counts as that.
        """
        net = Network()

        client = WebSocketRuntime(net, RUNTIME + "a").open()
        self.assertEqual(1, len(net.node.connection_limits))
        client.drop()
        net.pump()

        self.assertEqual(0, len(net.node.connection_limits))

    def test_poller_counts_while_it_is_attached(self) -> None:
        """
        A polling client counts as long as it counts as attached.
        """
        net = Network()
        client = PollRuntime(net, RUNTIME + "a").open()
        self.assertLessEqual(1, len(net.node.connection_limits))

        client.drop()
        net.advance(200)

        self.assertEqual(0, len(net.node.connection_limits))

    def test_memory_node(self) -> None:
        """
        A node counts whoever connects.
        """
        node = MemoryNode()
        client = node.client("runtime://example.org/a")
        self.assertEqual(1, len(node.connection_limits))

        client.drop()

        self.assertEqual(0, len(node.connection_limits))
