"""
Files of the spool that were damaged while the node was stopped: it says so, before and after the repair.
"""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
from click.testing import CliRunner
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.cli.main import main
from msgnode.sessions.routing import ALLOCATED
from msgnode.storage import spool, spool_end
from msgnode.storage.database import NAME
from msgnode.storage.spool_compaction import SpoolCompactor
from msgnode.storage.spool_recovery import CorruptSegment, examine, recover, repair, segments
from tests.support.durable import Counting, DurableNode, Refusing
from tests.support.fakes import Client, directory
from tests.support.http_client import HTTPClient
from tests.support.network import Network
from tests.support.runtimes import dumps

ANN, BOB = "runtime://example.org/ann", "runtime://example.org/bob"


class RepairCase(SynchronousTestCase):
    """
    Bob has ten of a hundred messages, in three files, when he and the node are gone.
    """

    def setUp(self) -> None:
        self.node: Any = DurableNode(directory(self), session={"unused_expiry_seconds": 3600})
        self.addCleanup(lambda: (self.node.spool.close(), self.node.store.shut()))
        self.ann, self.bob = Counting(self.node, ANN), Counting(self.node, BOB)
        self.ann.connect()
        self.bob.connect()
        self.send(range(40))
        self.bob.lose(arrives=10)
        for numbers in (range(40, 70), range(70, 100)):
            self.restart()
            self.send(numbers)
        self.spool = self.node.directory / "spool"
        self.stop()

    def send(self, numbers: range) -> None:
        for number in numbers:
            self.ann.send(id=number, type="update", to=BOB)
        self.node.clock.advance(1)  # until it is acknowledged
        self.ann.arrive()

    def stop(self) -> None:
        self.node.spool.close()
        self.node.store.shut()
        for call in list(self.node.clock.getDelayedCalls()):
            call.cancel()
        self.ann.wire = self.bob.wire = None

    def start(self) -> None:
        self.node = DurableNode(self.node.directory, self.node.clock, **self.node.sections)
        self.ann.node = self.bob.node = self.node
        self.ann.connect()

    def restart(self) -> None:
        self.stop()
        self.start()

    def ids(self) -> list[int]:
        self.bob.connect()
        self.bob.arrive()
        self.bob.acknowledge()
        return [message["id"] for message in self.bob.got]

    def assertToldAfterRepair(self, expected: list[int]) -> None:
        """
        The node does not start before the repair; after it bob gets what is left, and is told.
        """
        self.assertNotEqual([], examine(self.spool))
        self.assertRaises(CorruptSegment, recover, self.spool)
        self.assertNotEqual([], repair(self.spool))
        self.assertEqual([], examine(self.spool))

        self.start()

        self.assertEqual(expected, self.ids())
        self.assertEqual((None, False), (self.bob.told["missed"], self.bob.told["recovered"]))


class TellingTests(RepairCase):
    """
    Whatever the damage is, a client that acknowledges is told `missed: null` after the repair.
    """

    def assertToldAtOnce(self, expected: list[int]) -> None:
        """
        The node starts by itself where only the end is lost; `state check` says so before.
        """
        self.assertEqual(1, len(examine(self.spool)))

        self.start()

        self.assertEqual(expected, self.ids())
        self.assertEqual((None, False), (self.bob.told["missed"], self.bob.told["recovered"]))
        self.assertEqual([], examine(self.spool))

    def test_where_nothing_is_damaged_nothing_is_told(self) -> None:
        """
        Where nothing is damaged nothing is told.
        """
        self.assertEqual([], repair(self.spool))
        self.start()

        self.assertEqual(list(range(100)), self.ids())
        self.assertEqual((0, True), (self.bob.told["missed"], self.bob.told["recovered"]))

    def flip(self, path: Path, number: int) -> None:
        """
        One byte of that message is another.
        """
        data = bytearray(path.read_bytes())
        data[data.index(b'"id": %d,' % number) + 1] ^= 1
        path.write_bytes(data)

    def test_one_byte_in_the_middle_of_a_file(self) -> None:
        """
        One byte in the middle of a file.
        """
        self.flip(segments(self.spool)[1], 50)

        self.assertToldAfterRepair([*range(10), *self.left(50)])

    def left(self, *lost: int) -> list[int]:
        """
        What comes in the new epoch: all that bob had not acknowledged, without these.
        """
        return [number for number in range(100) if number not in lost]

    def test_last_batch(self) -> None:
        """
        One byte in the very last batch, with nothing valid behind it.
        """
        self.flip(segments(self.spool)[2], 99)

        self.assertToldAtOnce([*range(10), *self.left(99)])

    def test_end_of_the_last_file_between_two_batches_or_within(self) -> None:
        """
        The end of the last file, between two batches or within one.
        """
        path = segments(self.spool)[-1]
        data = path.read_bytes()
        os.truncate(path, data.index(b'"id": 80,'))

        self.assertToldAtOnce([*range(10), *self.left(*range(80, 100))])

    def test_cut_off_earlier(self) -> None:
        """
        The end of an earlier file, where a batch ends.
        """
        path = segments(self.spool)[1]
        whole = path.read_bytes()
        at = whole.rindex(b'"id": 69,')
        while True:
            at -= 1
            os.truncate(path, at)
            wrong = examine(self.spool)
            if wrong and "ends at byte" in wrong[0]:
                break

        self.assertToldAfterRepair([*range(10), *self.left(69)])

    def test_emptied(self) -> None:
        """
        All of the last file.
        """
        os.truncate(segments(self.spool)[-1], 0)

        self.assertToldAtOnce([*range(10), *self.left(*range(70, 100))])

    def test_removed_spool_file_is_noticed(self) -> None:
        """
        A file in the middle is not there.
        """
        segments(self.spool)[1].unlink()

        self.assertToldAfterRepair([*range(10), *self.left(*range(40, 70))])

    def test_last_removed(self) -> None:
        """
        The last file is not there.
        """
        segments(self.spool)[-1].unlink()

        self.assertToldAfterRepair([*range(10), *self.left(*range(70, 100))])

    def test_all_removed(self) -> None:
        """
        The first file is not there, which said that bob counts at all.
        """
        segments(self.spool)[0].unlink()

        self.assertToldAfterRepair([*range(10), *range(40, 100)])

    def test_database(self) -> None:
        """
        The database, whose rows may have been subscriptions.
        """
        path = self.node.directory / "state.sqlite"
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2] + b"\xff" * (len(data) - len(data) // 2))

        result = CliRunner().invoke(main, ["state", "repair", str(self.node.directory)])
        self.assertEqual(0, result.exit_code, result.output)
        self.start()

        self.assertEqual([*range(10), *range(100)], self.ids())
        self.assertIsNone(self.bob.told["missed"])

    def test_end_that_let_a_file_go(self) -> None:
        """
        It starts by itself also if what is lost said that the oldest file is not needed.
        """
        self.start()
        self.ids()
        self.node.settle()
        last = segments(self.spool)[-1]
        size = last.stat().st_size
        for session in self.node.sessions:
            session.mailbox.rewrite(lambda place: True)
        self.node.spool.drop_oldest()
        self.stop()
        os.truncate(last, size)

        self.assertEqual([str(last)], [text.partition(": ")[0] for text in examine(self.spool)])
        self.start()

        self.bob.connect()
        self.assertIsNone(self.bob.told["missed"])


class RowsTests(SynchronousTestCase):
    """
    A repair kept the rows of a session's addresses, and lost the session.
    """

    def test_orphaned_addresses_do_not_go_to_the_next_session(self) -> None:
        """
        They do not become those of who opens next, over a restart.
        """
        node = DurableNode(directory(self), session={"unused_expiry_seconds": 3600})
        node.client(ANN)
        session = node.client(BOB).session
        node.routes.bind("hyperty://example.org/bobs", session, ALLOCATED)
        node.clock.advance(1)
        path = node.directory / NAME
        shutil.rmtree(node.directory / "spool")
        node = node.killed()
        self.assertEqual(1, len(node.routes.resolve("hyperty://example.org/bobs")))
        node.spool.close()
        node.store.shut()
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("DELETE FROM session WHERE runtime = ?", (BOB,))

        node = DurableNode(node.directory, node.clock, **node.sections)
        node.client("runtime://example.org/dora")
        node.clock.advance(1)
        node = node.killed()

        self.assertEqual((), node.routes.resolve("hyperty://example.org/bobs"))
        node.spool.close()
        node.store.shut()


class TwiceTests(SynchronousTestCase):
    """
    A runtime whose session ended and that opened another one, where the spool has lost the end of the first.
    """

    def test_only_the_newest_session_of_a_runtime_is_restored(self) -> None:
        """
        The node restores the newest session of a runtime, with what waits for it, and nothing of the older.
        """
        node: Any = DurableNode(directory(self), Clock())
        ann, bob = node.client(ANN), Client(node)
        bob.tell({"id": 1, "type": "open", "from": BOB, "to": "mn:/session", "body": {"resume": True}})
        node.sessions.connections.lost(bob)
        ann.tell({"id": 2, "type": "update", "from": ANN, "to": BOB})
        session = node.sessions.get(BOB)
        # Two more of that runtime, as if each had ended and the spool had lost that.
        for sid in (session.sid + 1, session.sid + 2):
            node.spool.state(sid, msgspec.json.encode(session.as_dict() | {"token": f"{sid:064x}"}))
            node.spool.append(sid, 1, b"{}", float("inf"), 5, 0, 0)
        node.spool.flush()
        node.spool.close()
        node.store.shut()
        with closing(sqlite3.connect(node.directory / NAME)) as database, database:
            database.execute("DELETE FROM session WHERE runtime = ?", (BOB,))

        node = DurableNode(node.directory, Clock())
        self.addCleanup(lambda: (node.spool.close(), node.store.shut()))

        restored = node.sessions.get(BOB)
        self.assertEqual(session.sid + 2, restored.sid)
        self.assertEqual(1, len(restored.mailbox.undelivered()))
        self.assertEqual([BOB], [each.runtime for each in node.sessions if each.runtime == BOB])
        self.assertEqual(2, node.budget.accounts["_per_ip", "192.0.2.1"].sessions)
        self.assertEqual(len(b"{}"), node.spool.live)


class AfterwardsTests(RepairCase):
    """
    It is told once, and then all is as before.
    """

    def setUp(self) -> None:
        super().setUp()
        segments(self.spool)[1].unlink()
        repair(self.spool)

    def test_who_was_told_goes_on_in_the_new_epoch_over_restarts(self) -> None:
        """
        Who was told goes on in the new epoch, over restarts, and misses nothing more.
        """
        self.start()
        self.ids()
        self.bob.got.clear()
        self.bob.lose()
        for number in (100, 101):
            self.send(range(number, number + 1))
            self.restart()

        self.assertEqual([100, 101], self.ids())
        self.assertEqual(0, self.bob.told["missed"])
        self.assertEqual([], examine(self.spool))

    def test_absent_client_is_told_after_the_next_kill(self) -> None:
        """
        Who is not back before the next kill is told after it.
        """
        self.start()
        for _ in range(2):
            self.restart()

        self.ids()

        self.assertIsNone(self.bob.told["missed"])

    def test_open_with_resume_is_told_as_well(self) -> None:
        """
        An `open` with `resume` is told as well; one without is not, and the next with it is.
        """
        self.start()
        client = self.node.client(BOB)
        client.drop()
        self.restart()
        self.bob.token = ""

        self.ids()

        self.assertIsNone(self.bob.told["missed"])

    def test_damaged_again(self) -> None:
        """
        What is cut off of the same files later is found out again.
        """
        self.start()
        self.stop()
        for path in segments(self.spool)[:2]:
            data = path.read_bytes()
            path.write_bytes(data[:-1])
            self.assertNotEqual([], examine(self.spool))
            path.unlink()
            self.assertIn("is missing", examine(self.spool)[0])
            path.write_bytes(data)
            self.assertEqual([], examine(self.spool))

    def test_opens_after_a_sweep(self) -> None:
        """
        It is told, too, if the file that says so was swept before the next restart.
        """
        self.start()
        client = self.node.client(BOB)
        client.drop()
        for session in list(self.node.sessions):
            session.mailbox.shed(lambda: False)
        first = segments(self.spool)[-1]
        self.restart()
        sweep = SpoolCompactor(self.node.spool, self.node.sessions, self.node.clock, slack=0)
        sweep.startService()
        while first.exists():
            self.node.clock.advance(2)
        self.restart()
        self.bob.token = ""

        self.ids()

        self.assertIsNone(self.bob.told["missed"])

    def test_written_anew_meanwhile(self) -> None:
        """
        Killed while it could not be written down, and then was written anew, it is still to be told.
        """
        disk = Refusing()
        disk.full = True
        self.patch(spool, "MAX_BUFFERED_BYTES", 1000)
        self.node = DurableNode(self.node.directory, self.node.clock, disk=disk, **self.node.sections)
        disk.full = False
        self.assertTrue(self.node.spool.overrun)
        self.assertTrue(self.node.spool.start_over())
        self.node.sessions.journal.settle(now=True)
        self.assertTrue(self.node.spool.rewriting)
        self.stop()

        self.start()

        self.ids()
        self.assertIsNone(self.bob.told["missed"])

    def test_new_session(self) -> None:
        """
        A session of afterwards hears nothing of it.
        """
        self.start()
        cleo = Counting(self.node, "runtime://example.org/cleo")
        cleo.connect()
        cleo.lose()
        self.restart()
        cleo.node = self.node

        cleo.connect()

        self.assertEqual(0, cleo.told["missed"])

    def test_spool_of_0_1_0_without_lengths_counts(self) -> None:
        """
        Where nothing says how long the files were, as in version 0.1.0, what is there counts.
        """
        (self.spool / "incomplete").unlink()
        (self.spool / spool_end.NAME).unlink()

        self.assertIn("is missing", examine(self.spool)[0])


class PollTests(SynchronousTestCase):
    """
    A client that polls, and never said `resume`.
    """

    def test_its_numbers_go_on_where_what_is_left_of_the_spool(self) -> None:
        """
        Its numbers go on where what is left of the spool says; nothing else can be told to it.
        """
        node: Any = DurableNode(directory(self), session={"unused_expiry_seconds": 3600})
        net = Network(node=node)
        message = {"id": 1, "type": "open", "from": BOB, "to": "mn:/session"}
        answer = HTTPClient(net).request("POST", "/poll", dumps(message)).json()
        token = answer["messages"][0]["body"]["runtimeToken"]
        node.settle()
        spool = node.directory / "spool"
        (spool / "incomplete").touch()
        node = node.killed()
        self.addCleanup(lambda: (node.spool.close(), node.store.shut()))
        net = Network(node=node)

        response = HTTPClient(net).request(
            "GET", "/poll?wait=0&after=0", b"", Authorization=f"Bearer {token}"
        )

        self.assertEqual(204, response.status)
        self.assertFalse((spool / "incomplete").exists())
