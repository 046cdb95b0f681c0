"""
A keyed journal: small values by key in one file, which is read at the start.

Each change is one line of JSON, appended in a thread. When most lines are obsolete, or a write has failed,
the file is written again as a whole. After a failure that is tried every few seconds, and once more at the
end: what was refused with 503 is to be removed again, or it is kept.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.protocol.errors import Rejected

log = Logger()

RETRY_SECONDS = 5.0  # after a write that failed
OBSOLETE_LINES = 1000  # obsolete lines that may be in a file, in addition to as many as there are values

Line = tuple[str, Any]


class KeyedJournal:
    """
    The values by key, and the file that has them. `path` is None without a state directory: nothing is kept
    then. The caller bounds how many values there are.
    """

    def __init__(
        self, path: Path | None, clock: IReactorTime, run: Callable[..., Deferred[Any]] = maybeDeferred
    ) -> None:
        self.path = path
        self.failing = ""
        self._clock = clock
        self._run = run
        self._retry: IDelayedCall | None = None
        self._is_closed = False
        self._values: dict[str, bytes] = {}
        self._lines = 0  # in the file
        self._noted: list[bytes] = []
        self._waiting: list[Deferred[None]] = []
        self._is_writing = False
        self._is_damaged = False  # the next write replaces the file

    def read(self) -> dict[str, Any]:
        """
        The values in the file. Lines that cannot be read are left out, and logged.
        """
        self._is_closed = False
        if self.path is None:
            return {}
        found: dict[str, Any] = {}
        unreadable = 0
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return {}
        except OSError as why:
            log.error("{path} cannot be read: {why}", path=str(self.path), why=why.strerror)
            return {}
        for line in filter(None, lines):
            try:
                key, value = msgspec.json.decode(line, type=Line)
            except msgspec.DecodeError:
                unreadable += 1
                continue
            found.pop(key, None)
            if value is not None:
                found[key] = value
        self._lines = len(lines)
        self._values = {key: msgspec.json.encode((key, value)) for key, value in found.items()}
        if unreadable or lines[-1]:
            self._is_damaged = True
            log.warn(
                "{path}: {unreadable} lines could not be read", path=str(self.path), unreadable=unreadable
            )
        return found

    def put(self, key: str, value: Any) -> Deferred[None]:
        """
        Keeps the value; fires when it is on disk, and fails with Rejected (503) if it cannot be written.
        """
        line = msgspec.json.encode((key, value))
        if self.path is not None:
            self._values[key] = line
        return self._note(line)

    def remove(self, key: str) -> Deferred[None]:
        """
        Removes the value of the key, in the same way.
        """
        if self._values.pop(key, None) is None:
            return self.written()
        return self._note(msgspec.json.encode((key, None)))

    def written(self) -> Deferred[None]:
        """
        Fires when all that was changed is on disk, and fails with Rejected (503) if it cannot be written.
        """
        if self.path is None or not (self._is_writing or self._noted or self.failing):
            return succeed(None)
        waiter: Deferred[None] = Deferred()
        self._waiting.append(waiter)
        if not self._is_writing:
            self._write()
        return waiter

    def close(self) -> Deferred[None]:
        """
        Ends the attempts to write. Fires after the last one, whatever its outcome, which is logged.
        """
        self._is_closed = True
        self._cancel_retry()
        return self.written().addErrback(lambda why: None)

    def _note(self, line: bytes) -> Deferred[None]:
        if self.path is None:
            return succeed(None)
        self._noted.append(line)
        return self.written()

    def _cancel_retry(self) -> None:
        retry, self._retry = self._retry, None
        if retry is not None and retry.active():
            retry.cancel()

    def _write(self) -> None:
        self._cancel_retry()
        noted, self._noted = self._noted, []
        waiting, self._waiting = self._waiting, []
        values = list(self._values.values())
        if self._is_damaged or self._lines + len(noted) > 2 * len(values) + OBSOLETE_LINES:
            write, lines, count = self._replace, values, len(values)
        else:
            write, lines, count = self._append, noted, self._lines + len(noted)
        self._is_writing = True
        done = self._run(write, lines)
        done.addCallbacks(self._written, self._failed, callbackArgs=(count, waiting), errbackArgs=(waiting,))
        done.addErrback(lambda why: log.failure("a journal could not be written", why))

    def _append(self, lines: list[bytes]) -> None:
        """
        Runs in a thread.
        """
        assert self.path is not None
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._put(file, lines)

    def _replace(self, lines: list[bytes]) -> None:
        """
        Runs in a thread.
        """
        assert self.path is not None
        unfinished = self.path.with_name(f"{self.path.name}.new")
        flags = os.O_WRONLY | os.O_TRUNC | os.O_CREAT | os.O_CLOEXEC
        self._put(os.open(unfinished, flags, 0o600), lines)
        os.replace(unfinished, self.path)

    @staticmethod
    def _put(file: int, lines: list[bytes]) -> None:
        with os.fdopen(file, "wb") as opened:
            opened.writelines(line + b"\n" for line in lines)
            opened.flush()
            os.fsync(opened.fileno())

    def _written(self, done: None, lines: int, waiting: list[Deferred[None]]) -> None:
        self._lines, self._is_damaged = lines, False
        if self.failing:
            self.failing = ""
            log.info("{path} can be written again", path=str(self.path))
        self._go_on()
        for waiter in waiting:
            waiter.callback(None)

    def _failed(self, why: Failure, waiting: list[Deferred[None]]) -> None:
        """
        A write failed: the next one, soon, writes all values, and those that wait for this one fail.
        """
        self._is_damaged = True
        if not self.failing:
            log.error("{path} cannot be written: {why}", path=str(self.path), why=why.getErrorMessage())
        self.failing = why.getErrorMessage()
        self._go_on()
        if not self._is_writing and self._retry is None and not self._is_closed:
            self._retry = self._clock.callLater(RETRY_SECONDS, self._write)
        text = f"the node cannot write to disk now: {self.failing}"
        for waiter in waiting:
            waiter.errback(Rejected(text, 503, "disk"))

    def _go_on(self) -> None:
        self._is_writing = False
        if self._noted or self._waiting:
            self._write()
