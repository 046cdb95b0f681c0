"""
The session store: sessions, their bindings and allocation keys, in one SQLite file.

Group commit: changes are noted in memory, and all that were noted during one commit are written by the next,
in a thread. `committed` fires once everything noted so far is committed. A commit survives the end of the
process, and with `full` also a power failure.
"""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from sys import getsizeof
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.config.schema import ConfigError
from msgnode.protocol.errors import Rejected
from msgnode.sessions.persistence import SessionRecord
from msgnode.storage.database import (
    NAME,
    RESTORING,
    UNFINISHED,
    Change,
    Loaded,
    NewerFile,
    connect,
    is_full,
    load,
    lock,
    write,
)

log = Logger()

RETRY_SECONDS = 1.0  # seconds until a failed commit is repeated
MAX_NOTED_BYTES = 536_870_912  # default bound, in bytes, of changes that wait for a failing disk
MIN_NOTED_BYTES = 67_108_864  # less may be only a burst of changes on a healthy disk
CHANGE_OVERHEAD_BYTES = 128  # bytes of memory for a change, without its values

OPEN = "INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?, ?, ?, NULL)"
CHANGE = "UPDATE session SET token = ?, used = ?, identity = ? WHERE sid = ?"
PROVE = "INSERT OR REPLACE INTO proof VALUES (?, ?)"
LEAVE = "UPDATE session SET since = ? WHERE sid = ?"
END = "DELETE FROM session WHERE sid = ?"
UNPROVE = "DELETE FROM proof WHERE sid = ?"
FROM = "INSERT OR REPLACE INTO host VALUES (?, ?)"  # the host that opened it
UNFROM = "DELETE FROM host WHERE sid = ?"
UNBIND_ALL = "DELETE FROM binding WHERE sid = ?"
UNKEY_ALL = "DELETE FROM key WHERE sid = ?"
BIND = "INSERT OR REPLACE INTO binding VALUES (?, ?, ?)"
UNBIND = "DELETE FROM binding WHERE sid = ? AND address = ?"
KEY = "INSERT OR REPLACE INTO key VALUES (?, ?, ?)"
REGISTER = "INSERT OR REPLACE INTO registered VALUES (?, ?)"
UNREGISTER = "DELETE FROM registered WHERE sid = ? AND address = ?"
UNKEY = "DELETE FROM key WHERE sid = ? AND address = ?"
# A merge of two sessions: bindings, keys and registrations move to the other session.
MOVE = (
    "INSERT INTO binding SELECT ?, address, kinds FROM binding WHERE sid = ?"
    " ON CONFLICT (sid, address) DO UPDATE SET kinds = kinds | (excluded.kinds & 255)",
    "INSERT OR IGNORE INTO key SELECT ?, address, key FROM key WHERE sid = ?",
    "INSERT OR IGNORE INTO registered SELECT ?, address FROM registered WHERE sid = ?",
)
UNREGISTER_ALL = "DELETE FROM registered WHERE sid = ?"


class Store(Service):
    """
    The SessionStore of a node with a state directory. `run` calls a function, maybe in a thread.

    `changes` counts the changes noted; `failing` is the error while commits fail, else "". `noted_bytes` is
    the size of the changes that are not committed. Beyond `most` changes are dropped, and their waiters fail.
    """

    def __init__(
        self,
        directory: Path,
        clock: IReactorTime,
        run: Callable[..., Deferred[None]] = maybeDeferred,
        full: bool = False,
        most: Callable[[], int] = lambda: MAX_NOTED_BYTES,
    ) -> None:
        self.changes = 0
        self.failing = ""
        self.noted_bytes = 0
        self.path = directory / NAME
        self._directory = directory
        self._clock = clock
        self._run = run
        self._full = full
        self._noted: list[Change] = []
        self._most = most
        self._dropped = 0  # changes beyond the bound
        self._waiting: list[Deferred[None]] = []  # waiters for the commit after the current one
        self._committing: Deferred[None] | None = None
        self._scheduled = False
        self._database: sqlite3.Connection | None = None
        self._lock: int | None = None

    # -- starting and stopping -----------------------------------------------

    def open(self) -> Loaded:
        """
        Open the file, create or migrate it, and return its rows. ConfigError if that fails.

        On a disk without room for a new file, the node starts, and the first commit creates the file.
        """
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = lock(self._directory)
        except BlockingIOError:
            raise ConfigError(f"state: another node uses {self._directory}") from None
        except OSError as why:
            where = f"state: cannot write in {self._directory}"
            raise ConfigError(f"{where}: {why.strerror}; name another directory, or none") from why
        if (self._directory / RESTORING).exists():
            self.shut()
            again = "run 'msgnode state restore --replace' again"
            raise ConfigError(f"state: a restore of {self._directory} was interrupted; {again}")
        shutil.rmtree(self._directory / UNFINISHED, ignore_errors=True)  # of a restore that was killed
        try:
            self._database = connect(self.path, self._full)
        except (sqlite3.DatabaseError, OSError) as why:
            if is_full(why) and not self.path.stat().st_size:
                self.failing = str(why)
                return Loaded((), (), ())
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
        if is_full(why):
            return ConfigError(f"{self.path}: {what}; free some space on its disk")
        if isinstance(why, NewerFile):
            return ConfigError(f"{self.path}: {why}")
        repair = f"'msgnode state repair {self._directory}' moves it aside and keeps what can be read"
        return ConfigError(f"{self.path}: {what}; {repair}")

    def stopService(self) -> Deferred[None]:
        """
        Commit the remaining changes, then close the file.
        """
        super().stopService()
        done = self.committed() if self._lock is not None else succeed(None)
        done.addErrback(
            lambda why: log.error("session state was lost at shutdown: {why}", why=why.getErrorMessage())
        )
        return done.addBoth(lambda _: self.shut())

    def shut(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # -- the SessionStore ------------------------------------------------------

    def opened(self, session: SessionRecord) -> None:
        who = (session.sid, session.runtime, session.token_hash, session.anonymous, session.used)
        self._note(OPEN, (*who, session.identity))
        if session.host:
            self._note(FROM, (session.sid, session.host))

    def changed(self, session: SessionRecord) -> None:
        self._note(CHANGE, (session.token_hash, session.used, session.identity, session.sid))
        if session.proof is not None:
            self._note(PROVE, (session.sid, session.proof.encoded()))

    def disconnected(self, session: SessionRecord, when: float | None) -> None:
        self._note(LEAVE, (when, session.sid))

    def ended(self, session: SessionRecord) -> None:
        for statement in (END, UNBIND_ALL, UNKEY_ALL, UNPROVE, UNFROM):
            self._note(statement, (session.sid,))

    def moved(self, sid: int, other: int) -> None:
        for statement in MOVE:
            self._note(statement, (other, sid))
        for statement in (UNBIND_ALL, UNKEY_ALL, UNREGISTER_ALL):
            self._note(statement, (sid,))

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

    def committed(self) -> Deferred[None]:
        """
        Fires once all changes noted so far are committed. Fails with Rejected (503) if the commit fails.
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
        size = CHANGE_OVERHEAD_BYTES + sum(map(getsizeof, values))
        if self.noted_bytes + size > self._most():
            self._dropped += 1
        else:
            self.noted_bytes += size
            self._noted.append((statement, values))
        if not self._scheduled and self._committing is None:
            self._schedule(0)

    def _schedule(self, delay: float) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._clock.callLater(delay, self._commit)

    def _commit(self) -> None:
        self._scheduled = False
        if self._committing is not None or self._lock is None:
            return
        noted, self._noted, size = self._noted, [], self.noted_bytes  # all of them are in `noted`
        waiting, self._waiting = self._waiting, []
        dropped, self._dropped = self._dropped, 0
        if self._database is None:
            done = self._run(self._begin, noted)
        else:
            done = self._run(write, self._database, noted)
        self._committing = done
        done.addCallbacks(
            self._committed,
            self._refused,
            callbackArgs=(dropped, size, waiting),
            errbackArgs=(dropped, noted, waiting),
        )
        done.addErrback(lambda why: log.failure("a commit of session state failed unexpectedly", why))

    def _begin(self, noted: list[Change]) -> None:
        """
        The first commit, if there was no room for the file at the start. Runs in a thread.
        """
        self._database = connect(self.path, self._full)
        write(self._database, noted)

    def _committed(self, done: None, dropped: int, size: int, waiting: list[Deferred[None]]) -> None:
        self._committing = None
        self.noted_bytes -= size
        if self.failing:
            self.failing = ""
            log.info("{path} can be written again", path=str(self.path))
        if self._noted or self._waiting:
            self._schedule(0)
        if dropped:
            log.error(
                "{path}: {dropped} changes were lost, because too many waited",
                path=str(self.path),
                dropped=dropped,
            )
            self._tell(waiting, "too many changes wait")
            return
        for waiter in waiting:
            waiter.callback(None)

    def _refused(
        self, why: Failure, dropped: int, noted: list[Change], waiting: list[Deferred[None]]
    ) -> None:
        """
        A commit failed: its changes are kept and committed again later, and all waiters fail.
        """
        self._committing = None
        self._noted = noted + self._noted
        self._dropped += dropped
        if not self.failing:
            log.error("{path} cannot be written: {why}", path=str(self.path), why=why.getErrorMessage())
        self.failing = why.getErrorMessage()
        waiting, self._waiting = waiting + self._waiting, []
        self._schedule(RETRY_SECONDS)
        self._tell(waiting, self.failing)

    def _tell(self, waiting: list[Deferred[None]], why: str) -> None:
        for waiter in waiting:
            waiter.errback(Rejected(f"the node cannot write to disk now: {why}", 503, "disk"))
