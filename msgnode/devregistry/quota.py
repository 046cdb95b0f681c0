"""
Quotas of the embedded registries: for one entry, for one owner, and in all.

The owner is the user or host that the node names as the payer, else the user in the entry. Triggers update
the sums in the same transaction as the entries.
"""

from collections.abc import Callable
from sqlite3 import Connection
from typing import NamedTuple

from msgnode.sessions.counters import RegistryCounts

TABLES = """
BEGIN;
CREATE TABLE IF NOT EXISTS held (
    kind TEXT NOT NULL, id TEXT NOT NULL, payer TEXT NOT NULL, size INTEGER NOT NULL, at REAL NOT NULL,
    gone INTEGER NOT NULL, PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS held_gone ON held (at) WHERE gone;
CREATE INDEX IF NOT EXISTS held_gone_of ON held (payer, at) WHERE gone;
CREATE INDEX IF NOT EXISTS owner_user ON owner (user);
CREATE TABLE IF NOT EXISTS usage (payer TEXT PRIMARY KEY, entries INTEGER NOT NULL, bytes INTEGER NOT NULL)
    STRICT;
CREATE TRIGGER IF NOT EXISTS held_more AFTER INSERT ON held BEGIN
    INSERT INTO usage VALUES (NEW.payer, 1, NEW.size), ('', 1, NEW.size)
    ON CONFLICT (payer) DO UPDATE SET entries = entries + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER IF NOT EXISTS held_less AFTER DELETE ON held BEGIN
    UPDATE usage SET entries = entries - 1, bytes = bytes - OLD.size WHERE payer IN (OLD.payer, '');
    DELETE FROM usage WHERE payer = OLD.payer AND entries = 0;
END;
CREATE TRIGGER IF NOT EXISTS held_gone AFTER UPDATE OF status ON record BEGIN
    UPDATE held SET gone = NEW.status = 'disconnected' WHERE kind = NEW.kind AND id = NEW.id;
END;
INSERT INTO held SELECT kind, id, 'user:' || coalesce(user, ''), length(CAST(fields AS BLOB)), modified,
    status = 'disconnected' FROM record WHERE (kind, id) NOT IN (SELECT kind, id FROM held);
INSERT INTO held SELECT 'graph', guid, 'user:', length(jwt), 0, 0 FROM graph
    WHERE ('graph', guid) NOT IN (SELECT kind, id FROM held);
COMMIT;
"""
OVERHEAD_BYTES = 512  # bytes of an entry in addition to its fields
ESCAPED = 6  # the most bytes of a character's JSON escape, per byte
ENTRIES_PER_REMOVAL = 64
ATTEMPTS = 5  # attempts to make room for one entry
CHECKPOINT_BYTES = 32 * 1024 * 1024  # bytes written until a checkpoint
_ALL = ""  # the payer of the total


class Limits(NamedTuple):
    """
    The limits: bytes of an entry; entries and bytes of one owner, and in all; seconds that a disconnected
    entry is kept.
    """

    entry_bytes: int = 64 * 1024
    entries_per_owner: int = 10_000
    bytes_per_owner: int = 16 * 1024 * 1024
    entries: int = 100_000
    bytes: int = 256 * 1024 * 1024
    retention: float = 7 * 86400.0


class NoRoom(Exception):
    """
    An entry beyond a limit, with the status of the response.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Quota:
    """
    Counts the entries of each owner, and refuses those beyond the limits.

    `payer` is the owner that the node names in the current request, or "". `make_room` removes the oldest
    disconnected entries. `full` is called when a checkpoint is due.
    """

    def __init__(
        self, database: Connection, limits: Limits | None = None, counts: RegistryCounts | None = None
    ) -> None:
        self.limits = limits or Limits()
        self.counts = counts or RegistryCounts()
        self.payer = ""
        self.make_room: Callable[[str, int], int] = lambda payer, number: 0
        self.full: Callable[[], object] = lambda: None
        self._written = 0
        self._database = database
        database.executescript(TABLES)
        self.note(0)

    def check(self, size: int) -> None:
        """
        NoRoom if a body is too large for any entry, before it is parsed.
        """
        if size > ESCAPED * self.limits.entry_bytes:
            raise self._refused(413, f"An entry has at most {self.limits.entry_bytes} bytes, not {size}.")

    def take(self, kind: str, id: str, size: int, at: float, gone: bool = False, user: str = "") -> None:
        """
        Count an entry in place of a previous one, within a transaction. Raises NoRoom.
        """
        limits, size = self.limits, size + len(id)
        if size > limits.entry_bytes:
            raise self._refused(413, f"An entry has at most {limits.entry_bytes} bytes, not {size}.")
        size += OVERHEAD_BYTES
        before = self._database.execute(
            "SELECT payer, size FROM held WHERE kind = ? AND id = ?", (kind, id)
        ).fetchone()
        payer = self.payer or (before[0] if before is not None else f"user:{user}")
        if before is not None:
            self.drop(kind, id)
        if (
            before is None or before[0] != payer or size > before[1]
        ):  # an entry that does not grow is accepted
            if not self._has_room(payer, size, limits.entries_per_owner, limits.bytes_per_owner):
                raise self._refused(429, "Too many entries for one owner; remove some.")
            if not self._has_room(_ALL, size, limits.entries, limits.bytes):
                raise self._refused(507, "This registry is full.")
        values = (kind, id, payer, size, at, gone)
        self._database.execute("INSERT INTO held VALUES (?, ?, ?, ?, ?, ?)", values)

    def drop(self, kind: str, id: str) -> None:
        self._database.execute("DELETE FROM held WHERE kind = ? AND id = ?", (kind, id))

    def _has_room(self, payer: str, size: int, entries: int, most: int) -> bool:
        for _ in range(ATTEMPTS):
            held, bytes = self._usage(payer)
            if held < entries and bytes + size <= most:
                return True
            if not self.make_room(payer, ENTRIES_PER_REMOVAL):
                break
        return False

    @property
    def excess(self) -> int:
        """
        The number of entries beyond the limit, approximately. A file of an earlier version may have some.
        """
        entries, bytes = self._usage(_ALL)
        return max(entries - self.limits.entries, ENTRIES_PER_REMOVAL if bytes > self.limits.bytes else 0)

    def _usage(self, payer: str) -> tuple[int, int]:
        found = self._database.execute("SELECT entries, bytes FROM usage WHERE payer = ?", (payer,))
        return found.fetchone() or (0, 0)

    def _refused(self, status: int, text: str) -> NoRoom:
        self.counts.refused[status] += 1
        return NoRoom(status, text)

    def note(self, written: int) -> None:
        """
        Count the bytes written, and update the metrics.
        """
        self.counts.entries, self.counts.bytes = self._usage(_ALL)
        self._written += written
        if self._written > CHECKPOINT_BYTES:
            self._written = 0
            self.full()
