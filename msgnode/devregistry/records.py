"""
The records of the domain registry: hyperties and data objects, and their life cycle.

A record that is deleted, or not kept alive, becomes `disconnected`, and is reported once to the poll for
changes. It is removed after a time, or when room is needed for others.
"""

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from sqlite3 import Connection
from typing import Any, NamedTuple

import msgspec

from msgnode.devregistry.database import transaction
from msgnode.devregistry.fields import HYPERTY, KINDS, InvalidField, Kind
from msgnode.devregistry.quota import Quota

DISCONNECTED, LIVE = "disconnected", "live"


SELECT = "SELECT kind, id, status, expires, starting, modified, fields FROM record WHERE"
WRITE = "INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
CHANGED = "INSERT OR IGNORE INTO updated VALUES (?, ?)"
UNCHANGED = "DELETE FROM updated WHERE kind = ? AND id = ?"


OWN = """INSERT OR REPLACE INTO owner SELECT ?, ?
    WHERE (SELECT count(*) FROM owner WHERE user = ?) < ?"""
DISOWN = "DELETE FROM owner WHERE user = ? AND NOT EXISTS (SELECT 1 FROM record WHERE record.user = ?)"
MAX_GUIDS = 100  # of one user
MAX_LIFE_SECONDS = 30 * 86400  # seconds that an update may set
MAX_SWEPT = 1000  # records swept in one turn
MAX_FOUND = 1000  # records in an answer, newest first
MAX_FOUND_BYTES = 2 * 1024 * 1024  # bytes of them
VACUUM_PAGES = 2000  # free pages returned to the disk in one turn


class NoRecord(KeyError):
    """
    The error of a change to a record that does not exist.
    """


class Due(NamedTuple):
    """
    A record that has expired.
    """

    kind: str
    id: str
    status: str


class Row(NamedTuple):
    """
    A row of the table of records.
    """

    kind: str
    id: str
    status: str
    expires: int
    starting: float
    modified: float
    fields: str


class Records:
    """
    The table of records of the domain registry.

    `wall` gives seconds since 1970; `longest` is the longest time in seconds that a record lives without a
    keep-alive.
    """

    def __init__(
        self,
        database: Connection,
        wall: Callable[[], float],
        longest: int = 3600,
        quota: Quota | None = None,
    ) -> None:
        self._quota = quota = quota or Quota(database)
        quota.make_room = self._make_room
        self._database = database
        self._wall = wall
        self._longest = longest

    # -- writing -------------------------------------------------------------

    def check(self, size: int) -> None:
        """
        NoRoom if a body of `size` bytes is too large for any entry.
        """
        self._quota.check(size)

    def create(self, kind: Kind, id: str, fields: dict[str, Any], user: str | None = None) -> bool:
        """
        Create or replace a record. False if the address belongs to another user's hyperty.
        """
        now = self._wall()
        with transaction(self._database):
            row = self._row(kind, id)
            if row is not None and user is not None and msgspec.json.decode(row.fields)["userID"] != user:
                return False
            fields = {**fields, "expires": min(fields["expires"], self._longest)}
            if user is not None:
                fields["userID"] = user
                if row is None and "guid" in fields:
                    self._database.execute(OWN, (fields["guid"], user, user, MAX_GUIDS))
            size = self._write(kind, id, fields, now if row is None else row.starting, now)
        self._quota.note(size)
        return True

    def update(self, kind: Kind, id: str, fields: dict[str, Any]) -> bool:
        """
        Change fields of a record. Returns whether its status changed. NoRecord if there is none.
        """
        with transaction(self._database):
            row = self._row(kind, id)
            if row is None:
                raise NoRecord(id)
            before = {**msgspec.json.decode(row.fields), "status": row.status, "expires": row.expires}
            if fields.get("userID", before.get("userID")) != before.get("userID"):
                raise InvalidField("'userID' cannot change")
            if fields.get("expires", 0) > MAX_LIFE_SECONDS:
                fields = {**fields, "expires": MAX_LIFE_SECONDS}
            size = self._write(kind, id, {**before, **fields}, row.starting, self._wall())
        self._quota.note(size)
        return bool(fields.get("status", row.status) != row.status)

    def keep_alive(self, kind: Kind, id: str) -> bool:
        """
        Set a record to live, like an update.
        """
        return self.update(kind, id, {"status": LIVE})

    def delete(self, user: str, id: str) -> bool:
        """
        Disconnect a hyperty of the user. False if there is none.
        """
        with transaction(self._database):
            row = self._row(HYPERTY, id)
            if row is None or msgspec.json.decode(row.fields)["userID"] != user:
                return False
            self._disconnect([row])
            return True

    def _write(self, kind: Kind, id: str, fields: dict[str, Any], starting: float, now: float) -> int:
        rest = {name: value for name, value in fields.items() if name not in ("status", "expires")}
        user = fields.get("userID")
        indexed = (
            user,
            user.rstrip("/").rpartition("/")[2] if user is not None else None,
            fields.get("name"),
            fields.get("reporter"),
        )
        times = (fields["status"], fields["expires"], starting, now)
        encoded = msgspec.json.encode(rest)
        size = len(encoded) + len(fields["status"])
        self._quota.take(kind.name, id, size, now, fields["status"] == DISCONNECTED, user or "")
        self._database.execute(WRITE, (kind.name, id, *indexed, *times, encoded.decode()))
        self._database.execute(UNCHANGED, (kind.name, id))
        return size

    def _make_room(self, payer: str, number: int) -> int:
        """
        Remove the oldest disconnected entries, of all or of one payer. Returns their number.
        """
        of_payer = "payer = ? AND" if payer else ""
        found = self._database.execute(
            f"SELECT kind, id FROM held WHERE {of_payer} gone ORDER BY at LIMIT ?",
            (payer, number) if payer else (number,),
        )
        return self._remove(found.fetchall())

    def _remove(self, found: list[tuple[str, str]]) -> int:
        execute = self._database.execute
        for kind, id in found:
            (user,) = execute("SELECT user FROM record WHERE kind = ? AND id = ?", (kind, id)).fetchone()
            execute("DELETE FROM record WHERE kind = ? AND id = ?", (kind, id))
            execute(UNCHANGED, (kind, id))
            self._quota.drop(kind, id)
            if user is not None:
                execute(DISOWN, (user, user))
        return len(found)

    def _disconnect(self, rows: Iterable[Row | Due]) -> None:
        for row in rows:
            if row.status != DISCONNECTED:
                self._database.execute(
                    "UPDATE record SET status = ? WHERE kind = ? AND id = ?", (DISCONNECTED, row.kind, row.id)
                )
                self._database.execute(CHANGED, (row.kind, row.id))

    # -- reading -------------------------------------------------------------

    def get(self, kind: Kind, id: str) -> dict[str, Any] | None:
        """
        The record at an address, or None.
        """
        return self._found(kind, "id = ?", id).get(id)

    def find(self, kind: Kind, by: str, value: str) -> dict[str, dict[str, Any]]:
        """
        The records with this `user`, `email`, `guid`, `name` or `reporter`, by address.
        """
        if by == "guid":
            return self._found(kind, "user = (SELECT user FROM owner WHERE guid = ?)", value)
        return self._found(kind, f"{by} = ?", value)

    def sweep(self) -> bool:
        """
        Disconnect expired records, and remove old disconnected ones; a limited number in one turn. True if
        there are more.
        """
        now, execute = self._wall(), self._database.execute
        due = f"status != '{DISCONNECTED}' AND modified + expires <= ? LIMIT ?"
        old = "SELECT kind, id FROM held WHERE gone AND at <= ? ORDER BY at LIMIT ?"
        with transaction(self._database):
            over = execute(
                f"SELECT kind, id, status FROM record WHERE {due}", (now - 1, MAX_SWEPT)
            ).fetchall()
            self._disconnect(map(Due._make, over))
            gone = execute(old, (now - self._longest - self._quota.limits.retention, MAX_SWEPT)).fetchall()
            self._remove(gone)
            excess = min(self._quota.excess, MAX_SWEPT)
            trimmed = self._make_room("", excess) if excess > 0 else 0
        self._quota.note(0)
        if gone or trimmed:
            # `execute` would stop after the first page.
            self._database.executescript(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")
        return bool(trimmed) or MAX_SWEPT in (len(over), len(gone))

    def take_updated(self) -> dict[str, dict[str, Any]]:
        """
        The records that were disconnected since the last call.
        """
        with transaction(self._database):
            some = f"{SELECT} (kind, id) IN (SELECT kind, id FROM updated LIMIT ?)"
            taken = _as_many(self._database.execute(some, (MAX_FOUND,)))
            self._database.executemany(UNCHANGED, [(row.kind, row.id) for row in taken])
        return {row.id: _as_record(row) for row in taken}

    def count(self) -> int:
        """
        The number of hyperties, live or disconnected.
        """
        (found,) = self._database.execute("SELECT count(*) FROM record WHERE kind = 'hyperty'").fetchone()
        return int(found)

    def _row(self, kind: Kind, id: str) -> Row | None:
        row = self._database.execute(f"{SELECT} kind = ? AND id = ?", (kind.name, id)).fetchone()
        return None if row is None else Row(*row)

    def _found(self, kind: Kind, where: str, value: str) -> dict[str, dict[str, Any]]:
        newest = f"{SELECT} kind = ? AND {where} ORDER BY modified DESC"
        rows = _as_many(self._database.execute(newest, (kind.name, value)))
        return {row.id: _as_record(row) for row in self._expired(rows)}

    def _expired(self, rows: list[Row]) -> Iterator[Row]:
        """
        The rows with their present status: some may have expired since the last sweep.
        """
        now = self._wall()
        over = [row for row in rows if row.status != DISCONNECTED and int(now - row.modified) > row.expires]
        if over:
            # A full disk must not prevent reading; the sweep stores it later.
            with suppress(sqlite3.OperationalError), transaction(self._database):
                self._disconnect(over)
        gone = {row.id for row in over}
        return (row._replace(status=DISCONNECTED) if row.id in gone else row for row in rows)


def _as_many(rows: Iterable[tuple[Any, ...]]) -> list[Row]:
    """
    As many rows as one answer may have.
    """
    found: list[Row] = []
    size = 0
    for row in map(Row._make, rows):
        size += len(row.fields)
        if len(found) == MAX_FOUND or (found and size > MAX_FOUND_BYTES):
            break
        found.append(row)
    return found


def _as_record(row: Row) -> dict[str, Any]:
    return {
        **msgspec.json.decode(row.fields),
        KINDS[row.kind].key: row.id,
        "status": row.status,
        "expires": row.expires,
        "startingTime": _time(row.starting),
        "lastModified": _time(row.modified),
    }


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
