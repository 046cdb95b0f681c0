"""
Retention of the traffic log: files of past hours are compressed, and old ones deleted, in a thread.

A file that the node may still write is never touched, and a kill at any moment loses and doubles no line:
while a file and its compressed form both exist, the plain one counts (docs/mining.md).
"""

import gzip
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from msgnode.config.schema import StorageOptions

log = Logger()

EACH_SECONDS = 900.0
FIRST_SECONDS = 30.0  # after the start
WRITTEN_HOURS = 2  # lines of the last hour may come late, while the disk blocks
_BLOCK = 1024 * 1024
_PARTIAL = ".part"  # no reader of the log takes such a file


class Retention:
    """
    The files `<what>-<node>-YYYYMMDDTHH.jsonl` of one directory, with or without `.gz`.
    """

    def __init__(self, directory: Path, prefix: str) -> None:
        self._directory = directory
        self._name = re.compile(re.escape(prefix) + r"(\d{8}T\d{2})\.jsonl(\.gz)?(\.part)?")

    def tidy(self, hour: int, keep_days: int, compress: bool) -> tuple[int, int]:
        """
        Delete files older than `keep_days` (0: none), compress the others.  `hour` is now, in hours since
        1970.

        Returns how many files were deleted, and how many compressed.  Raises OSError.
        """
        deleted = compressed = 0
        kept_since = _stamp(hour - 24 * keep_days) if keep_days else ""
        for path, stamp, is_packed, is_partial in list(self._files()):
            if is_partial or stamp < kept_since:
                path.unlink(missing_ok=True)
                deleted += not is_partial
            elif compress and not is_packed and stamp <= _stamp(hour - WRITTEN_HOURS):
                pack(path)
                compressed += 1
        return deleted, compressed

    def _files(self) -> Iterator[tuple[Path, str, bool, bool]]:
        with suppress(FileNotFoundError):
            for path in sorted(self._directory.iterdir()):
                found = self._name.fullmatch(path.name)
                if found is not None:
                    yield path, found[1], bool(found[2]), bool(found[3])


def pack(path: Path) -> None:
    """
    Compress a file, and delete it.  If it was compressed before and has late lines since, they are appended.
    """
    packed = path.with_name(path.name + ".gz")
    partial = path.with_name(packed.name + _PARTIAL)
    if packed.exists() and _ends_with(packed, path):
        path.unlink()  # a kill came between the two
        return
    with path.open("rb") as plain, partial.open("wb") as file:
        os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
        if packed.exists():
            with packed.open("rb") as before:
                _copy(before, file)
        with gzip.GzipFile(path.name, "wb", 6, file, path.stat().st_mtime) as writer:
            _copy(plain, writer)
        file.flush()
        os.fsync(file.fileno())
    os.utime(partial, (path.stat().st_atime, path.stat().st_mtime))
    partial.replace(packed)
    path.unlink()


def _ends_with(packed: Path, plain: Path) -> bool:
    size = plain.stat().st_size
    try:
        with gzip.open(packed) as file:
            whole = sum(len(block) for block in iter(lambda: file.read(_BLOCK), b""))
        with gzip.open(packed) as file, plain.open("rb") as end:
            left = whole - size
            while left > 0:
                left -= len(file.read(min(left, _BLOCK)))
            return left == 0 and all(
                block == file.read(len(block)) for block in iter(lambda: end.read(_BLOCK), b"")
            )
    except (EOFError, gzip.BadGzipFile):
        return False


def _copy(source: IO[bytes], target: Any) -> None:
    for block in iter(lambda: source.read(_BLOCK), b""):
        target.write(block)


def _stamp(hour: int) -> str:
    return time.strftime("%Y%m%dT%H", time.gmtime(max(hour, 0) * 3600))


class TrafficRetention(Service):
    """
    A service that keeps the files of the traffic log as `storage.traffic_keep_days` and `traffic_compress`
    say.
    """

    def __init__(
        self,
        files: Retention,
        options: StorageOptions,
        clock: Any,
        run: Callable[..., Deferred[tuple[int, int]]],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._files = files
        self._options = options
        self._run = run
        self._wall = wall
        self._clock = clock
        self._timer = LoopingCall(self._tidy)
        self._timer.clock = clock
        self._first: Any = None

    def startService(self) -> None:
        super().startService()
        self._first = self._clock.callLater(FIRST_SECONDS, self._timer.start, EACH_SECONDS)

    def stopService(self) -> None:
        super().stopService()
        if self._first is not None and self._first.active():
            self._first.cancel()
        if self._timer.running:
            self._timer.stop()

    def _tidy(self) -> Deferred[None] | None:
        options = self._options
        if not options.traffic_keep_days and not options.traffic_compress:
            return None
        hour = int(self._wall() // 3600)
        done = self._run(self._files.tidy, hour, options.traffic_keep_days, options.traffic_compress)
        return done.addCallbacks(self._done, self._failed)

    def _done(self, found: tuple[int, int]) -> None:
        deleted, compressed = found
        if deleted or compressed:
            log.info(
                "traffic log: {deleted} files older than {days} days deleted, {compressed} files compressed",
                deleted=deleted,
                days=self._options.traffic_keep_days,
                compressed=compressed,
            )

    def _failed(self, why: Any) -> None:
        log.error("old files of the traffic log cannot be compressed or deleted: {why}", why=why.value)
