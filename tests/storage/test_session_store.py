"""
The store: what was reported settled is there again, whatever happened to the node or the disk.
"""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from msgnode.config.schema import ConfigError
from msgnode.protocol.errors import Rejected
from msgnode.sessions.persistence import NullSessionStore
from msgnode.sessions.principal import Principal
from msgnode.storage import database
from msgnode.storage.database import MIGRATIONS, NAME
from msgnode.storage.session_store import CHANGE_OVERHEAD_BYTES, MAX_NOTED_BYTES, RETRY_SECONDS, Store
from tests.support.fakes import MemoryNode, directory

HERE = Path(__file__).parents[2]

# Commits for ever, and says the number of each change once it is settled.
WRITER = """
import sys
from pathlib import Path
from twisted.internet.task import Clock
from msgnode.sessions.principal import Principal
from msgnode.storage.session_store import Store

clock = Clock()
kept = Store(Path(sys.argv[1]), clock)
kept.open()
number = 0
while True:
    for _ in range(20):
        number += 1
        kept.bound(number, f"comm://example.org/{number}", 1)
    done = kept.committed()
    done.addCallback(lambda _: print(number, flush=True))
    clock.advance(0)
"""


def session(sid: int, runtime: str = "runtime://example.org/1") -> Any:
    """
    Of a session, what is kept.
    """
    return SimpleNamespace(
        sid=sid,
        runtime=runtime,
        token_hash=b"hash",
        anonymous=False,
        used=False,
        identity="x",
        proof=None,
        host="192.0.2.1",
    )


class StoreTests(SynchronousTestCase):
    """
    A store in an empty directory; commits happen when the clock moves.
    """

    def setUp(self) -> None:
        self.directory = directory(self)
        self.clock = Clock()
        self.most = MAX_NOTED_BYTES
        self.store, self.found = self.start()

    def start(self, run: Callable[..., Deferred[None]] = maybeDeferred) -> tuple[Store, Any]:
        """
        A store on the directory, and the rows that were in it.
        """
        made = Store(self.directory, self.clock, run, most=lambda: self.most)
        self.addCleanup(made.shut)
        return made, tuple(list(rows) for rows in made.open())

    def restart(self) -> Any:
        """
        The node is started again after it ended without a word; the rows found.
        """
        self.store.shut()
        self.store, self.found = self.start()
        return self.found

    def commit(self) -> None:
        done = self.store.committed()
        self.clock.advance(0)
        self.successResultOf(done)

    def refusal(self) -> str:
        """
        Why the disk did not take what was noted.
        """
        done = self.store.committed()
        self.clock.advance(RETRY_SECONDS)
        why = self.failureResultOf(done, Rejected).value
        self.assertEqual(503, why.code)
        return str(why)


class KeepingTests(StoreTests):
    """
    What is told to the store is found after a restart.
    """

    def test_new_directory_holds_nothing_and_nobody_else_can(self) -> None:
        """
        A new directory holds nothing, and nobody else can read it.
        """
        inside = self.directory / "a" / "state"
        made = Store(inside, self.clock)
        self.addCleanup(made.shut)

        rows = made.open()

        self.assertEqual([[]] * 6, [list(part) for part in rows])
        self.assertEqual(0o700, inside.stat().st_mode & 0o777)
        self.assertEqual(0o600, (inside / NAME).stat().st_mode & 0o777)

    def test_sessions_come_back_with_their_token_hash(self) -> None:
        """
        Sessions come back with their token's hash, and with when they lost their connection.
        """
        self.store.opened(session(1))
        self.store.opened(session(2, "runtime://example.org/2"))
        self.store.disconnected(session(2), 1234.5)
        self.commit()

        sessions, *_ = self.restart()

        one = (1, "runtime://example.org/1", b"hash", 0, 0, "x", None)
        self.assertEqual([one, (2, "runtime://example.org/2", b"hash", 0, 0, "x", 1234.5)], sessions)

    def test_returned_session_is_stored_as_there(self) -> None:
        """
        A session that came back is not away any more.
        """
        self.store.opened(session(1))
        self.store.disconnected(session(1), 1234.5)
        self.store.disconnected(session(1), None)
        self.commit()

        sessions, *_ = self.restart()

        self.assertEqual([None], [row[6] for row in sessions])

    def test_new_token_voids_the_old_one_for_good(self) -> None:
        """
        A new token voids the old one for good.
        """
        changed = session(1)
        self.store.opened(changed)
        changed.token_hash, changed.used, changed.identity = b"new", True, "y"
        changed.proof = Principal("user://example.org/ann", until=1.5)
        self.store.changed(changed)
        self.commit()

        sessions, _, _, _, proofs, hosts = self.restart()

        self.assertEqual([(1, changed.runtime, b"new", 0, 1, "y", None)], sessions)
        self.assertEqual([(1, changed.proof.encoded())], proofs)
        self.assertEqual([(1, "192.0.2.1")], hosts)

    def test_bindings(self) -> None:
        """
        An address stays bound as it was last said, and is free when nothing holds it.
        """
        self.store.bound(1, "comm://a", 1)
        self.store.bound(1, "comm://a", 3)
        self.store.bound(1, "comm://b", 1)
        self.store.bound(2, "comm://b", 2)
        self.store.bound(1, "comm://b", 0)
        self.commit()

        _, bindings, *_ = self.restart()

        self.assertEqual([(1, "comm://a", 3), (2, "comm://b", 2)], bindings)

    def test_allocation_keys_lead_to_the_same_addresses(self) -> None:
        """
        Allocation keys lead to the same addresses as before.
        """
        self.store.keyed(1, "k", ["comm://a", "comm://b"])
        self.store.unkeyed(1, "comm://a")
        self.commit()

        _, _, keys, *_ = self.restart()

        self.assertEqual([(1, "k", "comm://b")], keys)

    def test_session_that_ended_takes_what_was_bound_to_it_along(self) -> None:
        """
        A session that ended takes what was bound to it along, and nothing of others; what it had
        registered stays until the registry is told.
        """
        for sid in (1, 2):
            known = session(sid)
            known.proof = Principal("user://example.org/ann")
            self.store.opened(known)
            self.store.changed(known)
            self.store.bound(sid, "comm://a", 1)
            self.store.keyed(sid, "k", ["comm://a"])
            self.store.registered(sid, "comm://a")
        self.store.ended(session(1))
        self.commit()

        found = self.restart()

        self.assertEqual([[2], [2], [2], [1, 2], [2], [2]], [[row[0] for row in rows] for rows in found])

    def fill(self) -> int:
        """
        Bind 5 MB of addresses, and end their session; how large the file was. All bounds are a sixteenth.
        """
        for name in ("MAX_FREE_PAGES", "PAGES_PER_COMMIT", "MAX_WAL_BYTES"):
            self.patch(database, name, getattr(database, name) // 16)
        self.restart()
        for each in range(120):
            self.store.bound(1, f"comm://example.org/{each}/" + "x" * 40_000, 1)
        self.commit()
        self.restart()
        size = (self.directory / NAME).stat().st_size
        self.store.ended(session(1))
        self.commit()
        return size

    def test_what_a_session_had_takes_no_room_on_disk_any_more(self) -> None:
        """
        What a session had takes no room on disk any more, some commits after its end.
        """
        before = self.fill()

        for number in range(8):
            self.store.bound(2, f"comm://example.org/{number}", 1)
            self.commit()
        self.restart()

        self.assertLess(4 * (self.directory / NAME).stat().st_size, before)

    def test_given_back_of_before(self) -> None:
        """
        A file that was made without this is written anew at a start, if most of it is empty.
        """
        self.store.shut()
        with closing(sqlite3.connect(self.directory / NAME, isolation_level=None)) as database:
            database.execute("PRAGMA journal_mode = DELETE")
            database.execute("PRAGMA auto_vacuum = NONE")
            database.execute("VACUUM")
        self.store, _ = self.start()
        before = self.fill()
        self.store.bound(2, "comm://example.org/kept", 1)
        self.commit()
        self.store.shut()
        self.assertEqual(before, (self.directory / NAME).stat().st_size)

        self.store, found = self.start()
        self.store.shut()

        self.assertLess(4 * (self.directory / NAME).stat().st_size, before)
        self.assertEqual([(2, "comm://example.org/kept", 1)], found[1])

    def test_log_bytes(self) -> None:
        """
        SQLite's own log does not stay as large as its largest transaction.
        """
        self.fill()
        log = (self.directory / NAME).with_name(NAME + "-wal")
        for number in range(1200):
            self.store.bound(2, f"comm://example.org/{number}", 1)
            self.commit()

        self.assertLessEqual(log.stat().st_size, database.MAX_WAL_BYTES)

    def test_any_characters_come_back_as_they_were(self) -> None:
        """
        Any characters that can be sent come back as they were.
        """
        address = "comm://é\0\U0001f600'; DROP TABLE session; --"
        self.store.bound(1, address, 1)
        self.commit()

        _, bindings, *_ = self.restart()

        self.assertEqual([(1, address, 1)], bindings)

    def test_whole_node_tells_the_store(self) -> None:
        """
        A whole node tells the store: its sessions and their addresses are found.
        """
        node = MemoryNode(session_store=self.store)
        client = node.client()
        client.tell({"id": 1, "type": "open", "from": "runtime://example.org/1", "to": "mn:/session"})
        self.commit()
        client.runtime = "runtime://example.org/1"
        body = {"resources": ["comm://x/changes"]}
        client.post("domain://msg-node.example.org/sm", "subscribe", body=body)
        self.commit()

        sessions, bindings, *_ = self.restart()

        self.assertEqual(["runtime://example.org/1"], [row[1] for row in sessions])
        self.assertIn("comm://x/changes", [row[1] for row in bindings])

    def test_node_without_a_state_directory_answers_at_once(self) -> None:
        """
        A node without a state directory answers at once.
        """
        nothing = NullSessionStore()
        nothing.opened(session(1))

        self.successResultOf(nothing.committed())
        self.assertEqual((0, ""), (nothing.changes, nothing.failing))


class CommitTests(StoreTests):
    """
    Changes are committed together, one commit after the other.
    """

    def setUp(self) -> None:
        super().setUp()
        self.store.shut()
        self.runs: list[tuple[list[Any], Deferred[None]]] = []
        self.store, _ = self.start(self.run_later)

    def run_later(self, write: Any, database: Any, noted: list[Any]) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        done.addCallback(lambda _: write(database, noted))
        self.runs.append((noted, done))
        return done

    def test_what_one_turn_of_the_reactor_changes_is_one_commit(self) -> None:
        """
        What one turn of the reactor changes is one commit.
        """
        for number in range(5):
            self.store.bound(number, "comm://a", 1)
        self.clock.advance(0)

        self.assertEqual([5], [len(noted) for noted, _ in self.runs])

    def test_unasked(self) -> None:
        """
        Changes are committed though nobody waits for them.
        """
        self.store.bound(1, "comm://a", 1)
        self.clock.advance(0)
        self.runs[0][1].callback(None)

        _, bindings, *_ = self.restart()

        self.assertEqual([(1, "comm://a", 1)], bindings)

    def test_changes_wait_for_the_commit_under_way(self) -> None:
        """
        While one commit is under way all that comes waits for the next.
        """
        self.store.bound(1, "comm://a", 1)
        self.clock.advance(0)
        self.store.bound(2, "comm://a", 1)
        self.store.bound(3, "comm://a", 1)
        self.clock.advance(10)
        self.assertEqual(1, len(self.runs))

        self.runs[0][1].callback(None)
        self.clock.advance(0)

        self.assertEqual([1, 2], [len(noted) for noted, _ in self.runs])

    def test_settled(self) -> None:
        """
        Settled is said when the commit has ended, not before.
        """
        self.store.bound(1, "comm://a", 1)
        done = self.store.committed()
        self.clock.advance(0)
        self.assertNoResult(done)

        self.runs[0][1].callback(None)

        self.successResultOf(done)

    def test_settled_meanwhile(self) -> None:
        """
        A change that comes during a commit is not settled by it.
        """
        self.store.bound(1, "comm://a", 1)
        self.clock.advance(0)
        self.store.bound(2, "comm://a", 1)
        done = self.store.committed()
        self.runs[0][1].callback(None)
        self.assertNoResult(done)

        self.clock.advance(0)
        self.runs[1][1].callback(None)

        self.successResultOf(done)

    def test_nothing_noted(self) -> None:
        """
        When nothing has changed everything is settled, and the disk is left alone.
        """
        self.successResultOf(self.store.committed())
        self.clock.advance(10)

        self.assertEqual([], self.runs)

    def test_node_that_stops_commits_what_it_noted_before(self) -> None:
        """
        A node that stops commits what it noted before it lets go of the directory.
        """
        self.store.bound(1, "comm://a", 1)
        stopped = self.store.stopService()
        self.clock.advance(0)
        self.assertNoResult(stopped)

        self.runs[0][1].callback(None)

        self.successResultOf(stopped)
        _, found = self.start()
        self.assertEqual([(1, "comm://a", 1)], found[1])


class FullDiskTests(StoreTests):
    """
    The disk takes nothing; SQLite is told that the file may not grow, which it reports as a full disk.
    """

    def setUp(self) -> None:
        super().setUp()
        self.events = EventLoggingObserver()
        globalLogPublisher.addObserver(self.events)
        self.addCleanup(globalLogPublisher.removeObserver, self.events)
        self.store.bound(1, "comm://before", 1)
        self.commit()

    def fill(self) -> None:
        (pages,) = self.pragma("page_count")
        self.pragma(f"max_page_count = {pages}")

    def make_room(self) -> None:
        self.pragma("max_page_count = 1000000")

    def pragma(self, text: str) -> Any:
        database = self.store._database
        assert database is not None
        return database.execute(f"PRAGMA {text}").fetchone()

    def logged(self, level: LogLevel) -> int:
        return sum(event["log_level"] is level for event in self.events)

    def note_much(self) -> None:
        for number in range(1000):
            self.store.bound(2, f"comm://during/{number}", 1)

    def test_whoever_waits_for_a_full_disk_is_told_so_with_503(self) -> None:
        """
        Whoever waits for a full disk is told so with 503, and so is who asks why.
        """
        self.fill()
        self.note_much()

        text = self.refusal()

        self.assertEqual("the node cannot write to disk now: database or disk is full", text)
        self.assertEqual("database or disk is full", self.store.failing)

    def test_nothing_in_part(self) -> None:
        """
        A commit that is refused leaves the file as it was.
        """
        self.fill()
        self.note_much()
        self.refusal()

        _, bindings, *_ = self.restart()

        self.assertEqual([(1, "comm://before", 1)], bindings)

    def test_once_there_is_room_what_was_refused_is_written(self) -> None:
        """
        Once there is room, what was refused is written by itself, with what came since.
        """
        self.fill()
        self.note_much()
        self.refusal()
        self.store.bound(3, "comm://since", 1)
        self.make_room()

        self.clock.advance(RETRY_SECONDS)

        self.assertEqual("", self.store.failing)
        self.successResultOf(self.store.committed())
        _, bindings, *_ = self.restart()
        self.assertEqual(1002, len(bindings))

    def test_last_word_counts_also_when_an_earlier_one(self) -> None:
        """
        The last word counts also when an earlier one was refused.
        """
        self.fill()
        self.note_much()
        self.refusal()
        self.store.bound(2, "comm://during/7", 0)
        self.store.bound(2, "comm://during/8", 2)
        self.make_room()
        self.clock.advance(RETRY_SECONDS)

        _, bindings, *_ = self.restart()

        kinds = {address: kinds for _, address, kinds in bindings}
        self.assertNotIn("comm://during/7", kinds)
        self.assertEqual(2, kinds["comm://during/8"])

    def test_says_once(self) -> None:
        """
        The log has one line when the disk is full, and one when it is written again.
        """
        self.fill()
        self.note_much()
        self.refusal()
        self.clock.pump([RETRY_SECONDS] * 10)
        self.assertEqual((1, 0), (self.logged(LogLevel.error), self.logged(LogLevel.info)))

        self.make_room()
        self.clock.advance(RETRY_SECONDS)

        self.assertEqual((1, 1), (self.logged(LogLevel.error), self.logged(LogLevel.info)))

    def test_node_stops_though_its_disk_is_full_and_says(self) -> None:
        """
        A node stops though its disk is full, and says what that means.
        """
        self.fill()
        self.note_much()

        stopped = self.store.stopService()
        self.clock.advance(0)

        self.successResultOf(stopped)
        said = [event["log_format"] for event in self.events if event["log_level"] is LogLevel.error]
        self.assertIn("session state was lost at shutdown: {why}", said)

    def test_changes_beyond_what_memory_may_hold_are_not_called(self) -> None:
        """
        Changes beyond what memory may hold are not called settled, and what comes after them is.
        """
        self.most = 3 * (CHANGE_OVERHEAD_BYTES + 120)
        for number in range(4):
            self.store.bound(4, f"comm://{number}", 1)

        text = self.refusal()

        self.assertIn("too many changes wait", text)
        self.store.bound(5, "comm://after", 1)
        self.commit()
        self.assertEqual("", self.store.failing)

    def test_changes_are_bounded_by_their_bytes(self) -> None:
        """
        Long addresses take more of what may wait than short ones, also those of a commit that failed.
        """
        self.most = 100_000
        self.fill()
        for number in range(1000):
            self.store.bound(4, f"comm://{number}/" + "x" * 2000, 1)
        self.refusal()
        for number in range(1000):
            self.store.bound(4, f"comm://more/{number}", 1)

        self.assertLess(95_000, self.store.noted_bytes)
        self.assertLessEqual(self.store.noted_bytes, self.most)
        self.make_room()
        self.clock.advance(RETRY_SECONDS)
        self.assertEqual((0, ""), (self.store.noted_bytes, self.store.failing))

    def test_too_much_while_full(self) -> None:
        """
        A disk that has room again does not make settled what was dropped before.
        """
        self.fill()
        self.note_much()
        self.refusal()
        self.most = self.store.noted_bytes
        self.store.bound(6, "comm://one-too-many", 1)
        done = self.store.committed()
        self.make_room()

        self.clock.advance(RETRY_SECONDS)

        self.failureResultOf(done, Rejected)

    def test_failed_write_leaves_no_transaction_open(self) -> None:
        """
        What SQLite cannot take at all leaves no transaction open behind it.
        """
        self.store.bound(1, "comm://\ud800", 1)

        self.refusal()

        with closing(sqlite3.connect(self.directory / NAME, timeout=0, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # raises while somebody else has begun to write


class FileTests(StoreTests):
    """
    The file is not as this node would write it.
    """

    def setUp(self) -> None:
        super().setUp()
        self.path = self.directory / NAME
        for sid in range(1, 2001):
            self.store.bound(sid, f"comm://example.org/{sid}", 1)
        self.commit()
        self.store.shut()

    def refused(self) -> str:
        """
        Why the node does not start; always with the file and the command that helps.
        """
        why = str(self.assertRaises(ConfigError, self.start))
        self.assertIn(str(self.path), why)
        self.assertIn(f"'msgnode state repair {self.directory}' moves it aside", why)
        self.assertNotIn("\n", why)
        return why

    def alter(self, text: str) -> None:
        database = sqlite3.connect(self.path)
        with database:
            database.execute(text)
        database.close()

    def test_file_that_is_none_of_sqlite_stops_the_start(self) -> None:
        """
        A file that is none of SQLite's stops the start.
        """
        self.path.write_bytes(b"hello" * 1000)

        self.assertIn("not a database", self.refused())

    def test_page_that_was_overwritten_stops_the_start(self) -> None:
        """
        A page that was overwritten stops the start.
        """
        with self.path.open("r+b") as file:
            file.seek(self.path.stat().st_size - 3 * 4096)
            file.write(b"\xff" * 4096)

        self.refused()

    def test_file_that_lost_its_end_stops_the_start(self) -> None:
        """
        A file that lost its end stops the start.
        """
        os.truncate(self.path, self.path.stat().st_size - 4096)

        self.refused()

    def test_wherever_a_file_ends_too_soon_the_start_says(self) -> None:
        """
        Wherever a file ends too soon the start says so: never does a node begin with half of it.
        """
        whole = self.path.read_bytes()
        for size in (1, 15, 100, 511, 512, 4095, *range(4096, len(whole), 4099)):
            self.path.write_bytes(whole[:size])

            self.refused()

    def test_stored_address_that_is_no_text_stops_the_start(self) -> None:
        """
        An address that is not text any more stops the start.
        """
        self.alter("UPDATE binding SET address = CAST(x'80ff' AS TEXT) WHERE sid = 1000")

        self.assertIn("Could not decode", self.refused())

    def test_directory_in_the_place_of_the_file_stops_the_start(self) -> None:
        """
        A directory in the place of the file stops the start.
        """
        self.path.unlink()
        self.path.mkdir()

        self.assertIn("Is a directory", self.refused())

    def test_state_directory_that_cannot_be_made_is_named(self) -> None:
        """
        A place where no directory can be made is named, and what to do.
        """
        self.path.unlink()
        self.path.write_text("")
        wrong = Store(self.path / "state", self.clock)

        why = str(self.assertRaises(ConfigError, wrong.open))

        self.assertIn(f"cannot write in {self.path / 'state'}", why)
        self.assertIn("name another directory, or none", why)

    def test_file_that_a_newer_node_wrote_stops_the_start(self) -> None:
        """
        A file that a newer node wrote stops the start, and stays as it is.
        """
        self.alter(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
        before = self.path.read_bytes()

        why = str(self.assertRaises(ConfigError, self.start))

        self.assertIn(f"{self.path}: was written by a newer msgnode", why)
        self.assertIn("start that version again, or restore a backup from before the upgrade", why)
        self.assertNotIn("repair", why)
        self.assertEqual(before, self.path.read_bytes())

    def test_older_database_is_brought_up_to_date(self) -> None:
        """
        A file of an older node is brought up to date, with all that is in it.
        """
        newer = "ALTER TABLE binding ADD COLUMN note TEXT NOT NULL DEFAULT ''; CREATE TABLE more (a) STRICT"
        newer = newer.replace("(a)", "(a INTEGER)")
        self.patch(database, "MIGRATIONS", (*MIGRATIONS, newer))

        _, found = self.start()

        self.assertEqual(2000, len(found[1]))
        connection = sqlite3.connect(self.path)
        self.addCleanup(connection.close)
        self.assertEqual((len(MIGRATIONS) + 1,), connection.execute("PRAGMA user_version").fetchone())
        self.assertEqual([], connection.execute("SELECT a FROM more").fetchall())

    def test_step_fails(self) -> None:
        """
        A step that fails midway leaves the older file untouched, for the older node.
        """
        self.patch(
            database, "MIGRATIONS", (*MIGRATIONS, "CREATE TABLE more (a INTEGER); CREATE TABLE session (b)")
        )
        self.refused()
        self.patch(database, "MIGRATIONS", MIGRATIONS)

        _, found = self.start()

        self.assertEqual(2000, len(found[1]))

    def test_refused_lets_go(self) -> None:
        """
        A start that was refused does not keep the directory.
        """
        self.path.write_bytes(b"hello" * 1000)
        self.refused()
        self.path.unlink()

        self.start()

    def test_two_nodes_never_share_a_directory(self) -> None:
        """
        Two nodes never share a directory; the second is told which, the first goes on.
        """
        self.store, _ = self.start()

        why = str(self.assertRaises(ConfigError, Store(self.directory, self.clock).open))

        self.assertEqual(f"state: another node uses {self.directory}", why)
        self.store.bound(1, "comm://after", 1)
        self.commit()


class KilledTests(SynchronousTestCase):
    """
    Another process writes, and is killed.
    """

    def test_node_that_is_killed_in_the_middle_of_its_commits(self) -> None:
        """
        A node that is killed in the middle of its commits has lost nothing that was settled, and
        of each commit there is all or nothing.
        """
        where = directory(self)
        for reports in (1, 7, 40):
            state = where / str(reports)
            said = self.settled_before_kill(state, reports)
            kept = Store(state, Clock())
            self.addCleanup(kept.shut)

            _, bindings, *_ = (list(rows) for rows in kept.open())

            numbers = [sid for sid, _, _ in bindings]
            self.assertEqual(list(range(1, len(numbers) + 1)), numbers)
            self.assertGreaterEqual(len(numbers), said)
            self.assertEqual(0, len(numbers) % 20)

    def settled_before_kill(self, state: Path, reports: int) -> int:
        """
        Let the writer report so many commits, then kill it; the last number it reported.
        """
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(state)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(HERE)},
        )
        assert writer.stdout is not None
        with writer:
            for _ in range(reports):
                writer.stdout.readline()
            writer.kill()
            rest = writer.stdout.read().split("\n")
        # The last line may have been cut in the middle.
        return int(rest[-2]) if len(rest) > 1 else reports * 20
