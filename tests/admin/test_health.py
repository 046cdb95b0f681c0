"""
`/live`, and how late the event loop runs.
"""

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode import __version__
from msgnode.admin.health import EventLoopLag
from tests.support.http_client import HTTPClient
from tests.support.network import Network
from tests.support.runtimes import TCPRuntime, WebSocketRuntime


class Base(SynchronousTestCase):
    """
    One node with two clients, one of which is away.
    """

    def setUp(self) -> None:
        self.net = Network(state="none")
        self.net.listener("admin")  # there from the beginning, as in a node
        self.device = TCPRuntime(self.net, "runtime://example.org/a").open()
        self.browser = WebSocketRuntime(self.net, "runtime://example.org/b").open()

    def get(self, path: str, listener: str) -> Any:
        return HTTPClient(self.net, listener).request("GET", path)


class LiveTests(Base):
    """
    For load balancers, and for operators.
    """

    def test_on_the_web_port(self) -> None:
        """
        The web port tells status and version, and nothing about who is there.
        """
        response = self.get("/live", "web")

        self.assertEqual({"status": "up", "version": __version__}, response.json())
        self.assertEqual("application/json", response.headers["Content-Type"])
        self.assertEqual("no-store", response.headers["Cache-Control"])

    def test_pages_of_other_origins_read_the_web_port_only(self) -> None:
        """
        Nothing on the admin listener has a CORS header, a refusal of a request that is not complete neither.
        """
        for listener, allowed in (("web", "*"), ("admin", None)):
            for peer in (None, IPv4Address("TCP", "203.0.113.9", 4000)):
                found = HTTPClient(self.net, listener, peer).request("GET", "/live")
                self.assertEqual(allowed, found.headers["Access-Control-Allow-Origin"])
            for status, path, more in (
                (413, "/live", {"Content_Length": "999999999"}),
                (431, "/live", {"X_Long": "x" * 40_000}),
            ):
                client = HTTPClient(self.net, listener)
                client.start("POST", path, b"", **more)
                self.net.pump()
                refused = client.response
                assert refused is not None
                header = refused.headers["Access-Control-Allow-Origin"]
                self.assertEqual((status, allowed), (refused.status, header), listener)

    def test_on_the_admin_listener(self) -> None:
        """
        The admin listener tells all.
        """
        self.browser.drop()
        self.net.advance(7)

        live = self.get("/live", "admin").json()

        expected = {
            "status": "up",
            "version": __version__,
            "node": "test",
            "domain": "example.org",
            "uptime": 7.0,
            "sessions": {"attached": 1, "away": 1},
            "connectors": {"line": 1},
            "store": "none",
            "data_plane": "python",
        }
        self.assertEqual(expected, {key: live[key] for key in expected})

    def test_degraded(self) -> None:
        """
        While the disk takes nothing the node is degraded, and says why to operators only.
        """
        self.net.node.config.state = "/somewhere"
        self.assertEqual("ok", self.get("/live", "admin").json()["store"])
        self.net.node.session_store.failing = "/somewhere/sessions.sqlite: disk full"

        live = self.get("/live", "admin").json()

        self.assertEqual(
            ("degraded", "/somewhere/sessions.sqlite: disk full"), (live["status"], live["store"])
        )
        self.assertEqual({"status": "degraded", "version": __version__}, self.get("/live", "web").json())
        self.assertIn(b"msgnode_store_failing 1.0", self.get("/metrics", "admin").body)

    def test_draining(self) -> None:
        """
        While the node stops it says so.
        """
        operator = HTTPClient(self.net, "admin")

        self.net.node.sessions.stopService()

        self.assertEqual("draining", operator.request("GET", "/live").json()["status"])

    def test_uptime_counts_seconds(self) -> None:
        """
        `uptime` counts seconds.
        """
        self.get("/live", "admin")
        self.net.clock.advance(12.5)

        self.assertEqual(12.5, self.get("/live", "admin").json()["uptime"])

    def test_no_metrics_on_the_web_port(self) -> None:
        """
        Numbers are for operators only.
        """
        self.assertEqual(404, self.get("/metrics", "web").status)


class LagTests(SynchronousTestCase):
    """
    How late the event loop runs.
    """

    def test_steadily_late(self) -> None:
        """
        A loop that is late at every beat shows it at every beat.
        """
        clock = Clock()
        lag = EventLoopLag(clock)
        lag.startService()
        self.addCleanup(lag.stopService)

        seen = []
        clock.advance(0.8)
        seen.append(round(lag.last, 3))
        for _ in range(3):
            clock.advance(0.5)
            seen.append(round(lag.last, 3))

        self.assertEqual([0.3] * 4, seen)
