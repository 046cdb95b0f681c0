"""
A lock on an object store: an object that is written only under a condition, so that one of two runs gets
it.

The object has the name of its holder, and is empty when no run holds it. It is created with `If-None-Match`,
and replaced with `If-Match`, so each change is one step. The holder renews it; a lock that was not renewed
for STALE_SECONDS, by the clock of the store, is that of a run which was killed, and is taken over.
"""

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from msgnode.mining.reading.log_files import LogFiles, Unreadable, first_line

NAME = ".lock"
RENEW_SECONDS = 20.0
STALE_SECONDS = 120.0
_CONDITION = "fs.option.create.conditional.overwrite"


@dataclass(frozen=True)
class Held:
    """
    The object: its text, its entity tag, and when it was written, in seconds by the clock of the store.
    """

    text: str
    tag: str
    modified: float


class LockObject(Protocol):
    """
    An object that is written under a condition. A write returns the new tag, or "" if the condition failed.
    """

    def read(self) -> Held | None: ...

    def create(self, text: str) -> str: ...

    def replace(self, text: str, tag: str) -> str: ...

    def now(self) -> float:
        """
        The time of the store, in seconds.
        """


class ObjectLock:
    """
    A lock while it is held. `lost` is called, in a thread of its own, if another run has taken it over.
    """

    def __init__(
        self,
        store: LockObject,
        where: str,
        lost: Callable[[], None] = lambda: None,
        renew_seconds: float = RENEW_SECONDS,
        stale_seconds: float = STALE_SECONDS,
    ) -> None:
        self._store = store
        self._where = where
        self._lost = lost
        self._renew_seconds = renew_seconds
        self._stale_seconds = stale_seconds
        # Different for each run, so that its tag is, too.
        self._owner = f"{socket.gethostname()} process {os.getpid()} {uuid.uuid4().hex[:12]}"
        self._count = 0
        self._tag = ""
        self._renewed = 0.0
        self._ended = threading.Event()
        self._is_lost = False

    def check(self) -> None:
        """
        Unreadable if another run has taken over.
        """
        if self._is_lost:
            raise Unreadable(
                f"{self._where}: another run has taken over, because this one could not renew its lock for "
                f"{self._stale_seconds:.0f} s; nothing that it did since counts"
            )

    def acquire(self) -> None:
        """
        Take the lock. Unreadable if another run has it.
        """
        found = self._store.read()
        if found is None:
            self._tag = self._store.create(self._text())
        elif not found.text or self._store.now() - found.modified >= self._stale_seconds:
            self._tag = self._store.replace(self._text(), found.tag)
        if not self._tag:
            holder = (found or self._store.read() or Held("", "", 0)).text.rpartition(" renewal ")[0]
            by = f" ({holder})" if holder else ""
            raise Unreadable(
                f"another run{by} uses {self._where}; wait until it ends, or use another --out; if it was "
                f"killed, its lock ends after {self._stale_seconds:.0f} s"
            )
        self._renewed = time.monotonic()

    def renew(self) -> None:
        """
        Write the lock again; without success for too long, or if another run has it, it is lost.
        """
        try:
            tag = self._store.replace(self._text(), self._tag)
        except Unreadable:  # the store is not reached: try again, while the lock is not stale
            if time.monotonic() - self._renewed < self._stale_seconds:
                return
            tag = ""
        if tag:
            self._tag, self._renewed = tag, time.monotonic()
        else:
            self._is_lost = True
            self._ended.set()
            self._lost()

    def release(self) -> None:
        """
        Empty the lock, unless it is another run's by now.
        """
        self._store.replace("", self._tag)

    @contextmanager
    def held(self) -> Iterator["ObjectLock"]:
        """
        Hold the lock, and renew it, until the block ends.
        """
        self.acquire()
        thread = threading.Thread(target=self._go_on, daemon=True)
        thread.start()
        try:
            yield self
        except Exception:
            self.check()  # what failed was probably stopped because of it
            raise
        finally:
            self._ended.set()
            thread.join()
            if not self._is_lost:
                self.release()

    def _go_on(self) -> None:
        while not self._ended.wait(self._renew_seconds):
            self.renew()

    def _text(self) -> str:
        self._count += 1
        return f"{self._owner} renewal {self._count}"


class HadoopObject:
    """
    An object behind `s3a://`, by the conditional writes of Hadoop 3.4.2 and later.
    """

    def __init__(self, files: LogFiles, name: str = NAME) -> None:
        self._files = files
        self._name = name

    def read(self) -> Held | None:
        try:
            status = self._files.status(self._name)
            if status is None:
                return None
            return Held(self._files.read(self._name), status.getEtag(), status.getModificationTime() / 1000)
        except Exception as why:
            raise Unreadable(f"{self._files.inside(self._name)}: {first_line(why)}") from why

    def create(self, text: str) -> str:
        return self._written(text, lambda builder: builder.must(_CONDITION, True))

    def replace(self, text: str, tag: str) -> str:
        return self._written(text, lambda builder: builder.must(f"{_CONDITION}.etag", tag))

    def now(self) -> float:
        probe = f"{self._name}.{uuid.uuid4().hex[:12]}"
        self._files.write(probe, "now")
        try:
            status = self._files.status(probe)
            return 0.0 if status is None else float(status.getModificationTime() / 1000)
        finally:
            self._files.delete(probe)

    def _written(self, text: str, condition: Callable[[Any], Any]) -> str:
        try:
            return self._files.write_if(self._name, text, condition)
        except Exception as why:
            raise Unreadable(f"cannot write {self._files.inside(self._name)}: {first_line(why)}") from why
