"""
What version 0.1.0 left behind is taken over: state, spool, tokens, policies and traffic log.

The files in tests/fixtures/0.1.0 were made by a node of that version which was
killed with -9; make.py beside them says how.
"""

import json
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.cli.main import main
from msgnode.devregistry.database import connect
from msgnode.policy.administration.document_edit import load
from msgnode.policy.administration.versions import Versions
from msgnode.sessions.access.device_tokens import parse
from tests.support.durable import DurableNode
from tests.support.examples import TOP
from tests.support.fakes import Client, directory

FIXTURE = Path(__file__).parents[1] / "fixtures/0.1.0"
LOG = next(FIXTURE.glob("traffic-*.jsonl"))
FACTS = json.loads((FIXTURE / "facts.json").read_text())
CHAT, SHARED = "comm://example.org/chat/changes", "hyperty://example.org/shared"
ALLOCATION = "domain://msg-node.example.org/address-allocation"


class UpgradeTests(SynchronousTestCase):
    """
    A node of today in the state directory of a node of 0.1.0.
    """

    def setUp(self) -> None:
        work = directory(self)
        with tarfile.open(FIXTURE / "state.tar.gz") as archive:
            archive.extractall(work, filter="data")
        self.state = work / "state"

    def start(self) -> DurableNode:
        pools = {"tel": {"scheme": "sip", "pattern": "sip:guest{1..9}@example.org"}}
        node = DurableNode(self.state, Clock(), pools=pools)
        self.addCleanup(node.store.shut)
        self.addCleanup(node.spool.close)
        return node

    def come_back(self, node: DurableNode, name: str, received: int | None = None) -> tuple[Client, dict]:
        """
        Re-open with the token that 0.1.0 gave, and its count if it acknowledges.
        """
        facts = FACTS[name]
        client = node.client()
        client.runtime = facts["runtime"]
        body: dict[str, Any] = {}
        if received is not None:
            body["resume"] = {"epoch": facts["resume"]["epoch"], "received": received}
        from_ = f"{facts['runtime']}/{facts['token']}"
        client.tell({"id": 1, "type": "re-open", "from": from_, "to": "mn:/session", "body": body})
        return client, json.loads(client.raw.pop(0))["body"]

    def test_an_upgraded_node_knows_the_tokens_of_0_1_0(self) -> None:
        """
        Every session comes back with the token it was given, and keeps it.
        """
        node = self.start()

        answers = [self.come_back(node, name)[1] for name in ("alice", "bob", "carol", "lamp")]

        self.assertEqual([200] * 4, [answer["code"] for answer in answers])
        self.assertFalse(any("runtimeToken" in answer for answer in answers))

    def test_an_upgraded_node_keeps_what_0_1_0_bound(self) -> None:
        """
        Allocated and subscribed addresses are heard by who heard them.
        """
        node = self.start()

        heard = {
            address: sorted(session.runtime.rpartition("/")[2] for session in node.routes.resolve(address))
            for address in (CHAT, SHARED, *FACTS["alice"]["objects"], *FACTS["alice"]["accounts"])
        }

        both = ["bob", "carol"]
        self.assertEqual([both, both, ["alice"], ["alice"]], list(heard.values()))
        self.assertTrue(node.routes.is_allocated(FACTS["alice"]["hyperties"][0]))

    def test_an_upgraded_node_gives_the_addresses_of_0_1_0_to_their_owners(self) -> None:
        """
        An allocated address belongs to who was allocated it; what two had subscribed, to nobody.
        """
        node = self.start()
        alice = FACTS["alice"]

        owned = {address: node.owners.owner(address) for address in (*alice["hyperties"], *alice["objects"])}

        self.assertEqual({alice["runtime"]}, {session and session.runtime for session in owned.values()})
        self.assertEqual([None, None], [node.owners.owner(address) for address in (SHARED, CHAT)])

    def test_an_upgraded_node_knows_the_keys_and_pools_of_0_1_0(self) -> None:
        """
        An allocation key still names its addresses, and a leased account is not leased twice.
        """
        node = self.start()
        alice, _ = self.come_back(node, "alice", 3)
        bob, _ = self.come_back(node, "bob")

        bob.post(ALLOCATION, "create", body={"scheme": "sip", "value": {"number": 1}})
        alice.post(ALLOCATION, "delete", body={"resource": "alices"})
        node.clock.advance(1)  # it is on disk then

        lease = bob.take()[-1]
        self.assertEqual(["sip:guest2@example.org"], lease["body"]["value"]["allocated"])
        self.assertFalse(node.routes.is_allocated(FACTS["alice"]["hyperties"][0]))

    def test_an_upgraded_node_delivers_what_0_1_0_owed(self) -> None:
        """
        What was sent and not acknowledged comes again, what waited follows, each once and in order.
        """
        node = self.start()

        carol, told = self.come_back(node, "carol", 1)

        self.assertEqual((True, 0), (told["resume"]["recovered"], told["resume"]["missed"]))
        self.assertEqual([0, 1, 2, 3, 4], [message["body"]["value"] for message in carol.got])

    def test_an_upgraded_node_keeps_the_priorities_of_0_1_0(self) -> None:
        """
        What waited leaves by the priority its sender gave it.
        """
        node = self.start()

        alice, told = self.come_back(node, "alice", 3)

        self.assertTrue(told["resume"]["recovered"])
        self.assertEqual(
            [f"grüß {number}" for number in (3, 2, 1, 0)], [m["body"]["value"] for m in alice.got]
        )

    def test_an_upgraded_state_survives_the_next_kill(self) -> None:
        """
        What was read from 0.1.0 and not fetched is there again after the next kill -9.
        """
        node = self.start()
        self.come_back(node, "bob")
        node.settle()
        again = node.killed()
        self.addCleanup(again.store.shut)
        self.addCleanup(again.spool.close)

        carol, told = self.come_back(again, "carol", 1)

        self.assertTrue(told["resume"]["recovered"])
        self.assertEqual([0, 1, 2, 3, 4], [message["body"]["value"] for message in carol.got])

    def test_the_database_of_0_1_0_is_kept_as_it_was(self) -> None:
        """
        A copy from before the migration, which only the node's user can read.
        """
        self.start()

        copy = self.state / "state.sqlite.v3"
        with closing(sqlite3.connect(copy)) as database:
            self.assertEqual((3,), database.execute("PRAGMA user_version").fetchone())
            self.assertEqual((4,), database.execute("SELECT count(*) FROM session").fetchone())
        self.assertEqual(0o600, copy.stat().st_mode & 0o777)

    def test_device_tokens_of_0_1_0_are_known(self) -> None:
        """
        The file of device tokens still says who has which.
        """
        known = parse((FIXTURE / "devices").read_text().splitlines(), "devices")

        self.assertEqual(
            ["user://example.org/lamp", "user://example.org/meter"], sorted(p.user for p in known.values())
        )

    def test_policies_of_0_1_0_are_live_again(self) -> None:
        """
        The versions that were pushed are there, and the newest one compiles.
        """
        versions = Versions(self.state / "policy", 20)

        versions.open()

        self.assertEqual(([1, 2], []), ([version.number for version in versions], versions.damaged))
        newest = versions.newest
        assert newest is not None
        self.assertEqual(newest.revision, load(newest.files).revision)

    def test_a_registry_of_0_1_0_has_its_entries(self) -> None:
        """
        What was registered in the embedded registry is found.
        """
        database = connect(self.state / "registry.sqlite")
        self.addCleanup(database.close)

        found = database.execute("SELECT id FROM record").fetchall()

        self.assertEqual([("hyperty://example.org/bobs",)], found)

    def test_a_policy_replays_over_a_traffic_log_of_0_1_0(self) -> None:
        """
        Each message of the log is judged; nothing in it is unread.
        """
        policy = TOP / "etc/policies/block-partner.json"

        done = CliRunner().invoke(
            main,
            ["policy", "replay", str(policy), str(LOG), "--domain", "example.org", "--json"],
            catch_exceptions=False,
        )

        found = json.loads(done.stdout)
        lines = [json.loads(line) for line in LOG.read_text().splitlines()]
        messages = [line for line in lines if line["kind"] == "message"]
        self.assertEqual((len(messages), 0), (found["messages"], found["unread"]))
