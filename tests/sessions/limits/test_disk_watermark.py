"""
The disk's watermark: nothing new below it, and everything else as ever.
"""

from pathlib import Path
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.sessions.limits.disk_watermark import CHECK_SECONDS, Watching, Watermark
from tests.config.test_reload import logged
from tests.support.durable import SM, Counting, DurableNode
from tests.support.fakes import directory

ANN, BOB, CLEO = ("runtime://example.org/" + name for name in ("ann", "bob", "cleo"))
MEBI = 1024 * 1024


class Disk:
    """
    A disk of 100 GiB, most of which is free.
    """

    whole = 100 * 1024 * MEBI
    free = whole - MEBI

    def __call__(self, directory: str) -> tuple[int, int, int]:
        return self.whole, self.whole - self.free, self.free


class Missing:
    def __call__(self, directory: str) -> tuple[int, int, int]:
        raise FileNotFoundError(directory)


class WatermarkTests(SynchronousTestCase):
    """
    One that wants 256 MiB free.
    """

    def setUp(self) -> None:
        self.disk = Disk()
        self.watermark = Watermark(Path("/state"), lambda: 256 * MEBI, self.disk)

    def low(self, free: int) -> bool:
        self.disk.free = free
        self.watermark.look()
        return self.watermark.low

    def test_it_is_low_below_the_reserve_and_until_there(self) -> None:
        """
        It is low below the reserve, and until there is a quarter more than that.
        """
        self.assertEqual(
            [False, True, True, False],
            [self.low(free * MEBI) for free in (256, 255, 319, 320)],
        )

    def test_small_disk(self) -> None:
        """
        Of a small disk two per cent are enough.
        """
        self.disk.whole = 1024 * MEBI

        self.assertEqual([False, True], [self.low(free * MEBI) for free in (21, 20)])

    def test_messages_yield_sooner_on_a_small_disk(self) -> None:
        """
        What has to yield to others is told sooner, on a small disk too.
        """
        self.disk.whole = 1000 * MEBI
        self.watermark = Watermark(Path("/state"), lambda: 256 * MEBI, self.disk, times=2)

        self.assertEqual([False, True], [self.low(free * MEBI) for free in (40, 39)])

    def test_no_disk(self) -> None:
        """
        Where nothing is kept, or nothing can be measured, it is never low.
        """
        for watermark in (
            Watermark(None, lambda: MEBI, self.disk),
            Watermark(Path("/state"), lambda: MEBI, Missing()),
        ):
            self.disk.free = 0

            watermark.look()

            self.assertEqual((False, ""), (watermark.low, watermark.why))

    def test_log_says_once_that_it_is_low_and_once(self) -> None:
        """
        The log says once that it is low, and once that it is over.
        """
        events = logged(self)

        for free in (100, 99, 98, 1000, 1001):
            self.low(free * MEBI)

        self.assertEqual(["warn", "info"], [event.partition(":")[0] for event in events])

    def test_every_second(self) -> None:
        """
        The disk is looked at when the node starts, and every second.
        """
        clock = Clock()
        watching = Watching([self.watermark], clock)
        self.disk.free = 0

        watching.startService()
        first = self.watermark.low
        self.disk.free = self.disk.whole
        clock.advance(CHECK_SECONDS)
        watching.stopService()

        self.assertEqual((True, False), (first, self.watermark.low))
        self.assertEqual([], clock.getDelayedCalls())


class LowDiskTests(SynchronousTestCase):
    """
    A node on whose disk hardly anything is free, after ann and bob came.
    """

    def setUp(self) -> None:
        self.node: Any = DurableNode(directory(self), session={"unused_expiry_seconds": 3600})
        self.addCleanup(lambda: (self.node.spool.close(), self.node.store.shut()))
        self.node.watermark.measure = self.disk = Disk()
        self.ann, self.bob = self.node.client(ANN), Counting(self.node, BOB)
        self.bob.connect()

    def fill(self, free: int = 0) -> None:
        self.disk.free = free
        self.node.watermark.look()

    def ask(self, type: str, **body: Any) -> Any:
        self.ann.tell({"id": 7, "type": type, "from": f"{ANN}/x", "to": SM, "body": body})
        self.node.clock.advance(0)
        return self.ann.take()[-1]["body"]["code"]

    def test_to_subscribe_is_answered_503_and_nothing_is_bound(self) -> None:
        """
        To subscribe is answered 503, and nothing is bound; to unsubscribe goes on.
        """
        self.assertEqual(200, self.ask("subscribe", resources=["comm://example.org/before"]))
        self.fill()

        codes = [
            self.ask("subscribe", resources=["comm://example.org/after"]),
            self.ask("unsubscribe", resources=["comm://example.org/before"]),
        ]

        self.assertEqual([503, 200], codes)
        self.assertEqual(0, len(self.node.routes))
        self.assertEqual(1, self.node.watermark.refused)

    def test_new_session_is_closed_with_1013_and_told(self) -> None:
        """
        A new session is closed with 1013 and told when to come back; a known one may come back.
        """
        self.fill()
        stranger, again = self.node.client(), self.node.client()

        stranger.tell({"id": 1, "type": "open", "from": CLEO, "to": "mn:/session"})
        again.tell({"id": 2, "type": "re-open", "from": f"{ANN}/{self.ann.token}", "to": "mn:/session"})
        self.node.clock.advance(5)

        self.assertEqual(1013, stranger.lost.code)
        self.assertIsNotNone(stranger.lost.retry_after)
        self.assertEqual(200, again.take()[0]["body"]["code"])

    def test_connected_clients_get_messages_on_a_full_disk(self) -> None:
        """
        Who is connected gets messages, and they are acknowledged.
        """
        self.fill()

        self.ann.post(BOB)
        self.bob.arrive()
        self.bob.acknowledge()

        self.assertEqual([9], [message["id"] for message in self.bob.got])
        self.assertEqual(0, self.node.spool.live)

    def test_what_comes_for_a_session_that_is_away_is_not_kept(self) -> None:
        """
        What comes for a session that is away is not kept: the sender is told 507, and the session how many.
        """
        self.bob.lose()
        self.ann.post(BOB)
        live = self.node.spool.live
        self.fill()

        self.ann.post(BOB, id=10, receipt=True)
        self.ann.post(BOB, id=11)

        self.assertEqual(507, self.ann.take()[-1]["body"]["code"])
        self.assertEqual(live, self.node.spool.live)
        self.assertEqual(["waiting", "dropped", "dropped"], self.node.traffic_recorder.outcomes[-3:])
        self.assertEqual(2, self.node.counts.turned_away)
        self.bob.connect()
        self.bob.arrive()
        self.assertEqual(2, self.bob.missed)
        self.assertEqual([9], [message["id"] for message in self.bob.got])

    def test_away_and_killed(self) -> None:
        """
        A restart does not forget how many are missing.
        """
        self.bob.lose()
        self.fill()
        self.ann.post(BOB)
        self.node = self.bob.node = self.node.killed()

        self.bob.connect()

        self.assertEqual(1, self.bob.missed)

    def test_everything_is_taken_again_when_there_is_room(self) -> None:
        """
        When there is room again, everything is taken on again.
        """
        self.fill()
        self.fill(Disk.free)
        self.bob.lose()

        self.ann.post(BOB)

        self.assertEqual(200, self.ask("subscribe", resources=["comm://example.org/after"]))
        self.assertEqual("waiting", self.node.traffic_recorder.outcomes[-2])

    def test_operators_are_told_why_the_disk_is_short(self) -> None:
        """
        Operators are told why.
        """
        self.assertEqual("", self.node.degraded_reason())

        self.fill(5 * MEBI)

        self.assertEqual("only 5242880 bytes are free on the disk", self.node.degraded_reason())
        self.assertEqual("", self.node.disk_failure())
