"""
`/metrics`.
"""

import gzip
import os
import time
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from twisted.trial.unittest import SynchronousTestCase

from msgnode import __version__
from msgnode.admin.process_metrics import ProcessFigures
from tests.support.fakes import directory
from tests.support.http_client import HTTPClient
from tests.support.network import Network
from tests.support.poll_runtime import PollRuntime
from tests.support.runtimes import TCPRuntime, WebSocketRuntime, dumps


class MetricsTests(SynchronousTestCase):
    """
    Prometheus' text, of a node with two clients.
    """

    def setUp(self) -> None:
        self.net = Network(state="none")
        self.device = TCPRuntime(self.net, "runtime://example.org/a").open()
        self.browser = WebSocketRuntime(self.net, "runtime://example.org/b").open()

    def send(self, sender: Any, to: str, id: int = 1, type: str = "create") -> bytes:
        message = dumps({"id": id, "type": type, "from": f"{sender.url}/x", "to": to})
        sender.send(message)
        return message

    def metrics(self) -> dict[str, float]:
        """
        Each sample by its name and labels, as `name{label}`.
        """
        response = HTTPClient(self.net, "admin").request("GET", "/metrics")
        self.assertIn("text/plain; version=", response.headers["Content-Type"])
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(response.body.decode()):
            self.assertTrue(family.name.startswith(("msgnode_", "process_", "python_gc_")), family.name)
            self.assertTrue(family.documentation, family.name)
            for sample in family.samples:
                labels = ",".join(value for key, value in sample.labels.items())
                found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
        return found

    def assertMetrics(self, **expected: float) -> None:
        """
        These are the numbers now, each name without `msgnode_`; `__` stands before a single label.
        """
        found = self.metrics()
        for name, number in expected.items():
            name, _, label = name.partition("__")
            key = f"msgnode_{name}{{{label}}}" if label else f"msgnode_{name}"
            self.assertEqual(number, found.get(key, 0), key)

    def test_connections_and_sessions(self) -> None:
        """
        Connections and sessions are counted by connector, those that are away too.
        """
        PollRuntime(self.net, "runtime://example.org/c").open()
        WebSocketRuntime(self.net, "runtime://example.org/d")
        self.device.drop()

        self.assertMetrics(
            connections__websocket=2,
            connections__poll=1,
            connections__line=0,
            session_events_total__opened=3,
            session_events_total__detached=1,
            **{
                "sessions{websocket,attached}": 1,
                "sessions{poll,attached}": 1,
                "sessions{,away}": 1,
            },
        )

    def test_authenticated(self) -> None:
        """
        Sessions of somebody the node knows are counted, so that one sees how many come without a token.
        """
        self.net.node.sessions.get("runtime://example.org/a").identity = "user://example.org/ann"
        WebSocketRuntime(self.net, "runtime://example.org/d")

        self.assertMetrics(sessions_authenticated=1, **{"sessions{websocket,attached}": 1})

    def test_traffic(self) -> None:
        """
        Messages and bytes are counted, in and out, and what became of them.
        """
        before = self.metrics()
        delivered = self.send(self.device, f"{self.browser.url}/x")
        lost = self.send(self.device, "hyperty://example.org/nobody")
        self.browser.drop()
        waits = self.send(self.device, f"{self.browser.url}/x")
        after = self.metrics()

        def grown(name: str, label: str = "") -> float:
            name = f"msgnode_{name}_total{label}"
            return after[name] - before[name]

        self.assertEqual(3, grown("messages_in", "{line}"))
        self.assertEqual(len(delivered + lost + waits), grown("bytes_in"))
        self.assertEqual((1, len(delivered)), (grown("messages_out"), grown("bytes_out")))
        self.assertEqual(1, grown("messages_waited"))
        self.assertMetrics(**{"messages_dropped_total__no-route": 1})
        self.assertMetrics(waiting_messages=1, waiting_bytes=len(waits))
        self.net.advance(16)
        self.browser.take()
        self.browser.come_back()
        self.assertMetrics(waiting_messages=0, waiting_bytes=0, messages_dropped_total__stale=1)

    def test_refusals(self) -> None:
        """
        Refusals are counted by code and reason, and what could not be read by itself.
        """
        self.send(self.device, "domain://registry.example.org")
        self.send(self.device, "domain://registry.example.org")
        self.device.send(b"hello")
        self.device.attempt({"id": 1, "type": "ping", "from": "mn:/x", "to": self.browser.url})

        self.assertMetrics(
            messages_dropped_total__unreadable=1,
            **{
                "messages_refused_total{501,not-handled}": 2,
                "messages_refused_total{400,malformed}": 1,
                "messages_refused_total{403,reserved-address}": 1,
            },
        )

    def test_bound_addresses_are_counted(self) -> None:
        """
        Bound addresses are counted.
        """
        to = "domain://msg-node.example.org/address-allocation"
        self.device.ask(to=to, body={"value": {"number": 5}})

        self.assertMetrics(addresses=5)

    def test_delivery(self) -> None:
        """
        The time a message takes is a histogram, in seconds.
        """
        before = self.metrics()["msgnode_delivery_seconds_count"]
        for _ in range(10):
            self.send(self.device, self.browser.url)
        found = self.metrics()

        self.assertEqual(10, found["msgnode_delivery_seconds_count"] - before)
        self.assertEqual(
            found["msgnode_delivery_seconds_count"], found["msgnode_delivery_seconds_bucket{+Inf}"]
        )
        buckets = [
            value for name, value in found.items() if name.startswith("msgnode_delivery_seconds_bucket")
        ]
        self.assertEqual(sorted(buckets), buckets)
        self.assertGreater(found["msgnode_delivery_seconds_sum"], 0)

    def test_lag(self) -> None:
        """
        How late the event loop runs is measured twice a second, as a histogram.
        """
        self.net.lag.startService()
        self.net.clock.advance(0.5)
        self.assertMetrics(event_loop_lag_seconds_sum=0, event_loop_lag_seconds_count=1)

        self.net.clock.advance(2)

        self.assertMetrics(event_loop_lag_seconds_sum=1.5, event_loop_lag_seconds_count=2)
        for _ in range(2):
            self.net.clock.advance(0.5)
        self.assertMetrics(
            event_loop_lag_seconds_sum=1.5,
            **{"event_loop_lag_seconds_bucket{1.0}": 3, "event_loop_lag_seconds_bucket{2.5}": 4},
        )
        self.net.lag.stopService()
        self.assertFalse([call for call in self.net.clock.calls if "LoopingCall" in repr(call.func)])

    def test_idle(self) -> None:
        """
        A node that has done nothing has numbers too.
        """
        self.net = Network()

        self.assertMetrics(
            messages_in_total__websocket=0,
            connections__websocket=0,
            delivery_seconds_count=0,
            **{"messages_refused_total{403,policy}": 0, "connections_closed_total{admin}": 0},
        )

    def test_process_and_version_are_shown(self) -> None:
        """
        Memory, descriptors and CPU of the process, the node's version, and the limits of its configuration.
        """
        found = self.metrics()

        self.assertGreater(found["process_resident_memory_bytes"], 1_000_000)
        self.assertGreater(found["process_open_fds"], 0)
        self.assertLessEqual(found["process_open_fds"], found["process_max_fds"])
        self.assertGreater(found["process_cpu_seconds_total"], 0)
        self.assertLess(found["process_start_time_seconds"], time.time())
        self.assertIn("python_gc_collections_total{0}", found)
        [info] = [name for name in found if name.startswith("msgnode_info")]
        self.assertIn(__version__, info)
        self.assertMetrics(config_last_reload_successful=1, draining=0)
        limit = "msgnode_limit{limits.sessions}"
        self.assertEqual(self.net.node.config.limits.sessions, found[limit])

    def test_a_process_that_sees_its_own_files_only_knows_its_start(self) -> None:
        """
        As under the systemd unit, which hides /proc/stat; and the start does not move.
        """
        hidden = directory(self)
        (hidden / "self").symlink_to(f"/proc/{os.getpid()}")

        figures, plain = ProcessFigures(str(hidden)), ProcessFigures()

        self.assertLess(abs(plain.started() - figures.started()), 5)
        self.assertEqual(figures.started(), figures.started())
        self.assertGreater(figures.started(), time.time() - 86400)
        self.assertGreater(figures.memory()[1], 1_000_000)
        self.assertGreater(figures.open_fds(), 0)

    def test_openmetrics_and_gzip_are_given_to_clients_that_accept_them(self) -> None:
        """
        Prometheus asks for both.
        """
        client = HTTPClient(self.net, "admin")
        response = client.request(
            "GET", "/metrics", Accept="application/openmetrics-text; version=1.0.0", Accept_Encoding="gzip"
        )

        self.assertIn("application/openmetrics-text", response.headers["Content-Type"])
        self.assertEqual("gzip", response.headers["Content-Encoding"])
        text = gzip.decompress(response.body).decode()
        self.assertTrue(text.endswith("# EOF\n"))
        self.assertIn("msgnode_info{", text)

    def test_closed_connections_are_counted_by_who_closed_them(self) -> None:
        """
        A client that leaves, and one that the node closes because it never opens a session.
        """
        WebSocketRuntime(self.net, "runtime://example.org/late")
        self.device.drop()
        self.net.advance(11)

        self.assertMetrics(connections_closed_total__client=1, connections_closed_total__node=1)

    def test_traffic_is_counted_by_connector(self) -> None:
        """
        The messages received, by how their clients are connected.
        """
        before = self.metrics()
        self.send(self.device, f"{self.browser.url}/x")
        after = self.metrics()

        name = "msgnode_messages_in_total{%s}"
        self.assertEqual(1, after[name % "line"] - before[name % "line"])
        self.assertEqual(0, after[name % "websocket"] - before[name % "websocket"])

    def test_queues_of_many_sessions_are_summed_as_they_change(self) -> None:
        """
        What waits is counted when it is put in, taken out, dropped, or lost with its session.
        """
        self.browser.drop()
        sizes = [len(self.send(self.device, f"{self.browser.url}/x", id)) for id in (1, 2)]
        self.assertMetrics(waiting_messages=2, waiting_bytes=sum(sizes))

        session = self.net.node.sessions.get(self.browser.url)
        self.net.node.sessions.end(session, "expired")

        self.assertMetrics(waiting_messages=0, waiting_bytes=0)
