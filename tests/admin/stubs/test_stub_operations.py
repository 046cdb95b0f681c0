"""
Foreign stubs for operators: over the admin API, and as metrics.
"""

import msgspec
from prometheus_client import CollectorRegistry, generate_latest

from msgnode.admin.stubs.stub_actions import StubRow
from msgnode.admin.stubs.stub_metrics import StubCollector
from msgnode.protocol.errors import Rejected
from tests.support.foreign_case import B, ForeignCase


class MetricsTests(ForeignCase):
    """
    What Prometheus scrapes.
    """

    def page(self) -> str:
        registry = CollectorRegistry()
        registry.register(StubCollector(lambda: self.stubs))
        return generate_latest(registry).decode()

    def test_states_and_events_are_counted(self) -> None:
        """
        The page has the stubs by state, what waits, and what happened.
        """
        stub = self.live()
        stub.say(from_="hyperty://c.example/h", to=f"{self.ann.runtime}/x")
        stub.room = 0
        self.send()
        stub.events.limited("hosts")

        page = self.page()

        for line in (
            'msgnode_stubs{state="live"} 1.0',
            'msgnode_stubs{state="failed"} 0.0',
            "msgnode_stub_waiting_messages 1.0",
            "msgnode_stub_addresses 1.0",
            'msgnode_stub_events_total{event="peer"} 1.0',
            'msgnode_stub_events_total{event="sent"} 1.0',
            'msgnode_stub_limits_total{limit="hosts"} 1.0',
            'msgnode_stub_limits_total{limit="memory"} 0.0',
        ):
            self.assertIn(line, page)

    def test_node_that_accepts_none_has_none(self) -> None:
        """
        Without `foreign.accept` there is no such metric.
        """
        self.make(accept="none", stub=[])

        self.assertEqual("", self.page().strip())


class ListTests(ForeignCase):
    """
    The rows of the admin API.
    """

    def test_row_is_complete(self) -> None:
        """
        Each entry of the registry is a row of the admin API.
        """
        self.live()

        row = msgspec.convert(self.entry(), StubRow, strict=True)

        self.assertEqual((B, "foreign stub", "live"), (row.name, row.kind, row.state))

    def test_an_order_that_is_not_possible_is_found_out_by_its_dry_run(self) -> None:
        """
        A stub that there is not cannot be stopped.
        """
        self.live()

        self.stubs.check(B, "stop")
        with self.assertRaises(Rejected):
            self.stubs.check("unknown.example", "stop")
