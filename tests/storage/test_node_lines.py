"""
The node's own lines in the traffic log, as docs/traffic-log.md promises them.
"""

import json
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.config.reload import revision
from msgnode.config.schema import Config
from msgnode.storage.node_lines import NodeLines
from msgnode.storage.traffic_log import TrafficLog
from tests.support.fakes import directory

MORNING = 1_767_258_000_000_000_000  # 2026-01-01T09:00:00Z
MINUTE = 60 * 10**9


class NodeLinesTests(SynchronousTestCase):
    """
    A traffic log with the lines of its node, from nine in the morning.
    """

    def setUp(self) -> None:
        self.place, self.clock = directory(self) / "traffic", Clock()
        self.revision = "first"
        self.log = TrafficLog(str(self.place), "test", self.clock, self.now)
        self.lines = NodeLines(self.log, "1.2", lambda: self.revision, self.clock, self.now)
        self.log.startService()
        self.addCleanup(self.log.stopService)
        self.lines.startService()

    def now(self) -> int:
        return MORNING + int(self.clock.seconds() * 10**9)

    def written(self) -> list[dict[str, Any]]:
        self.clock.advance(1)
        [path] = self.place.iterdir()
        return [json.loads(line) for line in path.read_text().splitlines()]

    def test_a_node_writes_that_it_started_is_alive_each_minute_and_stopped(self) -> None:
        """
        A node writes that it started, each minute that it is alive, and that it stopped; then no more.
        """
        self.clock.pump([60, 60])
        self.lines.stopService()
        self.clock.pump([60, 60])

        found = [(line["event"], line["time"] - MORNING) for line in self.written()]

        self.assertEqual(
            [("started", 0), ("alive", MINUTE), ("alive", 2 * MINUTE), ("stopped", 2 * MINUTE)], found
        )

    def test_a_line_of_the_node_says_what_it_counted_since_it_started(self) -> None:
        """
        A line says the version, the revision of the configuration, and what was counted since the start.
        """
        self.log.counts.received, self.log.counts.unlogged, self.log.lost = 7, 2, 1
        self.revision = "second"
        self.clock.advance(60)

        first, last = self.written()

        self.assertEqual(("first", 0), (first["revision"], first["messages"]))
        self.assertEqual(
            {
                "v": 1, "kind": "node", "time": MORNING + MINUTE, "node": "test", "event": "alive",
                "started": MORNING, "version": "1.2", "revision": "second", "messages": 7, "unlogged": 2,
                "lost": 1,
            },
            last,
        )  # fmt: skip

    def test_the_revision_differs_when_the_configuration_differs(self) -> None:
        """
        The revision of a configuration differs when a key differs, and only then.
        """
        self.assertEqual(revision(Config(node="mn1")), revision(Config(node="mn1")))
        self.assertNotEqual(
            revision(Config(node="mn1")), revision(Config(node="mn1", traffic_log_always=True))
        )
