"""
The store: sessions, what is bound to them and their keys, in one SQLite file.

The node notes each change; all that were noted in the meantime are committed
together, in a thread, one commit after the other.  `settled` fires when what
was noted so far is in the file, and survives the end of the process; with
`full` also the end of the power.
"""

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.config import ConfigError
from msgnode.errors import Rejected
from msgnode.session import Session

log = Logger()

NAME = "state.sqlite"
SMALLEST = 512  # bytes of a page; SQLite takes a file with less in it for a new one
AGAIN = 1.0  # seconds until a commit that failed is tried again
MOST_NOTED = 1_000_000  # changes that wait for a disk that takes nothing

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
)

OPEN = "INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?, ?, ?, NULL)"
CHANGE = "UPDATE session SET token = ?, used = ?, identity = ? WHERE sid = ?"
PROVE = "INSERT OR REPLACE INTO proof VALUES (?, ?)"
LEAVE = "UPDATE session SET since = ? WHERE sid = ?"
END = "DELETE FROM session WHERE sid = ?"
UNPROVE = "DELETE FROM proof WHERE sid = ?"
UNBIND_ALL = "DELETE FROM binding WHERE sid = ?"
UNKEY_ALL = "DELETE FROM key WHERE sid = ?"
BIND = "INSERT OR REPLACE INTO binding VALUES (?, ?, ?)"
UNBIND = "DELETE FROM binding WHERE sid = ? AND address = ?"
KEY = "INSERT OR REPLACE INTO key VALUES (?, ?, ?)"
REGISTER = "INSERT OR REPLACE INTO registered VALUES (?, ?)"
UNREGISTER = "DELETE FROM registered WHERE sid = ? AND address = ?"
UNKEY = "DELETE FROM key WHERE sid = ? AND address = ?"

COLUMNS = {
    "session": ("sid", "runtime", "token", "anonymous", "used", "identity", "since"),
    "binding": ("sid", "address", "kinds"),
    "key": ("sid", "address", "key"),
    "registered": ("sid", "address"),
    "proof": ("sid", "proof"),
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


class Store(Service):
    """
    The Keeping of a node with a state directory; `run` may use a thread.

    `changes` counts what was noted; `failing` says why nothing can be written now.
    """

    def __init__(
        self,
        directory: Path,
        clock: IReactorTime,
        run: Callable[..., Deferred[None]] = maybeDeferred,
        full: bool = False,
    ) -> None:
        self.changes = 0
        self.failing = ""
        self.path = directory / NAME
        self._directory = directory
        self._clock = clock
        self._run = run
        self._full = full
        self._noted: list[Change] = []
        self._dropped = 0  # changes that found MOST_NOTED waiting
        self._waiting: list[Deferred[None]] = []  # for the commit after the one under way
        self._committing: Deferred[None] | None = None
        self._scheduled = False
        self._database: sqlite3.Connection | None = None
        self._lock: int | None = None

    # -- starting and stopping -----------------------------------------------

    def open(self) -> Loaded:
        """
        The file, made or brought up to date, and what is in it.  ConfigError says why not.
        """
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = lock(self._directory)
        except BlockingIOError:
            raise ConfigError(f"state: another node uses {self._directory}") from None
        except OSError as why:
            where = f"state: cannot write in {self._directory}"
            raise ConfigError(f"{where}: {why.strerror}; name another directory, or none") from why
        try:
            self._database = connect(self.path, self._full)
        except (sqlite3.DatabaseError, OSError) as why:
            self.shut()
            raise self._damaged(why) from why
        return Loaded(*map(self._readable, load(self._database)))

    def _readable(self, rows: Iterable[Any]) -> Iterator[Any]:
        try:
            yield from rows
        except sqlite3.DatabaseError as why:
            raise self._damaged(why) from why

    def _damaged(self, why: Exception) -> ConfigError:
        what = why.strerror if isinstance(why, OSError) else why
        repair = f"'msgnode state repair {self._directory}' moves it aside and keeps what can be read"
        return ConfigError(f"{self.path}: {what}; {repair}")

    def stopService(self) -> Deferred[None]:
        """
        Commit what is noted.
        """
        super().stopService()
        done = self.settled() if self._database is not None else succeed(None)
        done.addErrback(lambda why: log.error("state was lost: {why}", why=why.getErrorMessage()))
        return done.addBoth(lambda _: self.shut())

    def shut(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # -- the Keeping -----------------------------------------------------------

    def opened(self, session: Session) -> None:
        who = (session.sid, session.runtime, session.token_hash, session.anonymous, session.used)
        self._note(OPEN, (*who, session.identity))

    def changed(self, session: Session) -> None:
        self._note(CHANGE, (session.token_hash, session.used, session.identity, session.sid))
        if session.proof is not None:
            self._note(PROVE, (session.sid, session.proof.encoded()))

    def left(self, session: Session, when: float | None) -> None:
        self._note(LEAVE, (when, session.sid))

    def ended(self, session: Session) -> None:
        for statement in (END, UNBIND_ALL, UNKEY_ALL, UNPROVE):
            self._note(statement, (session.sid,))

    def bound(self, sid: int, address: str, kinds: int) -> None:
        if kinds:
            self._note(BIND, (sid, address, kinds))
        else:
            self._note(UNBIND, (sid, address))

    def keyed(self, sid: int, key: str, addresses: Iterable[str]) -> None:
        for address in addresses:
            self._note(KEY, (sid, address, key))

    def unkeyed(self, sid: int, address: str) -> None:
        self._note(UNKEY, (sid, address))

    def registered(self, sid: int, url: str) -> None:
        self._note(REGISTER, (sid, url))

    def unregistered(self, sid: int, url: str) -> None:
        self._note(UNREGISTER, (sid, url))

    def settled(self) -> Deferred[None]:
        """
        Fires when all that was noted so far is committed; fails with Rejected (503) if the disk refuses.
        """
        if not self._noted and self._committing is None:
            return succeed(None)
        done: Deferred[None] = Deferred()
        self._waiting.append(done)
        if self._committing is None:
            self._schedule(0)
        return done

    # -- commits -----------------------------------------------------------------

    def _note(self, statement: str, values: tuple[Any, ...]) -> None:
        self.changes += 1
        if len(self._noted) < MOST_NOTED:
            self._noted.append((statement, values))
        else:
            self._dropped += 1
        if not self._scheduled and self._committing is None:
            self._schedule(0)

    def _schedule(self, delay: float) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._clock.callLater(delay, self._commit)

    def _commit(self) -> None:
        self._scheduled = False
        if self._committing is not None or self._database is None:
            return
        noted, self._noted = self._noted, []
        waiting, self._waiting = self._waiting, []
        dropped, self._dropped = self._dropped, 0
        self._committing = done = self._run(write, self._database, noted)
        done.addCallbacks(
            self._committed,
            self._refused,
            callbackArgs=(dropped, waiting),
            errbackArgs=(dropped, noted, waiting),
        )
        done.addErrback(lambda why: log.failure("committing", why))

    def _committed(self, done: None, dropped: int, waiting: list[Deferred[None]]) -> None:
        self._committing = None
        if self.failing:
            self.failing = ""
            log.info("{path} is written again", path=str(self.path))
        if self._noted or self._waiting:
            self._schedule(0)
        if dropped:
            log.error("{path}: {dropped} changes were too many to keep", path=str(self.path), dropped=dropped)
            self._tell(waiting, "too much waited to be written down")
            return
        for waiter in waiting:
            waiter.callback(None)

    def _refused(
        self, why: Failure, dropped: int, noted: list[Change], waiting: list[Deferred[None]]
    ) -> None:
        """
        What was noted is kept, and tried again; whoever waits is told.
        """
        self._committing = None
        self._noted = noted + self._noted
        self._dropped += dropped
        if not self.failing:
            log.error("{path} cannot be written: {why}", path=str(self.path), why=why.getErrorMessage())
        self.failing = why.getErrorMessage()
        waiting, self._waiting = waiting + self._waiting, []
        self._schedule(AGAIN)
        self._tell(waiting, self.failing)

    def _tell(self, waiting: list[Deferred[None]], why: str) -> None:
        for waiter in waiting:
            waiter.errback(Rejected(f"the node cannot write this down now: {why}", 503))


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
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    _see_whole(path)
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        database.execute("PRAGMA journal_mode = WAL")
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
    except sqlite3.Error:
        database.close()
        raise
    return database


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
        fresh.execute("COMMIT")
        return sum(fresh.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in COLUMNS)


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
