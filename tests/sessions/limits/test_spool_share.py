"""
How much waits on disk: in all, and because of one sender.
"""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.sessions.limits.overload import MAX_SHED
from msgnode.sessions.limits.spool_share import MAX_IDLE, RECORD_BYTES, Shares
from msgnode.sessions.routing import SUBSCRIBED
from tests.config.test_reload import logged
from tests.support.durable import Counting, DurableNode
from tests.support.fakes import directory

ANN, BOB, CLEO = ("runtime://example.org/" + name for name in ("ann", "bob", "cleo"))


class SpoolCase(SynchronousTestCase):
    """
    ann sends to bob and cleo, who acknowledge and are away.
    """

    def make(self, **storage: Any) -> None:
        self.node: Any = DurableNode(
            directory(self), session={"unused_expiry_seconds": 3600}, storage=storage
        )
        self.addCleanup(lambda: (self.node.spool.close(), self.node.store.shut()))
        self.ann = self.node.client(ANN)
        self.bob, self.cleo = Counting(self.node, BOB), Counting(self.node, CLEO)
        for client in (self.bob, self.cleo):
            client.connect()
            client.lose()

    def send(
        self, to: str = BOB, number: int = 1, size: int = 1000, client: Any = None, **fields: Any
    ) -> None:
        for _ in range(number):
            (client or self.ann).post(to, body={"v": "x" * size}, **fields)

    def told(self, client: Counting) -> tuple[int, int]:
        """
        How many messages it gets when it is back, and how many it is told are missing.
        """
        client.connect()
        client.arrive()
        return len(client.got), client.missed

    def kill(self) -> None:
        self.node = self.bob.node = self.cleo.node = self.node.killed()


class AllTests(SpoolCase):
    """
    `storage.max_spool_bytes`.
    """

    def test_spool_owes_no_more_than_it_may(self) -> None:
        """
        However much is sent, the spool owes no more than it may; what goes is told.
        """
        self.make(max_spool_bytes=50_000)

        self.send(BOB, 100)

        self.assertLessEqual(self.node.spool.live, 50_000)
        got, missed = self.told(self.bob)
        self.assertEqual(100, got + missed)
        self.assertLess(35, got)
        self.assertEqual(missed, self.node.counts.shed + self.node.counts.turned_away)

    def test_largest(self) -> None:
        """
        The largest queue gives way; who has little waiting keeps it.
        """
        self.make(max_spool_bytes=50_000)
        self.send(CLEO, 3)

        self.send(BOB, 100)

        self.assertEqual((3, 0), self.told(self.cleo))

    def test_restart_does_not_forget_what_was_told_to_be_missing(self) -> None:
        """
        A restart does not forget what was told to be missing, nor the bound.
        """
        self.make(max_spool_bytes=50_000)
        self.send(BOB, 100)

        self.kill()

        got, missed = self.told(self.bob)
        self.assertEqual(100, got + missed)

    def test_limit_that_was_lowered_drops_nothing(self) -> None:
        """
        A limit that was lowered drops nothing of what is there; only what is new is not kept.
        """
        self.make()
        self.send(BOB, 40)
        self.node.sections = {**self.node.sections, "storage": {"max_spool_bytes": 10_000}}
        self.kill()
        ann = self.node.client(ANN)

        self.send(BOB, 5, client=ann)

        self.assertEqual(0, self.node.counts.shed)
        self.assertEqual((40, 5), self.told(self.bob))

    def test_reading_on(self) -> None:
        """
        While nothing more can give way, who acknowledges still gets what waits, and soon what is new.
        """
        self.make(max_spool_bytes=10_000)
        self.bob.connect()
        self.send(BOB, 20)
        self.assertTrue(self.node.sessions.journal.crowded)

        for _ in range(30):
            self.bob.arrive()
            self.bob.acknowledge()
            self.node.clock.advance(1)
        self.send(BOB, 1, id=77)
        self.bob.arrive()

        self.assertFalse(self.node.sessions.journal.crowded)
        self.assertEqual(77, self.bob.got[-1]["id"])
        self.assertEqual(21, len(self.bob.got) + self.node.counts.turned_away + self.node.counts.shed)

    def test_log_says_how_many_were_dropped(self) -> None:
        """
        The log says how many were dropped.
        """
        events = logged(self)
        self.make(max_spool_bytes=50_000)

        self.send(BOB, 60)

        self.assertIn("more than 50000 bytes in the spool", events[-1])

    def test_only_so_many_give_way_in_a_turn(self) -> None:
        """
        So many give way in one turn; until the rest has, nothing new is kept.
        """
        self.make(max_spool_bytes=2_000_000)
        bounds = self.node.config.session
        bounds.queue_messages = 3 * MAX_SHED
        to = "runtime://example.org/dan"
        self.node.client(to).drop()
        self.send(to, 2 * MAX_SHED, size=1)
        before = self.node.counts.shed
        self.node.sessions.journal.most_on_disk = 1000

        self.send(to, 1, size=1)

        self.assertLessEqual(self.node.counts.shed - before, MAX_SHED)
        self.assertTrue(self.node.sessions.journal.crowded)


class SenderTests(SpoolCase):
    """
    `storage.max_spool_bytes_per_sender`.
    """

    def test_one_sender_makes_only_so_much_wait(self) -> None:
        """
        One sender makes only so much wait; it is told 507, its recipient how many, and others go on.
        """
        self.make(max_spool_bytes_per_sender=20_000)

        self.send(BOB, 30)
        self.send(BOB, 1, receipt=True)

        self.assertLessEqual(self.node.spool.live, 20_000)
        self.assertEqual(507, self.ann.take()[-1]["body"]["code"])
        other = self.node.client()
        other.peer = "192.0.2.2:1"
        other.open("runtime://example.org/other")
        self.send(BOB, 1, client=other)
        self.assertEqual("waiting", self.node.traffic_recorder.outcomes[-1])
        got, missed = self.told(self.bob)
        self.assertEqual(32, got + missed)

    def test_sessions_of_one_host(self) -> None:
        """
        More sessions of one host have no more.
        """
        self.make(max_spool_bytes_per_sender=20_000)

        for number in range(10):
            self.send(BOB, 10, client=self.node.client(f"runtime://example.org/{number}"))

        self.assertLessEqual(self.node.spool.live, 20_000)

    def test_acknowledged_or_dropped_makes_room_for_its_sender(self) -> None:
        """
        What was acknowledged, dropped, or ended with its session, makes room again.
        """
        self.make(max_spool_bytes_per_sender=20_000)
        share = self.node.sessions.shares.find(self.ann)
        self.send(BOB, 30)
        self.send(CLEO, 1)
        full = share.bytes
        self.assertLess(15_000, full)

        self.bob.connect()
        self.bob.arrive()
        self.bob.acknowledge()

        self.assertEqual(0, share.bytes)
        self.send(CLEO, 5)
        self.assertLess(5 * (1000 + RECORD_BYTES), share.bytes)
        self.node.sessions.end(self.node.sessions.get(CLEO), "expired")
        self.assertEqual(0, share.bytes)

    def test_recipient_that_opens_anew_frees_no_share(self) -> None:
        """
        A recipient that opens anew does not free its sender's share: the same still waits.
        """
        self.make(max_spool_bytes_per_sender=20_000)
        share = self.node.sessions.shares.find(self.ann)
        self.send(BOB, 10)
        before = share.bytes

        self.bob.token = ""
        self.bob.connect()

        self.assertEqual(before, share.bytes)

    def test_unix_socket_and_a_trusted_proxy_are_nobody_and_have(self) -> None:
        """
        A UNIX socket and a trusted proxy are nobody, and have no limit of this kind.
        """
        self.make(max_spool_bytes_per_sender=20_000)
        self.ann.peer = "unix"

        self.send(BOB, 30)

        self.assertEqual((30, 0), self.told(self.bob))

    def test_what_only_waits_for_its_slice_on_its_way_to_many(self) -> None:
        """
        What only waits for its slice, on its way to many that are connected, takes no share.
        """
        self.make(max_spool_bytes_per_sender=5000)
        self.node.config.limits.recipients_at_once = 2
        self.node.apply()
        clients = [self.node.client(f"runtime://example.org/l{number}") for number in range(20)]
        for client in clients:
            self.node.routes.bind("a:b", client.session, SUBSCRIBED)

        self.send("a:b")
        self.node.clock.pump([0.01] * 100)

        self.assertEqual([1] * 20, [len(client.got) for client in clients])
        self.assertEqual(0, self.node.counts.turned_away)

    def test_verified_user_has_a_share_of_its_own_from_wherever(self) -> None:
        """
        A verified user has a share of its own, from wherever it sends.
        """
        self.make(max_spool_bytes_per_sender=20_000)
        self.send(BOB, 30)
        self.ann.session.identity = "user://example.org/ann"

        self.send(CLEO, 1)

        self.assertEqual("waiting", self.node.traffic_recorder.outcomes[-1])

    def test_many_senders(self) -> None:
        """
        Senders of whom nothing waits are forgotten.
        """
        self.make()
        shares = Shares(lambda: 1000, list)

        for number in range(3 * MAX_IDLE):
            self.ann.peer = f"h{number}:1"
            shares.find(self.ann)

        self.assertLessEqual(len(shares), MAX_IDLE + 1)
