"""
The backup of a running node, and what a node has that starts from it.
"""

import json
import resource
import shutil
import signal
from hashlib import sha256
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from twisted.internet.defer import maybeDeferred
from twisted.trial.unittest import SynchronousTestCase

from msgnode.cli.main import main
from msgnode.config.schema import ConfigError
from msgnode.storage.audit_log import AuditLog, mistakes, read_entries
from msgnode.storage.backup.hot_copy import Origin, take_snapshot, write_backup
from msgnode.storage.backup.manifest import FILE, BackupRefused, backups_in, read_manifest
from msgnode.storage.backup.restoring import restore_backup
from msgnode.storage.database import lock
from msgnode.storage.session_store import Store
from tests.support.durable import DurableNode, Refusing
from tests.support.fakes import Client, directory

CHAT = "comm://example.org/chat/changes"
ALICE, BOB = "runtime://example.org/alice", "runtime://example.org/bob"
ORIGIN = Origin("9.9", "example.org", "test")


class BackupCase(SynchronousTestCase):
    """
    A node with a state directory, and a directory for backups.
    """

    def setUp(self) -> None:
        work = directory(self)
        self.state, self.backups, self.restored = work / "state", work / "backups", work / "restored"
        self.node = self.start(self.state)

    def start(self, state: Path, **more: Any) -> DurableNode:
        node = DurableNode(state, **more)
        self.addCleanup(node.store.shut)
        self.addCleanup(node.spool.close)
        return node

    def back_up(self, keep: int = 7, wall: float = 1_800_000_000.0) -> Path:
        self.node.clock.advance(1)
        self.node.sessions.journal.settle(now=True)
        snapshot = take_snapshot(self.state, self.node.spool)
        return write_backup(snapshot, self.state, self.backups, keep, ORIGIN, wall=lambda: wall)[0]

    def subscriber(self) -> Client:
        """
        Bob, who subscribes, acknowledges, and goes away.
        """
        bob = self.node.client()
        bob.runtime = BOB
        bob.tell({"id": 1, "type": "open", "from": BOB, "to": "mn:/session", "body": {"resume": True}})
        self.opened = json.loads(bob.raw.pop(0))["body"]
        bob.post("domain://msg-node.example.org/sm", "subscribe", body={"resources": [CHAT]})
        self.node.clock.advance(1)
        bob.take()
        return bob

    def come_back(self, node: DurableNode, received: int = 1) -> tuple[Client, dict[str, Any]]:
        bob = node.client()
        bob.runtime = BOB
        resume = {"epoch": self.opened["resume"]["epoch"], "received": received}
        from_ = f"{BOB}/{self.opened['runtimeToken']}"
        bob.tell({"id": 1, "type": "re-open", "from": from_, "to": "mn:/session", "body": {"resume": resume}})
        node.clock.advance(1)
        return bob, json.loads(bob.raw.pop(0))["body"]

    def run_command(self, *arguments: object) -> Result:
        return CliRunner().invoke(main, [str(each) for each in ("state", "restore", *arguments)])


class BackupTests(BackupCase):
    """
    A backup has what a kill -9 at that moment would have left.
    """

    def test_a_restored_node_has_the_sessions_addresses_and_messages_of_the_backup(self) -> None:
        """
        A client comes back with its token, hears the address that it had subscribed, and gets what waited.
        """
        bob = self.subscriber()
        bob.drop()
        alice = self.node.client(ALICE)
        alice.post(CHAT, "update", body={"value": "before"})
        backup = self.back_up()
        alice.post(CHAT, "update", body={"value": "after"})

        restore_backup(backup, self.restored)
        node = self.start(self.restored)
        bob, answer = self.come_back(node)

        values = [json.loads(raw)["body"].get("value") for raw in bob.raw]
        self.assertEqual((200, ["before"]), (answer["code"], [value for value in values if value]))
        self.assertEqual([BOB], [session.runtime for session in node.routes.resolve(CHAT)])

    def test_a_client_learns_that_messages_may_be_missing_since_the_backup(self) -> None:
        """
        New numbers begin, so none of before the loss can be taken for one of after it.
        """
        self.subscriber()
        backup = self.back_up()

        restore_backup(backup, self.restored)
        _, answer = self.come_back(self.start(self.restored))

        resume = answer["resume"]
        self.assertEqual((None, False), (resume["missed"], resume["recovered"]))
        self.assertNotEqual(self.opened["resume"]["epoch"], resume["epoch"])

    def test_what_comes_after_the_snapshot_is_not_in_the_backup(self) -> None:
        """
        Database and spool are of one moment, though they are copied later.
        """
        self.subscriber()
        self.node.sessions.journal.settle(now=True)
        self.node.clock.advance(1)
        snapshot = take_snapshot(self.state, self.node.spool)
        self.node.client("runtime://example.org/late").post(CHAT, "update", body={"value": "late"})
        self.node.clock.advance(1)
        self.node.sessions.journal.settle(now=True)

        backup, _ = write_backup(snapshot, self.state, self.backups, 7, ORIGIN)

        restore_backup(backup, self.restored)
        runtimes = {session.runtime for session in self.start(self.restored).sessions}
        self.assertEqual({BOB}, runtimes)
        self.assertFalse(any(b"late" in path.read_bytes() for path in (backup / "spool").iterdir()))

    def test_segments_that_compaction_deletes_meanwhile_are_in_the_backup(self) -> None:
        """
        The node goes on as ever while a backup is copied.
        """
        self.subscriber()
        self.node.sessions.journal.settle(now=True)
        self.node.clock.advance(1)
        snapshot = take_snapshot(self.state, self.node.spool)
        for path in (self.state / "spool").glob("*.seg"):
            path.unlink()

        backup, manifest = write_backup(snapshot, self.state, self.backups, 7, ORIGIN)

        self.assertTrue([name for name in manifest.files if name.endswith(".seg")])
        restore_backup(backup, self.restored)
        self.assertEqual(200, self.come_back(self.start(self.restored))[1]["code"])

    def test_a_backup_has_no_tokens(self) -> None:
        """
        Nor locks, sockets and damaged files; but all else that the node keeps.
        """
        for name in ("admin-token", "admin-tokens", "x.lock", "state.sqlite.damaged-1", "links.json"):
            (self.state / name).write_text("{}")
        (self.state / "policy").mkdir()
        (self.state / "policy" / "1.json").write_text("{}")

        files = read_manifest(self.back_up()).files

        others = {name for name in files if not name.startswith("spool/")}
        self.assertEqual({"state.sqlite", "links.json", "policy/1.json"}, others)

    def test_keeps_the_newest_backups(self) -> None:
        """
        Each new backup deletes the oldest beyond the number; two in the same second have two names.
        """
        made = [
            self.back_up(keep=2, wall=wall).name for wall in (1_800_000_000, 1_800_000_060, 1_800_000_060)
        ]

        self.assertEqual(made[1:], [path.name for path in backups_in(self.backups)])
        self.assertEqual(3, len(set(made)))

    def test_the_backup_just_made_is_kept_when_the_clock_was_set_back(self) -> None:
        """
        Those of before have names of a later time.
        """
        for wall in (1_900_000_000, 1_900_000_060):
            self.back_up(keep=2, wall=wall)

        made = self.back_up(keep=2, wall=1_800_000_000)

        self.assertIn(made, backups_in(self.backups))
        self.assertEqual(2, len(backups_in(self.backups)))

    def test_nodes_with_one_directory_leave_each_other_their_backups(self) -> None:
        """
        Complete ones, and one that is being written.
        """
        first = self.back_up(keep=1)
        others = [self.backups / f"backup-20200101T00000{number}Z" for number in range(2)]
        for other in others:
            shutil.copytree(first, other)
            manifest = json.loads((other / FILE).read_text())
            (other / FILE).write_text(json.dumps({**manifest, "node": "other"}))
        writing = self.backups / "backup-20200101T000002Z.example.org.other.partial"
        shutil.copytree(others[0], writing)
        made = self.back_up(keep=1, wall=1_800_000_060)

        self.assertEqual([*others, made], backups_in(self.backups))
        self.assertTrue((writing / FILE).exists())

    def test_only_the_user_of_the_node_can_read_a_backup(self) -> None:
        """
        It has the messages that wait.
        """
        backup = self.back_up()

        modes = {path.stat().st_mode & 0o077 for path in [backup, *backup.rglob("*")]}
        self.assertEqual({0}, modes)

    def test_a_disk_without_room_is_refused_before_anything_is_written(self) -> None:
        """
        The reserve of the disk stays free.
        """
        snapshot = take_snapshot(self.state, self.node.spool)

        with self.assertRaisesRegex(
            BackupRefused, "are free, of which 1,152,921,504,606,846,976 stay reserved"
        ):
            write_backup(snapshot, self.state, self.backups, 7, ORIGIN, reserve=1 << 60)

        self.assertEqual([], list(self.backups.iterdir()))

    def test_a_backup_that_was_interrupted_is_removed_by_the_next(self) -> None:
        """
        What a killed node left does not count as a backup, and does not stay.
        """
        partial = self.backups / "backup-20200101T000000Z.example.org.test.partial"
        partial.mkdir(parents=True)
        (partial / "state.sqlite").write_text("half")

        backup = self.back_up()

        self.assertEqual([backup], list(self.backups.iterdir()))


class FailingDiskTests(BackupCase):
    """
    A node whose disk fails.
    """

    def start(self, state: Path, **more: Any) -> DurableNode:
        self.disk = Refusing()
        return super().start(state, disk=self.disk, **more)

    def test_no_backup_is_made_of_a_spool_that_cannot_be_written(self) -> None:
        """
        It would lack what the node has only in memory.
        """
        self.subscriber().drop()
        self.disk.full = True
        self.node.client(ALICE).post(CHAT, "update", body={"value": "x"})
        self.node.sessions.journal.settle(now=True)

        with self.assertRaisesRegex(BackupRefused, "the spool cannot be written now"):
            take_snapshot(self.state, self.node.spool)


class RestoreTests(BackupCase):
    """
    `msgnode state restore`: it restores a whole backup, or says why not and changes nothing.
    """

    def test_restores_into_a_new_directory(self) -> None:
        """
        And says whose it is and of when.
        """
        self.subscriber()

        done = self.run_command(self.back_up(), self.restored)

        self.assertEqual(0, done.exit_code, done.output)
        self.assertIn("of example.org, node test, 2027-01-15 08:00:00 UTC, msgnode 9.9", done.output)
        self.assertTrue((self.restored / "state.sqlite").is_file())

    def test_a_state_that_is_there_is_not_overwritten(self) -> None:
        """
        With --replace it is moved aside; tokens, locks and backups stay.
        """
        backup = self.back_up()
        self.restored.mkdir()
        (self.restored / "state.sqlite").write_text("precious")
        (self.restored / "admin-token").write_text("mna_x\n")

        refused = self.run_command(backup, self.restored)
        done = json.loads(self.run_command(backup, self.restored, "--replace", "--json").output)

        self.assertEqual(1, refused.exit_code)
        self.assertIn("is not empty; --replace moves what is there aside", refused.output)
        self.assertEqual("precious", Path(done["aside"], "state.sqlite").read_text())
        self.assertEqual("mna_x\n", (self.restored / "admin-token").read_text())

    def test_the_directory_of_a_running_node_is_refused(self) -> None:
        """
        It would be written over at the next commit.
        """
        backup = self.back_up()
        self.restored.mkdir()
        held = lock(self.restored)
        self.addCleanup(lambda: __import__("os").close(held))

        done = self.run_command(backup, self.restored, "--replace")

        self.assertEqual((1, True), (done.exit_code, "a node uses" in done.output))

    def test_a_damaged_backup_is_refused_with_the_name_of_the_file(self) -> None:
        """
        A changed byte, and a file that is missing; nothing is restored.
        """
        backup = self.back_up()
        path = next((backup / "spool").glob("*.seg"))
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)

        done = self.run_command(backup, self.restored)
        path.unlink()
        checked = self.run_command("--check", backup)

        self.assertIn(f"{path}: differs from what was written", done.output)
        self.assertIn(f"{path}: No such file or directory", checked.output)
        self.assertEqual((1, 1, False), (done.exit_code, checked.exit_code, self.restored.exists()))

    def test_a_directory_that_is_no_backup_is_refused(self) -> None:
        """
        For instance the state directory itself.
        """
        done = self.run_command(self.state, self.restored)

        self.assertIn(f"{self.state} is not a backup: it has no {FILE}", done.output)

    def test_a_backup_of_a_newer_msgnode_is_refused_in_words(self) -> None:
        """
        Its files may mean something else.
        """
        backup = self.back_up()
        manifest = json.loads((backup / FILE).read_text())
        (backup / FILE).write_text(json.dumps({**manifest, "format": 2}))

        done = self.run_command(backup, self.restored)

        self.assertIn(
            "this backup has format 2 and was made by a newer msgnode; this one knows format 1", done.output
        )

    def test_a_manifest_cannot_name_files_elsewhere(self) -> None:
        """
        A backup that somebody else made writes nothing outside the directory.
        """
        backup = self.back_up()
        manifest = json.loads((backup / FILE).read_text())
        manifest["files"]["../escaped"] = {"bytes": 0, "sha256": ""}
        (backup / FILE).write_text(json.dumps(manifest))

        done = self.run_command(backup, self.restored)

        self.assertIn("'../escaped' is not a name below the state directory", done.output)

    def test_no_node_starts_from_a_part_of_a_backup(self) -> None:
        """
        A restore was killed while it moved files: it has to be repeated first.
        """
        backup = self.back_up()
        restore_backup(backup, self.restored)
        (self.restored / "state.sqlite").unlink()
        (self.restored / "restore-begun").mkdir()

        with self.assertRaisesRegex(ConfigError, "was interrupted.*state restore --replace"):
            Store(self.restored, self.node.clock).open()
        done = self.run_command("--replace", backup, self.restored)

        self.assertEqual(0, done.exit_code, done.output)
        self.start(self.restored)

    def test_a_backup_cannot_bring_a_token(self) -> None:
        """
        What stays in a state directory is no part of a backup, though a manifest names it.
        """
        backup = self.back_up()
        (backup / "admin-token").write_text("mna_guess")
        manifest = json.loads((backup / FILE).read_text())
        manifest["files"]["admin-token"] = {"bytes": 9, "sha256": sha256(b"mna_guess").hexdigest()}
        (backup / FILE).write_text(json.dumps(manifest))

        done = self.run_command(backup, self.restored)

        self.assertIn("'admin-token' is no part of a backup", done.output)
        self.assertFalse((self.restored / "admin-token").exists())

    def test_a_restore_has_a_line_in_the_audit_log(self) -> None:
        """
        The log is that of before the restore, and its chain holds.
        """
        backup = self.back_up()
        log = AuditLog(self.restored, lambda: 1_800_000_000.0, maybeDeferred)
        self.successResultOf(log.write(action="ban"))

        restore_backup(backup, self.restored, replace=True)

        self.assertEqual((2, []), mistakes(self.restored / "audit"))
        [_, (_, _, entry)] = read_entries(self.restored / "audit")
        assert entry is not None
        self.assertEqual(("state restore", [str(backup)]), (entry["action"], entry["target"]))

    def test_a_restore_onto_a_full_disk_leaves_nothing(self) -> None:
        """
        Whether the disk is full before, or gets full meanwhile.
        """
        backup = self.back_up()
        with self.assertRaisesRegex(BackupRefused, "the backup needs [0-9,]+ bytes in .*, and 5 are free"):
            restore_backup(backup, self.restored, measure=lambda path: (10, 5, 5))
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        self.addCleanup(signal.signal, signal.SIGXFSZ, before)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_FSIZE, limit)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, limit[1]))
        self.assertRaises(BackupRefused, restore_backup, backup, self.restored)
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)

        self.assertEqual(["lock"], [path.name for path in self.restored.iterdir()])

    def test_a_node_removes_what_a_killed_restore_collected(self) -> None:
        """
        Its state is as it was before the restore.
        """
        (self.restored / "restore-unfinished" / "spool").mkdir(parents=True)

        store = Store(self.restored, self.node.clock)
        store.open()
        self.addCleanup(store.shut)

        self.assertFalse((self.restored / "restore-unfinished").exists())

    def test_a_restore_that_was_interrupted_can_be_repeated(self) -> None:
        """
        What it had collected is collected again.
        """
        backup = self.back_up()
        (self.restored / "restore-unfinished" / "spool").mkdir(parents=True)

        done = self.run_command(backup, self.restored)

        self.assertEqual((0, False), (done.exit_code, (self.restored / "restore-unfinished").exists()))
        shutil.rmtree(self.restored)
