"""
The copies of stubs on disk, so that a restart needs no fetch and a bad new version can be left again.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from twisted.logger import Logger

from msgnode.foreign.fetch.stub_code import StubCode

MAX_ENTRIES = 1000  # index entries in memory
MAX_DOMAINS = 100  # whose stubs are kept, in addition to those that are listed

log = Logger()


class StoredStub(Struct):
    """
    An index entry of a domain's stub: the last version that was fetched, when (by the wall clock), and the
    last version that was live.
    """

    key: str = ""
    fetched_at: float = 0.0
    good: str = ""
    rejected: str = ""  # a version that never became live, while there was a good one


class CodeStore:
    """
    A directory with one index for each domain, and the stubs by their hashes. Without a directory, they are
    kept in memory.

    Any client can have a stub fetched if all domains are accepted, so the stubs of the domains that are not
    listed are bounded: those that were fetched first go first.
    """

    def __init__(
        self, directory: Path | None, is_listed: Callable[[str], bool] = lambda domain: False
    ) -> None:
        self._directory = directory
        self._is_listed = is_listed
        self._memory: dict[str, StubCode] = {}
        self._entries: dict[str, StoredStub] = {}
        self._kept = dict.fromkeys(self._on_disk())  # domains, in the order of their fetches

    def entry(self, domain: str) -> StoredStub:
        """
        The entry of the domain; empty if nothing is known of its stub.
        """
        found = self._entries.get(domain)
        if found is None:
            found = self._read_entry(domain)
            if len(self._entries) >= MAX_ENTRIES:
                self._entries.pop(next((each for each in self._entries if each not in self._kept), ""), None)
            self._entries[domain] = found
        return found

    def find(self, key: str) -> StubCode | None:
        """
        The stub with this hash; None if there is none, or if its file was changed.
        """
        if not key:
            return None
        if self._directory is None:
            return self._memory.get(key)
        try:
            found = msgspec.msgpack.decode((self._directory / f"{key}.stub").read_bytes(), type=StubCode)
        except (OSError, msgspec.DecodeError):
            return None
        return found if found.key == key else None

    def put(self, code: StubCode, now: float) -> None:
        """
        Keeps what was fetched now.
        """
        self._make_room(code.domain)
        entry = self.entry(code.domain)
        before, entry.key, entry.fetched_at = entry.key, code.key, now
        if self._directory is None:
            self._memory[code.key] = code
        else:
            self._write(self._directory / f"{code.key}.stub", msgspec.msgpack.encode(code))
        self._save(code.domain, entry)
        self._drop(before, entry)

    def was_live(self, code: StubCode) -> None:
        """
        Notes that this version works.
        """
        entry = self.entry(code.domain)
        if entry.good != code.key:
            before, entry.good, entry.rejected = entry.good, code.key, ""
            self._save(code.domain, entry)
            self._drop(before, entry)

    def reject(self, code: StubCode) -> None:
        """
        Notes that this version does not work, while an older one does.
        """
        entry = self.entry(code.domain)
        entry.rejected = code.key
        self._save(code.domain, entry)

    def _on_disk(self) -> list[str]:
        """
        The domains that have an index entry, the oldest first.
        """
        if self._directory is None:
            return []
        try:
            found = [(path.stat().st_mtime, path.stem) for path in self._directory.glob("*.json")]
        except OSError:
            return []
        return [domain for _, domain in sorted(found)]

    def _make_room(self, domain: str) -> None:
        self._kept.pop(domain, None)
        self._kept[domain] = None
        others = [each for each in self._kept if each != domain and not self._is_listed(each)]
        for old in others[: max(0, len(others) - MAX_DOMAINS + 1)]:
            entry, gone = self.entry(old), StoredStub()
            for key in {entry.key, entry.good}:
                self._drop(key, gone)
            del self._kept[old]
            self._entries.pop(old, None)
            self._remove(f"{old}.json")

    def _remove(self, name: str) -> None:
        if self._directory is not None:
            with suppress(OSError):
                (self._directory / name).unlink(missing_ok=True)

    def _drop(self, key: str, entry: StoredStub) -> None:
        if not key or key in (entry.key, entry.good):
            return
        self._memory.pop(key, None)
        self._remove(f"{key}.stub")

    def _read_entry(self, domain: str) -> StoredStub:
        if self._directory is not None:
            with suppress(OSError, msgspec.DecodeError):
                data = (self._directory / f"{domain}.json").read_bytes()
                return msgspec.json.decode(data, type=StoredStub)
        return StoredStub()

    def _save(self, domain: str, entry: StoredStub) -> None:
        if self._directory is not None:
            self._write(self._directory / f"{domain}.json", msgspec.json.encode(entry))

    def _write(self, path: Path, data: bytes) -> None:
        """
        Writes a file as a whole. If that fails, the stub is fetched again after a restart.
        """
        new = path.with_name(f"{path.name}.new")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new.write_bytes(data)
            os.replace(new, path)
        except OSError as why:
            log.warn("a stub could not be kept in {path}: {why}", path=str(path), why=str(why))
