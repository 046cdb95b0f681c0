"""
The SQLite file of the session store: its schema, migrations, transactions, and salvage of a damaged file.

An older file is migrated when it is opened. A file of a newer version is refused.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

NAME = "state.sqlite"
MIN_FILE_BYTES = 512  # bytes of a page; SQLite takes a shorter file for a new one
# The error codes of a full disk. The second means that there is no room for the shared-memory file.
DISK_FULL_CODES = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_WRITE)

MAX_WAL_BYTES = 64 * 1024 * 1024  # bytes that SQLite's write-ahead log keeps after a checkpoint
MAX_FREE_PAGES = 4096  # free pages in the file; more are returned to the disk
PAGES_PER_COMMIT = 2048  # pages returned after each commit
INCREMENTAL = 2  # the value of auto_vacuum in files made since that is used

# Migrations. The version of a file is the number of steps that were applied to it.
MIGRATIONS = (
    """
    CREATE TABLE session (
        sid INTEGER PRIMARY KEY, runtime TEXT NOT NULL, token BLOB NOT NULL, anonymous INTEGER NOT NULL,
        used INTEGER NOT NULL, identity TEXT NOT NULL, since REAL
    ) STRICT;
    CREATE TABLE binding (
        sid INTEGER NOT NULL, address TEXT NOT NULL, kinds INTEGER NOT NULL, PRIMARY KEY (sid, address)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE key (
        sid INTEGER NOT NULL, address TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (sid, address)
    ) STRICT, WITHOUT ROWID;
    """,
    """
    CREATE TABLE registered (
        sid INTEGER NOT NULL, address TEXT NOT NULL, PRIMARY KEY (sid, address)
    ) STRICT, WITHOUT ROWID;
    """,
    "CREATE TABLE proof (sid INTEGER PRIMARY KEY, proof TEXT NOT NULL) STRICT",
    # Since this step an address has an owner (OWNED): the session that allocated it, else its only
    # subscriber.
    """
    UPDATE binding SET kinds = kinds | 8
    WHERE (kinds & 1 OR (kinds & 2
            AND address IN (SELECT address FROM binding GROUP BY address HAVING count(*) = 1)))
        AND address NOT GLOB '*/changes' AND address NOT GLOB '*/registration'
        AND address NOT GLOB '*/status' AND address NOT GLOB '*/children/*'
    """,
    "CREATE TABLE host (sid INTEGER PRIMARY KEY, host TEXT NOT NULL) STRICT",
)
OWNED_SINCE = 4  # the first version whose files record who owns an address

COLUMNS = {
    "session": ("sid", "runtime", "token", "anonymous", "used", "identity", "since"),
    "binding": ("sid", "address", "kinds"),
    "key": ("sid", "address", "key"),
    "registered": ("sid", "address"),
    "proof": ("sid", "proof"),
    "host": ("sid", "host"),
}

Change = tuple[str, tuple[Any, ...]]

# The advice to an operator whose node is older than its files.
DOWNGRADE = "start that version again, or restore a backup from before the upgrade (docs/upgrades.md)"


class NewerFile(sqlite3.DatabaseError):
    """
    A database that a newer version wrote.
    """

    def __init__(self, version: int) -> None:
        versions = f"version {version}, this one knows {len(MIGRATIONS)}"
        super().__init__(f"was written by a newer msgnode ({versions}); {DOWNGRADE}")


class Loaded(NamedTuple):
    """
    All rows in the file, as sessions are restored from them.
    """

    sessions: Iterable[tuple[int, str, bytes, bool, bool, str, float | None]]
    bindings: Iterable[tuple[int, str, int]]
    keys: Iterable[tuple[int, str, str]]
    registered: Iterable[tuple[int, str]] = ()
    proofs: Iterable[tuple[int, str]] = ()
    hosts: Iterable[tuple[int, str]] = ()


# Name of a directory that is in a state directory while `msgnode state restore` exchanges its files.
RESTORING = "restore-begun"
# Name of a directory in which it collects files, until all are there; the state is as it was until then.
UNFINISHED = "restore-unfinished"


def lock(directory: Path) -> int:
    """
    Lock the directory for this process, and return the lock's descriptor. BlockingIOError if another process
    has it.
    """
    file = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise
    return file


def connect(path: Path, full: bool = False) -> sqlite3.Connection:
    """
    Open the database; create or migrate it if needed. sqlite3.DatabaseError if it is damaged or of a newer
    version.

    On a full disk it is opened in exclusive mode, which needs no shared-memory file.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    _see_whole(path)
    try:
        return _connect(path, full)
    except sqlite3.OperationalError as why:
        if not is_full(why):
            raise
    return _connect(path, full, alone=True)


def is_full(why: Exception) -> bool:
    """
    Is a full disk the only reason for this error?
    """
    return getattr(why, "sqlite_errorcode", None) in DISK_FULL_CODES


def _connect(path: Path, full: bool, alone: bool = False) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        if alone:
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
        if not database.execute("PRAGMA page_count").fetchone()[0]:
            database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(f"PRAGMA journal_size_limit = {MAX_WAL_BYTES}")
        database.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise NewerFile(version)
        if 0 < version < len(MIGRATIONS):
            _copy_before(path, database, version)
        for number, step in enumerate(MIGRATIONS[version:], version + 1):
            database.executescript(f"BEGIN; {step}; PRAGMA user_version = {number}; COMMIT")
        (problem,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if problem != "ok":
            raise sqlite3.DatabaseError(_in_a_line(problem))
        if not alone:
            _give_back(database)
    except sqlite3.Error:
        database.close()
        raise
    return database


def _copy_before(path: Path, database: sqlite3.Connection, version: int) -> None:
    """
    Keep a copy of the file as the older version wrote it, `state.sqlite.v<version>`.
    """
    copy = path.with_name(f"{path.name}.v{version}")
    unfinished = copy.with_name(f"{copy.name}.new")
    unfinished.unlink(missing_ok=True)
    os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    database.execute("VACUUM INTO ?", (str(unfinished),))
    unfinished.replace(copy)


def _give_back(database: sqlite3.Connection) -> None:
    """
    Rewrite a file from before incremental vacuum if most of it is free pages. Without room on the disk, do
    nothing.
    """
    pages, free, kind = (
        database.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "auto_vacuum")
    )
    if kind != INCREMENTAL and free > MAX_FREE_PAGES and 2 * free > pages:
        with suppress(sqlite3.OperationalError):  # no room for it
            database.execute("PRAGMA auto_vacuum = INCREMENTAL")
            database.execute("VACUUM")


def _see_whole(path: Path) -> None:
    size = path.stat().st_size
    if 0 < size < MIN_FILE_BYTES:
        raise sqlite3.DatabaseError(f"is cut off after {size} bytes")


def _in_a_line(problem: str) -> str:
    return problem.removeprefix("*** in database main ***").strip().replace("\n", "; ")


def load(database: sqlite3.Connection) -> Loaded:
    """
    All rows, as iterators that read on demand.
    """
    return Loaded(
        database.execute("SELECT sid, runtime, token, anonymous, used, identity, since FROM session"),
        database.execute("SELECT sid, address, kinds FROM binding"),
        database.execute("SELECT sid, key, address FROM key"),
        database.execute("SELECT sid, address FROM registered"),
        database.execute("SELECT sid, proof FROM proof"),
        database.execute("SELECT sid, host FROM host"),
    )


def write(database: sqlite3.Connection, noted: list[Change]) -> None:
    """
    Write the changes as one transaction. Runs in a thread.
    """
    database.execute("BEGIN IMMEDIATE")
    try:
        for statement, changes in groupby(noted, lambda change: change[0]):
            database.executemany(statement, _values(changes))
        database.execute("COMMIT")
    except BaseException:
        # An open transaction would refuse all that follow, whatever the error was.
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
    tidy(database)


def tidy(database: sqlite3.Connection) -> None:
    """
    Return some free pages to the disk, if there are many.
    """
    if database.execute("PRAGMA freelist_count").fetchone()[0] > MAX_FREE_PAGES:
        with suppress(sqlite3.OperationalError):  # the commit itself succeeded
            database.executescript(f"PRAGMA incremental_vacuum({PAGES_PER_COMMIT})")  # execute stops at a row


def _values(changes: Iterable[Change]) -> Iterator[tuple[Any, ...]]:
    return (values for _, values in changes)


def examine_database(path: Path) -> list[str]:
    """
    Descriptions of all damage in the file. Nothing is changed.
    """
    if not path.exists():
        return []
    try:
        _see_whole(path)
        # The write-ahead log that a killed node left is read too. Without one, SQLite must not create it.
        how = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
        database = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)
        try:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version > len(MIGRATIONS):
                return [f"{path}: {NewerFile(version)}"]
            found = [text for (text,) in database.execute("PRAGMA integrity_check(3)") if text != "ok"]
            if version == len(MIGRATIONS) and not found:
                for rows in load(database):
                    for _ in rows:
                        pass  # integrity_check does not decode texts
            return [f"{path}: {_in_a_line(text)}" for text in found]
        finally:
            database.close()
    except sqlite3.DatabaseError as why:
        return [f"{path}: {why}"]


def is_newer(path: Path) -> bool:
    """
    Was the file written by a newer version?
    """
    with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(path)) as database:
        return int(database.execute("PRAGMA user_version").fetchone()[0]) > len(MIGRATIONS)
    return False


def salvage(damaged: Path, path: Path) -> int:
    """
    Copy the readable rows of a damaged file into a new one. Returns the number of rows.
    """
    with closing(connect(path)) as fresh:
        fresh.execute("BEGIN")
        for table, columns in COLUMNS.items():
            names, marks = ", ".join(columns), ", ".join("?" * len(columns))
            insert = f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})"
            for row in _both_ways(damaged, f"SELECT {names} FROM {table}"):
                with suppress(sqlite3.IntegrityError):  # readable, but invalid
                    fresh.execute(insert, row)
        if _version(damaged) < OWNED_SINCE:
            fresh.execute(MIGRATIONS[OWNED_SINCE - 1])
        fresh.execute("COMMIT")
        return sum(fresh.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in COLUMNS)


def _version(damaged: Path) -> int:
    """
    The version of a damaged file. If that cannot be read, the newest, so that no owner is guessed.
    """
    with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(damaged)) as database:
        return int(database.execute("PRAGMA user_version").fetchone()[0])
    return len(MIGRATIONS)


def _both_ways(damaged: Path, select: str) -> Iterator[tuple[Any, ...]]:
    """
    The rows before the damage, then those after it.
    """
    for order in ("ASC", "DESC"):
        try:
            with closing(sqlite3.connect(damaged)) as database:
                yield from database.execute(f"{select} ORDER BY sid {order}")
            return
        except sqlite3.DatabaseError:
            continue
