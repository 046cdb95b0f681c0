"""
`msgnode state`: it says what is wrong on disk, and keeps what can be kept.
"""

import json
import os
import resource
import shutil
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from click.testing import CliRunner, Result
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.cli.main import main
from msgnode.storage.database import MIGRATIONS, NAME
from msgnode.storage.session_store import Store
from msgnode.storage.spool import Spool
from tests.support.fakes import directory

SESSIONS = 2000


@cache
def state() -> TemporaryDirectory[str]:
    """
    What a node left behind; made once, since each test looks at a copy.
    """
    made = TemporaryDirectory()
    clock = Clock()
    store = Store(Path(made.name), clock)
    list(store.open())
    for sid in range(1, SESSIONS + 1):
        runtime = f"runtime://example.org/{sid}"
        store.opened(
            SimpleNamespace(  # of a session, what is kept
                sid=sid,
                runtime=runtime,
                token_hash=b"x" * 32,
                anonymous=False,
                used=True,
                identity="",
                proof=None,
                host="",
            )
        )
        store.bound(sid, f"comm://example.org/{sid}", 1)
        store.keyed(sid, "key", [f"comm://example.org/{sid}"])
    store.committed()
    clock.advance(0)
    store.shut()
    spool = Spool(Path(made.name, "spool"))
    spool.open()
    for key in range(3):
        spool.append(1, key, b"hello" * 100, float("inf"), 5, 0, 0)
        spool.flush()
    spool.close()
    return made


class StateTests(SynchronousTestCase):
    """
    The state of a node that is stopped: sessions, an address and a key for each, and what one is owed.
    """

    def setUp(self) -> None:
        self.directory = directory(self)
        shutil.copytree(state().name, self.directory, dirs_exist_ok=True)
        self.path = self.directory / NAME
        self.clock = Clock()
        (self.segment,) = (self.directory / "spool").glob("*.seg")

    def start(self) -> tuple[Store, list[list[Any]]]:
        """
        A node's store on the directory, and the rows it found.
        """
        made = Store(self.directory, self.clock)
        self.addCleanup(made.shut)
        return made, [list(rows) for rows in made.open()]

    def run_command(self, *words: str) -> Result:
        return CliRunner().invoke(main, ["state", *words, str(self.directory)])

    def damage(self, pages: int = 1) -> None:
        """
        Overwrite pages in the middle of the file.
        """
        middle = self.path.stat().st_size // 4096 // 2 * 4096
        with self.path.open("r+b") as file:
            file.seek(middle)
            file.write(b"\xff" * 4096 * pages)

    def files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.directory)): path.read_bytes()
            for path in self.directory.rglob("*")
            if path.is_file()
        }

    def aside(self, name: str = NAME) -> list[Path]:
        return list(self.directory.rglob(f"{name}.damaged-*"))


class CheckTests(StateTests):
    """
    `msgnode state check`.
    """

    def test_what_a_node_left_behind_is_sound(self) -> None:
        """
        What a node left behind is sound.
        """
        result = self.run_command("check")

        self.assertEqual((0, f"{self.directory}: ok\n"), (result.exit_code, result.output))

    def test_what_a_killed_node_left_behind_is_sound_too(self) -> None:
        """
        What a killed node left behind is sound too.
        """
        made, _ = self.start()
        made.bound(1, "comm://last", 1)
        self.clock.advance(0)
        copy = directory(self)
        for path in self.directory.iterdir():  # as it lies there while the node has not closed it
            if path.is_file():
                (copy / path.name).write_bytes(path.read_bytes())

        result = CliRunner().invoke(main, ["state", "check", str(copy)])

        self.assertTrue((copy / f"{NAME}-wal").stat().st_size)
        self.assertEqual((0, f"{copy}: ok\n"), (result.exit_code, result.output))

    def test_programs_get_the_same_as_json(self) -> None:
        """
        Programs get the same as JSON.
        """
        result = self.run_command("check", "--json")

        self.assertEqual({"ok": True, "problems": []}, json.loads(result.output))

    def test_damaged_database_is_named_with_the_command(self) -> None:
        """
        A damaged database is named, with the command that helps; the exit code is 1.
        """
        self.damage()

        result = self.run_command("check")

        self.assertEqual(1, result.exit_code)
        self.assertIn(f"{self.path}: ", result.output)
        self.assertIn(f"'msgnode state repair {self.directory}'", result.output)

    def test_damaged_json(self) -> None:
        """
        In JSON, each thing that is wrong is a text of one line.
        """
        self.damage()

        said = json.loads(self.run_command("check", "--json").output)

        self.assertFalse(said["ok"])
        self.assertTrue(said["problems"])
        self.assertNotIn("\n", "".join(said["problems"]))

    def test_state_check_finds_unreadable_text(self) -> None:
        """
        A text that is none any more is found, wherever it is.
        """
        database = sqlite3.connect(self.path)
        with database:
            database.execute("UPDATE key SET key = CAST(x'80ff' AS TEXT) WHERE sid = 1500")
        database.close()

        result = self.run_command("check")

        self.assertEqual(1, result.exit_code)
        self.assertIn("Could not decode", result.output)

    def test_database_of_which_only_the_first_bytes_are_left(self) -> None:
        """
        A database of which only the first bytes are left is not called sound.
        """
        os.truncate(self.path, 100)

        self.assertEqual(1, self.run_command("check").exit_code)

    def test_database_of_a_newer_node_is_not_called_sound(self) -> None:
        """
        A database of a newer node is not called sound.
        """
        database = sqlite3.connect(self.path)
        database.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
        database.close()

        result = self.run_command("check")

        self.assertEqual(1, result.exit_code)
        self.assertIn("was written by a newer msgnode", result.output)

    def test_state_check_names_a_damaged_spool_file(self) -> None:
        """
        A damaged file of the spool is named.
        """
        self.segment.write_bytes(b"hello")

        result = self.run_command("check")

        self.assertEqual(1, result.exit_code)
        self.assertIn(f"{self.segment}: ", result.output)

    def test_changes_nothing(self) -> None:
        """
        Looking changes nothing, whether all is well or not.
        """
        for spoil in (lambda: None, self.damage):
            spoil()
            before = self.files()

            self.run_command("check")

            self.assertEqual(before, self.files())

    def test_state_directory_may_have_any_name(self) -> None:
        """
        A directory may have any name.
        """
        odd = self.directory / "a#b?c%20d"
        odd.mkdir()
        (odd / NAME).write_bytes(b"hello" * 1000)

        result = CliRunner().invoke(main, ["state", "check", str(odd)])

        self.assertEqual(1, result.exit_code)
        self.assertEqual([NAME], os.listdir(odd))

    def test_directory_that_no_node_has_used_is_sound(self) -> None:
        """
        A directory that no node has used is sound.
        """
        result = CliRunner().invoke(main, ["state", "check", str(directory(self))])

        self.assertEqual(0, result.exit_code)

    def test_no_directory(self) -> None:
        """
        A directory that is not there is a mistake of who asks: exit code 2.
        """
        for command in ("check", "repair"):
            result = CliRunner().invoke(main, ["state", command, str(self.directory / "none")])

            self.assertEqual(2, result.exit_code)
            self.assertIn(f"{self.directory / 'none'}: is not a directory", result.stderr)

    def test_running(self) -> None:
        """
        Neither command touches the directory of a node that runs.
        """
        self.start()
        before = self.files()

        for words in (["check"], ["repair"], ["check", "--json"], ["repair", "--json"]):
            result = self.run_command(*words)

            self.assertEqual(1, result.exit_code)
            self.assertIn(f"a node uses {self.directory}; stop it first", result.stdout + result.stderr)
        self.assertEqual(before, self.files())


class RepairTests(StateTests):
    """
    `msgnode state repair`.
    """

    def test_what_is_sound_is_left_alone(self) -> None:
        """
        What is sound is left alone.
        """
        before = self.files()

        result = self.run_command("repair")

        self.assertEqual((0, f"{self.directory}: nothing to repair\n"), (result.exit_code, result.output))
        self.assertEqual(before, self.files())

    def test_of_a_database_with_a_damaged_page_all_else_is_kept(self) -> None:
        """
        Of a database with a damaged page all else is kept, and a node starts with it.
        """
        self.damage()

        result = self.run_command("repair")

        self.assertEqual(0, result.exit_code)
        self.assertEqual(0, self.run_command("check").exit_code)
        _, (sessions, bindings, keys, *_) = self.start()
        kept = len(sessions) + len(bindings) + len(keys)
        self.assertIn(f"{kept} rows could be kept", result.output)
        self.assertGreater(kept, 3 * SESSIONS * 0.95)

    def test_damaged_database_is_moved_aside_byte_for_byte(self) -> None:
        """
        The damaged file lies beside the new one, byte for byte, with the time in its name.
        """
        self.damage()
        damaged = self.path.read_bytes()

        result = self.run_command("repair")

        (aside,) = self.aside()
        self.assertRegex(aside.name, rf"^{NAME}\.damaged-\d{{8}}T\d{{6}}Z$")
        self.assertIn(f"{self.path}: moved to {aside.name}", result.output)
        self.assertEqual(damaged, aside.read_bytes())
        self.assertEqual(0o600, self.path.stat().st_mode & 0o777)

    def test_not_of_one_kind(self) -> None:
        """
        A text that is none any more costs its own row alone.
        """
        database = sqlite3.connect(self.path)
        with database:
            database.execute("UPDATE binding SET address = CAST(x'80ff' AS TEXT) WHERE sid = 1500")
        database.close()

        self.run_command("repair")

        _, (sessions, bindings, keys, *_) = self.start()
        self.assertEqual((SESSIONS, SESSIONS), (len(sessions), len(keys)))
        self.assertEqual(set(range(1, SESSIONS + 1)) - {1500}, {sid for sid, _, _ in bindings})

    def test_file_of_which_nothing_can_be_read_is_moved_aside(self) -> None:
        """
        A file of which nothing can be read is moved aside, and a node starts with nothing.
        """
        for spoil in (b"hello" * 1000, b"h"):
            self.path.write_bytes(spoil)

            result = self.run_command("repair")

            self.assertIn("0 rows could be kept", result.output)
            store, found = self.start()
            self.assertEqual([[]] * 6, found)
            store.shut()

    def test_directory_in_the_place_of_the_file_is_moved_aside(self) -> None:
        """
        A directory in the place of the file is moved aside too.
        """
        self.path.unlink()
        self.path.mkdir()

        self.assertEqual(0, self.run_command("repair").exit_code)

        self.start()

    def test_of_a_newer_node_file_is_kept_what_this_one(self) -> None:
        """
        Of a newer node's file is kept what this one understands, if that is asked for.
        """
        database = sqlite3.connect(self.path)
        database.executescript(
            f"ALTER TABLE binding ADD COLUMN note TEXT; PRAGMA user_version = {len(MIGRATIONS) + 1}"
        )
        database.close()

        self.run_command("repair", "--downgrade")

        _, found = self.start()
        self.assertEqual([SESSIONS] * 3, [len(rows) for rows in found[:3]])

    def test_state_repair_keeps_what_the_spool_can_read(self) -> None:
        """
        Of a damaged file of the spool what can be read is kept, and a node starts with it.
        """
        data = bytearray(self.segment.read_bytes())
        data[len(data) // 2] ^= 1
        self.segment.write_bytes(data)

        result = self.run_command("repair")

        self.assertEqual(0, result.exit_code)
        self.assertEqual([bytes(data)], [path.read_bytes() for path in self.aside(self.segment.name)])
        spool = Spool(self.directory / "spool")
        self.addCleanup(spool.close)
        self.assertEqual([0, 2], [note.key for note in spool.open()[1].kept])

    def test_programs_get_what_was_done_as_json(self) -> None:
        """
        Programs get what was done as JSON.
        """
        self.damage()

        said = json.loads(self.run_command("repair", "--json").output)

        self.assertTrue(said["ok"])
        self.assertEqual(1, len(said["done"]))

    def test_nothing_half(self) -> None:
        """
        A repair that cannot write leaves the damaged file where it is: a node never starts empty for it.
        """
        self.damage()
        damaged = self.path.read_bytes()
        (self.directory / f"{NAME}.new").mkdir()  # where the fresh file would be written

        result = self.run_command("repair")

        self.assertEqual(2, result.exit_code)
        self.assertIn(f"{NAME}.new", result.stderr)
        self.assertEqual(damaged, self.path.read_bytes())
        self.assertEqual(1, self.run_command("check").exit_code)

    def test_cut_off_repair(self) -> None:
        """
        Wherever a repair ends too soon, the file is there, damaged or repaired, and clients will be told.
        """
        for call in ("link", "replace"):
            shutil.rmtree(self.directory)
            shutil.copytree(state().name, self.directory)
            self.damage()
            (self.directory / f"{NAME}-wal").touch()

            self.cut_off_at(call)

            self.assertTrue(self.path.stat().st_size, call)
            self.assertTrue((self.directory / "spool" / "incomplete").exists(), call)
            self.assertEqual(0, self.run_command("repair").exit_code)
            self.assertEqual(0, self.run_command("check").exit_code)

    def cut_off_at(self, call: str) -> None:
        def cut_off(*args: object, **more: object) -> None:
            raise KeyboardInterrupt

        patched = self.patch(os, call, cut_off)
        self.assertNotEqual(0, self.run_command("repair").exit_code)
        patched.restore()

    def test_repair_without_room_leaves_the_damaged_file(self) -> None:
        """
        A repair that finds no room says so, and leaves the damaged file where it is.
        """
        self.damage()
        damaged = self.path.read_bytes()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_FSIZE, limits)
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, limits[1]))

        result = self.run_command("repair")

        self.assertEqual(2, result.exit_code)
        self.assertIn(f"msgnode: {self.directory}: ", result.stderr)
        self.assertEqual(damaged, self.path.read_bytes())


def test_state_of_a_newer_msgnode_is_not_repaired(tmp_path: Path) -> None:
    """
    After a downgrade nothing is moved aside: the newer version can go on with it.
    """
    path = tmp_path / NAME
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
        database.execute("CREATE TABLE session (a)")
    before = path.read_bytes()

    checked = CliRunner().invoke(main, ["state", "check", str(tmp_path)])
    repaired = CliRunner().invoke(main, ["state", "repair", str(tmp_path)])

    assert (1, 1) == (checked.exit_code, repaired.exit_code)
    for text in (checked.output, repaired.output):
        assert "was written by a newer msgnode" in text and "moves damaged files aside" not in text
    assert before == path.read_bytes()
    assert [NAME] == sorted(found.name for found in tmp_path.iterdir())
