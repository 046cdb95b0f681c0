"""
Audit log: what operators did, with a hash chain, so that a line that is changed or removed later shows.

Each line has `prev`, the hash of the line before it, and `hash`, that of `prev` and its own other keys. The
first line of a month continues the chain of the month before. A line at which old months are deleted has
`begins`, the `prev` of the first line that is left.
"""

import json
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from time import gmtime, strftime
from typing import Any

from twisted.internet.defer import Deferred, DeferredLock, succeed
from twisted.logger import Logger

from msgnode.protocol.errors import Rejected

log = Logger()

DIRECTORY = "audit"
BEGIN = "0" * 64
MAX_RECENT = 1000
MAX_RECENT_BYTES = 2 * 1024 * 1024  # of files that are read for them at the start
MAX_TEXT, MAX_ITEMS = 1000, 100  # characters of a text in a line, texts of a list
TAIL_BYTES = 64 * 1024
DAY_SECONDS = 86400.0

Entry = dict[str, Any]


class AuditLog:
    """
    The audit log in `<state>/audit`; without a state directory the entries are kept in memory only.

    `run` runs a function that uses the disk, perhaps in a thread; `wall` gives seconds since 1970. A month is
    deleted when its last day is `keep_days` ago; 0 keeps all. `failures` counts lines that could not be
    written.
    """

    def __init__(
        self,
        state: Path | None,
        wall: Callable[[], float],
        run: Callable[..., Deferred[Any]],
        keep_days: Callable[[], float] = lambda: 400,
    ) -> None:
        self.recent: deque[Entry] = deque(maxlen=MAX_RECENT)
        self.on_entry: Callable[[Entry], object] = lambda entry: None
        self._directory = None if state is None else state / DIRECTORY
        self._wall = wall
        self._run = run
        self._keep_days = keep_days
        self.failures = 0
        self._last = ""  # the hash of the last line; "" while it is not known
        self._number = 0
        self._turn = DeferredLock()  # lines are written one after the other

    def next_id(self) -> str:
        """
        A name for the next action, by which its two lines belong together.
        """
        self._number += 1
        return f"{int(self._wall() * 1000):x}-{self._number:x}"

    def write(self, **fields: Any) -> Deferred[None]:
        """
        Writes a line, and waits until it is on disk. Fails with Rejected (503) if it cannot be written.
        """
        entry: Entry = {"time": round(self._wall(), 3), **bounded(fields)}
        return self._turn.run(self._write_in_turn, entry)

    def note(self, **fields: Any) -> Deferred[None]:
        """
        Writes a line about something that happens in any case. Never fails.
        """
        return self.write(phase="result", id=self.next_id(), **fields).addErrback(lambda why: None)

    def restore(self) -> Deferred[None]:
        """
        Reads the newest entries of before the start. Never fails.
        """
        directory = self._directory
        if directory is None:
            return succeed(None)

        def failed(why: Any) -> None:
            log.failure("the audit log could not be read", why)

        return self.in_turn(newest_entries, directory).addCallbacks(self.recent.extendleft, failed)

    def in_turn(self, function: Callable[..., Any], *args: Any) -> Deferred[Any]:
        """
        Runs a function that uses the disk, after the lines and functions before it.
        """
        return self._turn.run(self._run, function, *args)

    def _write_in_turn(self, entry: Entry) -> Deferred[None]:
        def written(done: Entry) -> None:
            self.recent.append(done)
            self.on_entry(done)

        def failed(why: Any) -> None:
            self.failures += 1
            log.failure("the audit log could not be written", why)
            raise Rejected("the audit log cannot be written, so nothing was done", 503, "disk")

        return self._run(self._append, entry).addCallbacks(written, failed)

    def _append(self, entry: Entry) -> Entry:
        directory = self._directory
        if not self._last:
            self._last = BEGIN if directory is None else last_hash(directory)
        chained = {**entry, "prev": self._last}
        old: list[Path] = []
        if directory is not None:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            name = strftime("audit-%Y%m.jsonl", gmtime(entry["time"]))
            months = audit_files(directory)
            if months and name > months[-1].name:
                old = self._old(months, entry["time"])
            if old:
                chained["begins"] = first_prev(months[len(old)])
        chained["hash"] = digest(chained)
        if directory is not None:
            # After the clock was set back the newest file goes on: the chain is in the order of the files.
            path = directory / max([name, *(month.name for month in months[-1:])])
            append_line(path, json.dumps(chained, ensure_ascii=False).encode("utf-8", "replace"))
        self._last = chained["hash"]
        for month in old:
            with suppress(OSError):  # the line is written; they are deleted in a month
                month.unlink()
        return chained

    def _old(self, months: list[Path], now: float) -> list[Path]:
        """
        The months that ended long ago; none if that were all: the clock may be wrong.
        """
        keep_days = self._keep_days()
        if not keep_days:
            return []
        # The month before the oldest day that is kept has ended by then.
        oldest = strftime("audit-%Y%m.jsonl", gmtime(now - keep_days * DAY_SECONDS))
        return [] if months[-1].name < oldest else [path for path in months if path.name < oldest]


def bounded(value: Any) -> Any:
    """
    The value with each long text and list in it cut, so that nothing that a request has makes a huge line.
    """
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else f"{value[:MAX_TEXT]}..."
    if isinstance(value, dict):
        return {bounded(name): bounded(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [bounded(inner) for inner in value[:MAX_ITEMS]]
    return value


def append_line(path: Path, line: bytes) -> None:
    """
    Appends a line, and waits until it is on disk. If it cannot be written, nothing of it stays: half a line
    would swallow the next one.
    """
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "r+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        try:
            if size and os.pread(file.fileno(), 1, size - 1) != b"\n":  # of a node that was killed
                line = b"\n" + line
            left = memoryview(line + b"\n")
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                os.ftruncate(file.fileno(), size)
            raise


def digest(entry: Entry) -> str:
    """
    The hash of an entry: that of all its keys but `hash`, in sorted order.
    """
    fields = {name: value for name, value in entry.items() if name != "hash"}
    text = json.dumps(fields, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode("utf-8", "replace")).hexdigest()


def audit_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("audit-*.jsonl"))


def last_hash(directory: Path) -> str:
    """
    The hash of the newest line in the directory; of a directory without lines the beginning of a chain.
    """
    for path in reversed(audit_files(directory)):
        size = path.stat().st_size
        tail = 0
        while tail < size:
            tail = min(size, max(TAIL_BYTES, 2 * tail))
            with path.open("rb") as file:
                file.seek(size - tail)
                lines = file.read(tail).split(b"\n")
            for line in reversed(lines if tail == size else lines[1:]):  # the first may be half a line
                try:
                    found = json.loads(line)["hash"]
                except (ValueError, KeyError, TypeError):
                    continue
                return str(found)
    return BEGIN


def newest_entries(directory: Path) -> list[Entry]:
    """
    The newest entries, the last first; at most MAX_RECENT, from MAX_RECENT_BYTES of the files.
    """
    found: list[Entry] = []
    left = MAX_RECENT_BYTES
    for path in reversed(audit_files(directory)):
        with path.open("rb") as file:
            begin = max(0, path.stat().st_size - left)
            file.seek(begin)
            data = file.read(left)
        left -= len(data)
        for line in reversed(data.split(b"\n")[1 if begin else 0 :]):  # the first may be half a line
            with suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict) and isinstance(entry.get("time"), float | int):
                    found.append(entry)
            if len(found) == MAX_RECENT:
                return found
        if begin:
            break
    return found


def first_prev(path: Path) -> str:
    """
    The hash before the first line of a file; "" if that is no entry.
    """
    with path.open(encoding="utf-8", errors="replace") as file:
        try:
            return str(json.loads(file.readline())["prev"])
        except (ValueError, KeyError, TypeError):
            return ""


def read_entries(directory: Path) -> Iterator[tuple[str, int, Entry | None]]:
    """
    The lines of all files in order, each with its file and number; None for a line that is no entry.
    """
    for path in audit_files(directory):
        with path.open(encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, 1):
                try:
                    entry = json.loads(line)
                except ValueError:
                    entry = None
                yield path.name, number, entry if isinstance(entry, dict) else None


def mistakes(directory: Path) -> tuple[int, list[str]]:
    """
    The number of lines, and where the chain is broken, as sentences.
    """
    found: list[str] = []
    begins, first = {BEGIN}, ""  # hashes that a chain may begin after, and that which it does begin after
    before, lines, place = "", 0, ""
    for name, number, entry in read_entries(directory):
        lines += 1
        if entry is None:
            found.append(f"{name}, line {number}: is no entry")
            before = ""
            continue
        if digest(entry) != entry.get("hash"):
            found.append(f"{name}, line {number}: was changed")
        if lines == 1:
            first, place = str(entry.get("prev", "")), f"{name}, line {number}"
        begins.add(str(entry.get("begins", BEGIN)))
        if before and entry.get("prev") != before:
            found.append(f"{name}, line {number}: a line before it was removed or changed")
        before = str(entry.get("hash", ""))
    if place and first not in begins:
        found.insert(0, f"{place}: lines or files before it were removed")
    return lines, found
