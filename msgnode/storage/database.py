"""
The file of the store: its tables, how it is opened and written, and what can be saved of a damaged one.

An older file is brought up to date; a newer one is left alone.
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
SMALLEST = 512  # bytes of a page; SQLite takes a file with less in it for a new one
# What SQLite says of a full disk; the second where it cannot make the file that processes would share.
FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_WRITE)

MAX_LOG = 64 * 1024 * 1024  # bytes that SQLite's log keeps once it was moved into the file
MAX_FREE = 4096  # pages that may be empty; more are given back to the disk,
AT_ONCE = 2048  # so many after each commit
INCREMENTAL = 2  # what auto_vacuum says where that is possible

# The file's version is the number of steps it has been through.
STEPS = (
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
    # Addresses have owners (routes.OWNED): who was allocated one, else its only subscriber.
    """
    UPDATE binding SET kinds = kinds | 8
    WHERE (kinds & 1 OR (kinds & 2
            AND address IN (SELECT address FROM binding GROUP BY address HAVING count(*) = 1)))
        AND address NOT GLOB '*/changes' AND address NOT GLOB '*/registration'
        AND address NOT GLOB '*/status' AND address NOT GLOB '*/children/*'
    """,
    "CREATE TABLE host (sid INTEGER PRIMARY KEY, host TEXT NOT NULL) STRICT",
)
OWNED_SINCE = 4  # the version from which on the file itself says who owns an address

COLUMNS = {
    "session": ("sid", "runtime", "token", "anonymous", "used", "identity", "since"),
    "binding": ("sid", "address", "kinds"),
    "key": ("sid", "address", "key"),
    "registered": ("sid", "address"),
    "proof": ("sid", "proof"),
    "host": ("sid", "host"),
}

Change = tuple[str, tuple[Any, ...]]


class Loaded(NamedTuple):
    """
    Everything in the file: what restore.Rows asks for.
    """

    sessions: Iterable[tuple[int, str, bytes, bool, bool, str, float | None]]
    bindings: Iterable[tuple[int, str, int]]
    keys: Iterable[tuple[int, str, str]]
    registered: Iterable[tuple[int, str]] = ()
    proofs: Iterable[tuple[int, str]] = ()
    hosts: Iterable[tuple[int, str]] = ()


def lock(directory: Path) -> int:
    """
    Take the directory for this process; BlockingIOError if another one has it.
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
    The database, made or brought up to date.  sqlite3.DatabaseError if it is none, or a newer one.

    On a disk that is full it is kept for this process alone, which takes no room.
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
    Does SQLite only say that the disk is full?
    """
    return getattr(why, "sqlite_errorcode", None) in FULL


def _connect(path: Path, full: bool, alone: bool = False) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        if alone:
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
        if not database.execute("PRAGMA page_count").fetchone()[0]:
            database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(f"PRAGMA journal_size_limit = {MAX_LOG}")
        database.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version > len(STEPS):
            raise sqlite3.DatabaseError(
                f"was written by a newer msgnode (version {version}, this one knows {len(STEPS)})"
            )
        for number, step in enumerate(STEPS[version:], version + 1):
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


def _give_back(database: sqlite3.Connection) -> None:
    """
    A file of before this was done by itself, and most of which is empty, is written anew; it can wait.
    """
    pages, free, kind = (
        database.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "auto_vacuum")
    )
    if kind != INCREMENTAL and free > MAX_FREE and 2 * free > pages:
        with suppress(sqlite3.OperationalError):  # no room for it
            database.execute("PRAGMA auto_vacuum = INCREMENTAL")
            database.execute("VACUUM")


def _see_whole(path: Path) -> None:
    size = path.stat().st_size
    if 0 < size < SMALLEST:
        raise sqlite3.DatabaseError(f"is cut off after {size} bytes")


def _in_a_line(problem: str) -> str:
    return problem.removeprefix("*** in database main ***").strip().replace("\n", "; ")


def load(database: sqlite3.Connection) -> Loaded:
    """
    All rows, read as they are asked for.
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
    One transaction; in a thread.
    """
    database.execute("BEGIN IMMEDIATE")
    try:
        for statement, changes in groupby(noted, lambda change: change[0]):
            database.executemany(statement, _values(changes))
        database.execute("COMMIT")
    except BaseException:
        # Whatever it was: a transaction left open would refuse all that follow.
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
    tidy(database)


def tidy(database: sqlite3.Connection) -> None:
    """
    Give back to the disk some of what is empty, if that is much.
    """
    if database.execute("PRAGMA freelist_count").fetchone()[0] > MAX_FREE:
        with suppress(sqlite3.OperationalError):  # what was committed is there all the same
            database.executescript(f"PRAGMA incremental_vacuum({AT_ONCE})")  # execute stops at the first


def _values(changes: Iterable[Change]) -> Iterator[tuple[Any, ...]]:
    return (values for _, values in changes)


def examine_database(path: Path) -> list[str]:
    """
    What is wrong with the file, in words; nothing is changed.
    """
    if not path.exists():
        return []
    try:
        _see_whole(path)
        # Files that a killed node left beside it are read too; else none are made.
        how = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
        database = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)
        try:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version > len(STEPS):
                return [f"{path}: was written by a newer msgnode (version {version})"]
            found = [text for (text,) in database.execute("PRAGMA integrity_check(3)") if text != "ok"]
            if version == len(STEPS) and not found:
                for rows in load(database):
                    for _ in rows:
                        pass  # the check does not look at what a text holds
            return [f"{path}: {_in_a_line(text)}" for text in found]
        finally:
            database.close()
    except sqlite3.DatabaseError as why:
        return [f"{path}: {why}"]


def salvage(damaged: Path, path: Path) -> int:
    """
    Copy what can still be read of a damaged file into a fresh one; how many rows.
    """
    with closing(connect(path)) as fresh:
        fresh.execute("BEGIN")
        for table, columns in COLUMNS.items():
            names, marks = ", ".join(columns), ", ".join("?" * len(columns))
            insert = f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})"
            for row in _both_ways(damaged, f"SELECT {names} FROM {table}"):
                with suppress(sqlite3.IntegrityError):  # read, but nonsense
                    fresh.execute(insert, row)
        if _version(damaged) < OWNED_SINCE:
            fresh.execute(STEPS[OWNED_SINCE - 1])
        fresh.execute("COMMIT")
        return sum(fresh.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in COLUMNS)


def _version(damaged: Path) -> int:
    """
    Of the file; the newest where that cannot be read, so that nothing is given to anybody.
    """
    with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(damaged)) as database:
        return int(database.execute("PRAGMA user_version").fetchone()[0])
    return len(STEPS)


def _both_ways(damaged: Path, select: str) -> Iterator[tuple[Any, ...]]:
    """
    The rows before the damage, and those behind it.
    """
    for order in ("ASC", "DESC"):
        try:
            with closing(sqlite3.connect(damaged)) as database:
                yield from database.execute(f"{select} ORDER BY sid {order}")
            return
        except sqlite3.DatabaseError:
            continue
