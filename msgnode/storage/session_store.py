"""
The store: sessions, what is bound to them and their keys, in one SQLite file.

The node notes each change; all that were noted in the meantime are committed
together, in a thread, one commit after the other.  `settled` fires when what
was noted so far is in the file, and survives the end of the process; with
`full` also the end of the power.
"""

import os
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
from msgnode.storage.database import NAME, Change, Loaded, connect, is_full, load, lock, write

log = Logger()

AGAIN = 1.0  # seconds until a commit that failed is tried again
MAX_NOTED = 536_870_912  # bytes of changes that wait for a disk that takes nothing, if nothing else is said
LEAST_NOTED = 67_108_864  # bytes; less is no disk that takes nothing, but many changes at once
CHANGE_SIZE = 128  # bytes that a change takes beside what is in it

OPEN = "INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?, ?, ?, NULL)"
CHANGE = "UPDATE session SET token = ?, used = ?, identity = ? WHERE sid = ?"
PROVE = "INSERT OR REPLACE INTO proof VALUES (?, ?)"
LEAVE = "UPDATE session SET since = ? WHERE sid = ?"
END = "DELETE FROM session WHERE sid = ?"
UNPROVE = "DELETE FROM proof WHERE sid = ?"
FROM = "INSERT OR REPLACE INTO host VALUES (?, ?)"  # who opened it
UNFROM = "DELETE FROM host WHERE sid = ?"
UNBIND_ALL = "DELETE FROM binding WHERE sid = ?"
UNKEY_ALL = "DELETE FROM key WHERE sid = ?"
BIND = "INSERT OR REPLACE INTO binding VALUES (?, ?, ?)"
UNBIND = "DELETE FROM binding WHERE sid = ? AND address = ?"
KEY = "INSERT OR REPLACE INTO key VALUES (?, ?, ?)"
REGISTER = "INSERT OR REPLACE INTO registered VALUES (?, ?)"
UNREGISTER = "DELETE FROM registered WHERE sid = ? AND address = ?"
UNKEY = "DELETE FROM key WHERE sid = ? AND address = ?"
# All at once: what is bound to a session, and goes by it, is another's.
MOVE = (
    "INSERT INTO binding SELECT ?, address, kinds FROM binding WHERE sid = ?"
    " ON CONFLICT (sid, address) DO UPDATE SET kinds = kinds | (excluded.kinds & 255)",
    "INSERT OR IGNORE INTO key SELECT ?, address, key FROM key WHERE sid = ?",
    "INSERT OR IGNORE INTO registered SELECT ?, address FROM registered WHERE sid = ?",
)
UNREGISTER_ALL = "DELETE FROM registered WHERE sid = ?"


class Store(Service):
    """
    The SessionStore of a node with a state directory; `run` may use a thread.

    `changes` counts what was noted; `failing` says why nothing can be written now.
    `held` is how many bytes are not committed; beyond `most` changes are lost, and said to be.
    """

    def __init__(
        self,
        directory: Path,
        clock: IReactorTime,
        run: Callable[..., Deferred[None]] = maybeDeferred,
        full: bool = False,
        most: Callable[[], int] = lambda: MAX_NOTED,
    ) -> None:
        self.changes = 0
        self.failing = ""
        self.held = 0
        self.path = directory / NAME
        self._directory = directory
        self._clock = clock
        self._run = run
        self._full = full
        self._noted: list[Change] = []
        self._most = most
        self._dropped = 0  # changes that found no room
        self._waiting: list[Deferred[None]] = []  # for the commit after the one under way
        self._committing: Deferred[None] | None = None
        self._scheduled = False
        self._database: sqlite3.Connection | None = None
        self._lock: int | None = None

    # -- starting and stopping -----------------------------------------------

    def open(self) -> Loaded:
        """
        The file, made or brought up to date, and what is in it.  ConfigError says why not.

        A disk too full to begin one is no reason: it is made with the first commit.
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
            return ConfigError(f"{self.path}: {what}; make room on its disk")
        repair = f"'msgnode state repair {self._directory}' moves it aside and keeps what can be read"
        return ConfigError(f"{self.path}: {what}; {repair}")

    def stopService(self) -> Deferred[None]:
        """
        Commit what is noted.
        """
        super().stopService()
        done = self.settled() if self._lock is not None else succeed(None)
        done.addErrback(lambda why: log.error("state was lost: {why}", why=why.getErrorMessage()))
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

    def left(self, session: SessionRecord, when: float | None) -> None:
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
        size = CHANGE_SIZE + sum(map(getsizeof, values))
        if self.held + size > self._most():
            self._dropped += 1
        else:
            self.held += size
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
        noted, self._noted, size = self._noted, [], self.held  # nothing else is under way
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
        done.addErrback(lambda why: log.failure("committing", why))

    def _begin(self, noted: list[Change]) -> None:
        """
        The first commit, where there was no room for a file before; in a thread.
        """
        self._database = connect(self.path, self._full)
        write(self._database, noted)

    def _committed(self, done: None, dropped: int, size: int, waiting: list[Deferred[None]]) -> None:
        self._committing = None
        self.held -= size
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
            waiter.errback(Rejected(f"the node cannot write this down now: {why}", 503, "disk"))
