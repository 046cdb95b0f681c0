"""
The SQLite file of both registries.

Statements run in the reactor's thread: each takes some microseconds, and does not wait for the disk, since it
only writes to SQLite's write-ahead log. Checkpoints, which do wait, run in a thread from time to time.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from msgnode.config.schema import ConfigError
from msgnode.storage.database import is_full

log = Logger()

TABLES = """
BEGIN;
CREATE TABLE IF NOT EXISTS record (
    kind TEXT NOT NULL, id TEXT NOT NULL, user TEXT, email TEXT, name TEXT, reporter TEXT,
    status TEXT NOT NULL, expires INTEGER NOT NULL, starting REAL NOT NULL, modified REAL NOT NULL,
    fields TEXT NOT NULL, PRIMARY KEY (kind, id)
) STRICT;
CREATE INDEX IF NOT EXISTS record_user ON record (user) WHERE user IS NOT NULL;
CREATE INDEX IF NOT EXISTS record_email ON record (email) WHERE email IS NOT NULL;
CREATE INDEX IF NOT EXISTS record_name ON record (name) WHERE name IS NOT NULL;
CREATE INDEX IF NOT EXISTS record_reporter ON record (reporter) WHERE reporter IS NOT NULL;
CREATE INDEX IF NOT EXISTS record_due ON record (modified + expires) WHERE status != 'disconnected';
CREATE TABLE IF NOT EXISTS updated (kind TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY (kind, id)) STRICT;
CREATE TABLE IF NOT EXISTS owner (guid TEXT PRIMARY KEY, user TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS graph (guid TEXT PRIMARY KEY, jwt TEXT NOT NULL) STRICT;
COMMIT;
"""
MAX_WAL_BYTES = 64 * 1024 * 1024  # bytes of the write-ahead log that are kept after a checkpoint
CHECKPOINT_SECONDS = 20.0  # seconds between two checkpoints


class NoRoom(ConfigError):
    """
    The disk has no room for the database.
    """


def connect(path: Path | str) -> sqlite3.Connection:
    """
    Open the database; create it if needed. ConfigError if it is unusable, NoRoom if the disk is full.

    On a full disk it is opened in exclusive mode, which needs no shared-memory file.
    """
    try:
        if path != ":memory:":
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        try:
            return _connect(path)
        except sqlite3.OperationalError as why:
            if not is_full(why):
                raise
        return _connect(path, alone=True)
    except (sqlite3.Error, OSError) as why:
        text = why.strerror if isinstance(why, OSError) else why
        if is_full(why):
            raise NoRoom(f"registry: {path} cannot be used: {text}; free some space on its disk") from why
        raise ConfigError(f"registry: {path} cannot be used: {text}; move it away, or name another") from why


def _connect(path: Path | str, alone: bool = False) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    try:
        if alone:
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
        if path == ":memory:" or not os.path.getsize(path):
            database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(f"PRAGMA journal_size_limit = {MAX_WAL_BYTES}")
        database.execute("PRAGMA synchronous = NORMAL")
        if not alone:
            database.execute("PRAGMA wal_autocheckpoint = 0")
        database.execute("PRAGMA busy_timeout = 1000")
        database.executescript(TABLES)
    except sqlite3.Error:
        database.close()
        raise
    return database


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """
    A transaction: all statements take effect, or none.
    """
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


class Checkpointer(Service):
    """
    A service that runs checkpoints on the file at `path`. `run` may use a thread.
    """

    def __init__(self, path: Path, run: Callable[..., Deferred[None]], clock: IReactorTime) -> None:
        self._path = path
        self._run = run
        self._beat = LoopingCall(self._move)
        self._beat.clock = clock

    def startService(self) -> None:
        super().startService()
        self._beat.start(CHECKPOINT_SECONDS, now=False)

    def stopService(self) -> Deferred[None]:
        super().stopService()
        if self._beat.running:
            self._beat.stop()
        return self._move()

    def move(self) -> None:
        """
        Run a checkpoint now, because much was written.
        """
        self._move()

    def _move(self) -> Deferred[None]:
        moved = self._run(run_checkpoint, self._path)
        return moved.addErrback(
            lambda why: log.error(
                "the checkpoint of {path} failed: {why}", path=str(self._path), why=why.getErrorMessage()
            )
        )


def run_checkpoint(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA busy_timeout = 1000")
        try:
            database.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except sqlite3.OperationalError as why:
            if why.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            # It is open in exclusive mode; then SQLite runs checkpoints by itself.
