"""
How much the embedded registries keep, and for whom.
"""

import json
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.devregistry.database import connect
from msgnode.devregistry.domain_api import DomainApi
from msgnode.devregistry.fields import HYPERTY
from msgnode.devregistry.global_api import GlobalApi
from msgnode.devregistry.quota import OVERHEAD_BYTES, Limits, Quota
from msgnode.devregistry.records import MAX_FOUND, MAX_SWEPT, Records
from msgnode.service.embedded_registry import payer
from tests.devregistry.test_domain_api import BOB, encoded, hyperty
from tests.support.registry import RegistryNode

LIMITS = Limits(
    entry_bytes=4000, entries_per_owner=4, bytes_per_owner=8000, entries=10, bytes=20_000, retention=86400
)


class QuotaCase(SynchronousTestCase):
    """
    A registry with small limits; `ask` is a request for whoever pays.
    """

    limits = LIMITS

    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(1_500_000_000)
        self.database = connect(":memory:")
        self.quota = Quota(self.database, self.limits)
        self.records = Records(self.database, self.clock.seconds, quota=self.quota)
        self.domain = DomainApi(self.records)

    def create(self, number: int, payer: str = "ip:192.0.2.1", user: str = BOB, **more: Any) -> int:
        self.quota.payer = payer
        uri = f"/hyperty/user/{encoded(user)}/{encoded(f'hyperty://x/{number}')}"
        status, body, _, _ = self.domain.answer("PUT", uri, json.dumps(hyperty(guid=None, **more)).encode())
        if status != 200:
            self.assertIn("message", json.loads(body))
        return status

    def exists(self, number: int) -> bool:
        uri = f"/hyperty/url/{encoded(f'hyperty://x/{number}')}"
        return self.domain.answer("GET", uri, b"").status != 404

    def rows(self, table: str = "record") -> int:
        (number,) = self.database.execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(number)


class LimitTests(QuotaCase):
    """
    An entry, an owner, all of them.
    """

    def test_descriptor_of_megabytes_is_refused_413_and_nothing(self) -> None:
        """
        A descriptor of megabytes is refused 413, and nothing of it is kept.
        """
        self.assertEqual(413, self.create(1, descriptor="x" * 7_000_000))

        self.assertEqual((0, 0, 0), (self.rows(), self.quota.counts.entries, self.quota.counts.bytes))
        self.assertEqual({413: 1}, self.quota.counts.refused)

    def test_oversized_body_is_not_read(self) -> None:
        """
        A body from which no entry can come is not even read.
        """
        uri = f"/hyperty/user/{encoded(BOB)}/{encoded('hyperty://x/1')}"

        reply = self.domain.answer("PUT", uri, b"[" * 1_000_000)

        self.assertEqual(413, reply.status)

    def test_no_update_makes_an_entry_larger(self) -> None:
        """
        No update makes an entry larger than that.
        """
        self.create(1)

        uri = f"/hyperty/url/{encoded('hyperty://x/1')}"
        status = self.domain.answer("PUT", uri, json.dumps({"descriptor": "x" * 5000}).encode()).status

        self.assertEqual(413, status)

    def test_owner_has_a_quota_of_entries(self) -> None:
        """
        One owner has so many entries, whatever users it makes up; others go on.
        """
        found = [self.create(number, user=f"user://x/{number}") for number in range(6)]

        self.assertEqual([200] * 4 + [429] * 2, found)
        self.assertEqual(200, self.create(7, payer="ip:192.0.2.2"))

    def test_owner_bytes(self) -> None:
        """
        And so many bytes.
        """
        found = [self.create(number, descriptor="x" * 3000) for number in range(4)]

        self.assertEqual([200, 200, 429, 429], found)

    def test_all_owners_together_have_a_quota(self) -> None:
        """
        All owners together have so many; then the registry is full, 507.
        """
        found = [self.create(number, payer=f"ip:{number}") for number in range(12)]

        self.assertEqual([200] * 10 + [507] * 2, found)
        self.assertEqual(10, self.quota.counts.entries)

    def test_who_is_at_the_limit_may_keep_alive_what_it_has(self) -> None:
        """
        Who is at the limit may keep alive what it has, and replace it.
        """
        for number in range(4):
            self.create(number)
        uri = f"/hyperty/url/{encoded('hyperty://x/1')}"

        self.assertEqual(200, self.domain.answer("PUT", uri, b"{}").status)
        self.assertEqual(200, self.create(1))

    def test_room_by_the_dead(self) -> None:
        """
        What is disconnected gives way, the oldest first, to its owner's and to others'.
        """
        for number in range(4):
            self.create(number, expires=30)
            self.clock.advance(20)
        self.records.sweep()  # the first two are over

        self.assertEqual(200, self.create(5))

        self.assertEqual([False, False, True], [self.exists(number) for number in (0, 1, 5)])

    def test_user_of_the_entry_pays_if_node_names_nobody(self) -> None:
        """
        Where the node names nobody, the user that the entry names pays.
        """
        found = [self.create(number, payer="") for number in range(5)]

        self.assertEqual([200] * 4 + [429], found)
        self.assertEqual(200, self.create(6, payer="", user="user://x/other"))

    def test_quota_sums_are_those_of_the_entries(self) -> None:
        """
        The sums are those of the entries, also after what was refused.
        """
        for number in range(8):
            self.create(number % 5, descriptor="x" * (number * 400))

        sizes = self.database.execute("SELECT count(*), sum(size) FROM held").fetchone()

        self.assertEqual(sizes, (self.quota.counts.entries, self.quota.counts.bytes))
        self.assertLess(OVERHEAD_BYTES, sizes[1])


class EndTests(QuotaCase):
    """
    What is over goes.
    """

    limits = Limits(retention=86400)

    def test_retention(self) -> None:
        """
        What has been disconnected for the time of retention is removed, with all that lay beside it.
        """
        self.create(1, payer="")
        self.clock.advance(3700)
        self.records.sweep()
        self.assertTrue(self.exists(1))

        self.clock.advance(86400)
        self.records.sweep()

        self.assertFalse(self.exists(1))
        tables = ("record", "held", "updated", "owner")
        self.assertEqual([0, 0, 0, 0], [self.rows(table) for table in tables])
        self.assertEqual((0, 0), (self.quota.counts.entries, self.quota.counts.bytes))

    def test_room_of_what_was_removed_is_given_back_to_the_disk(self) -> None:
        """
        The room of what was removed is given back to the disk.
        """
        for number in range(200):
            self.create(number, descriptor="x" * 10_000, expires=1)
        pages = "PRAGMA page_count"
        (before,) = self.database.execute(pages).fetchone()

        self.clock.advance(10)
        self.records.sweep()
        self.clock.advance(2 * 86400)
        self.records.sweep()

        self.assertLess(4 * self.database.execute(pages).fetchone()[0], before)

    def test_update_cannot_make_an_entry_live_for_ever(self) -> None:
        """
        An update cannot make an entry live for ever.
        """
        self.create(1)
        uri = f"/hyperty/url/{encoded('hyperty://x/1')}"
        self.domain.answer("PUT", uri, json.dumps({"expires": 2**31 - 1}).encode())

        self.clock.advance(31 * 86400)
        self.records.sweep()

        self.assertFalse(self.exists(1))

    def test_turn_works_off_so_many_and_says_that_there_are_more(self) -> None:
        """
        A turn works off so many, and says that there are more; an answer has so many.
        """
        for number in range(MAX_SWEPT + 10):
            self.create(number, expires=1)
        self.clock.advance(60)

        self.assertEqual([True, False], [self.records.sweep(), self.records.sweep()])
        self.assertEqual(MAX_FOUND, len(self.records.find(HYPERTY, "user", BOB)))
        self.assertEqual([MAX_FOUND, 10], [len(self.records.take_updated()) for _ in range(2)])

    def test_too_much_before(self) -> None:
        """
        A file of before with more than may be gives way, the dead only, so many in a turn.
        """
        for number in range(MAX_SWEPT + 50):
            self.create(number, expires=1)
        self.clock.advance(60)
        self.records.sweep()
        self.records.sweep()
        self.create(5000)
        self.quota.limits = Limits(entries=10)

        more = [self.records.sweep(), self.records.sweep(), self.records.sweep()]

        self.assertEqual([True, True, False], more)
        self.assertEqual(10, self.rows())
        self.assertTrue(self.exists(5000))

    def test_file_from_before_quotas_is_counted(self) -> None:
        """
        A file of before these limits is counted when it is opened.
        """
        self.create(1)
        self.database.executescript("DROP TRIGGER held_gone; DROP TABLE held; DELETE FROM usage")

        quota = Quota(self.database, self.limits)

        self.assertEqual(1, quota.counts.entries)
        self.assertLess(0, quota.counts.bytes)


class GraphTests(QuotaCase):
    """
    The global registry, on the same file.
    """

    def test_record_is_bounded_too_before_anything_is_made(self) -> None:
        """
        A record is bounded, too, before anything is made of it.
        """
        graph = GlobalApi(self.database, self.quota)

        reply = graph.answer("PUT", "/guid/x", b"a.b." + b"x" * 1_000_000)

        self.assertEqual(413, reply.status)
        self.assertEqual(413, json.loads(reply.body)["Code"])


class NodeTests(SynchronousTestCase):
    """
    The node names who pays, and clients are told what was refused.
    """

    def setUp(self) -> None:
        self.node = RegistryNode()
        self.client: Any = self.node.client("runtime://example.org/ann")

    def test_verified_user_or_its_host_pays(self) -> None:
        """
        A verified user pays for itself; else the host does, unless it is a UNIX socket's.
        """
        message, session = self.origin(), self.client.session
        self.assertEqual("ip:192.0.2.1", payer(self.node, message, session))
        session.identity = "user://example.org/ann smith"
        self.assertEqual("user:user://example.org/ann%20smith", payer(self.node, message, session))
        session.identity = ""
        self.client.peer = "unix"
        self.assertEqual("", payer(self.node, message, session))

    def origin(self) -> Any:
        class Asked:
            origin = self.client

        return Asked

    def test_client_that_registers_megabytes_is_told_413(self) -> None:
        """
        A client that registers megabytes is told 413, in words.
        """
        body = self.client.register("hyperty://example.org/1", descriptor="x" * 1_000_000)

        self.assertEqual(413, body["code"])
        self.assertIn("65536", body["description"])
