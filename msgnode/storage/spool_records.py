"""
The records of the spool, and how a session is recovered from them.

A record begins with its kind, one byte. The place of a message is the number of its segment and its offset
there.
"""

from collections import defaultdict
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

KEEP = Struct("<BQQIIdBQQ")  # 1, sid, key, offset in the batch, size, until, priority, asker, number
LEFT = Struct("<BQQQ")  # 2, sid, key, number
GONE = Struct("<BQQB")  # 3, sid, key, missed
ACKNOWLEDGED = Struct("<BQQ")  # 4, sid, number
HEARD = Struct("<BQQI")  # 5, sid, received, number of pending; each follows in 8 bytes
STATE = Struct("<BQBI")  # 6, sid, fresh, length; the bytes follow
FORGET = Struct("<BQ")  # 7, sid
KEEP_HERE = Struct("<BQQIdBQQ")  # 8, sid, key, size, until, priority, asker, number; the bytes follow
NOTHING_BEFORE = 9  # the kind only: everything before is void
AFTER = Struct("<BQQ")  # 10, number of the segment before this one, its length in bytes
ACCEPTED = Struct("<BQ")  # 11, number of a segment: it and older ones may be missing or short
KNOWN = Struct("<BQQ")  # 12, number of a segment, its length in bytes, whatever ACCEPTED said before
COPIES = Struct("<BQBI")  # 13, sid, length of the instance, number of copies; the instance and those follow
COPY = Struct("<QQ")  # key, number: the message with that key has copies, whose id is instance and number

MAX_NUMBER = (1 << 64) - 1  # of a copy; a node gives out no others
MAX_COPIES = 100_000  # whose ids are remembered for one session


class PendingRecord(NamedTuple):
    """
    An undelivered message.
    """

    key: int
    place: int
    size: int
    until: float  # by the wall clock
    priority: int
    asker: int
    number: int  # 0: it is queued and was never sent


class SessionRecovery:
    """
    The recovery of one session from its records.

    `kept` has the unacknowledged messages by number, then the queued ones by key. `missed` counts the
    messages dropped since `state` was written. `copies` has the ids of copies by key, also of messages that
    were delivered.
    """

    def __init__(self) -> None:
        self.state: bytes | None = None
        self.acknowledged = self.sent = self.received = self.missed = self.next_key = 0
        self.pending: list[int] = []
        self.kept: list[PendingRecord] = []
        self.notes: dict[int, PendingRecord] = {}
        self.copies: dict[int, tuple[bytes, int]] = {}

    def keep(self, note: PendingRecord) -> None:
        self.notes[note.key] = note
        self.next_key = max(self.next_key, note.key)
        self.sent = max(self.sent, note.number)

    def finish(self) -> None:
        notes = self.notes.values()
        sent = sorted((n for n in notes if n.number > self.acknowledged), key=lambda note: note.number)
        waiting = sorted((n for n in notes if not n.number), key=lambda note: note.key)
        self.kept = sent + waiting
        self.notes = {}


class History:
    """
    The order of the segments: which precedes which, how long each was, and where that is not checked.
    """

    def __init__(self) -> None:
        self.before: dict[int, tuple[int, int]] = {}
        self.accepted = 0  # this segment and older ones may be missing or short
        self.known: dict[int, int] = {}  # except these, with their length


class RecordReader:
    """
    Reads the batches of one segment and adds them to `found`, the sessions by sid, and to `history`.
    """

    def __init__(
        self, data: bytes, number: int, found: defaultdict[int, SessionRecovery], history: History
    ) -> None:
        self._data = data
        self._number = number
        self._history = history
        self._file = number << 40
        self._found = found
        self._start = 0
        self._readers: dict[int, Callable[[int], int]] = {
            1: self._keep,
            2: self._left,
            3: self._gone,
            4: self._acknowledged,
            5: self._heard,
            6: self._state,
            7: self._forget,
            8: self._keep_here,
            NOTHING_BEFORE: self._nothing_before,
            10: self._after,
            11: self._accept,
            12: self._know,
            13: self._copies,
        }

    def batch(self, start: int, end: int) -> None:
        """
        Read the batch between two offsets. ValueError or struct.error if it is malformed.
        """
        self._start = at = start
        data, readers = self._data, self._readers
        while at < end:
            read = readers.get(data[at])
            if read is None:
                raise ValueError(f"no record of kind {data[at]}")
            at = read(at)
        if at != end:
            raise ValueError("the last record is cut")

    # Each reader takes the offset of its record, and returns the offset after it.

    def _keep(self, at: int) -> int:
        _, sid, key, offset, size, until, priority, asker, number = KEEP.unpack_from(self._data, at)
        place = self._file | self._start + offset
        self._found[sid].keep(PendingRecord(key, place, size, until, priority, asker, number))
        return at + KEEP.size

    def _keep_here(self, at: int) -> int:
        _, sid, key, size, until, priority, asker, number = KEEP_HERE.unpack_from(self._data, at)
        at += KEEP_HERE.size
        self._found[sid].keep(PendingRecord(key, self._file | at, size, until, priority, asker, number))
        return at + int(size)

    def _left(self, at: int) -> int:
        _, sid, key, number = LEFT.unpack_from(self._data, at)
        owed = self._found[sid]
        if key in owed.notes:
            owed.notes[key] = owed.notes[key]._replace(number=number)
        owed.sent = max(owed.sent, number)
        return at + LEFT.size

    def _gone(self, at: int) -> int:
        _, sid, key, missed = GONE.unpack_from(self._data, at)
        owed = self._found[sid]
        owed.notes.pop(key, None)
        owed.missed += missed
        return at + GONE.size

    def _acknowledged(self, at: int) -> int:
        _, sid, number = ACKNOWLEDGED.unpack_from(self._data, at)
        owed = self._found[sid]
        owed.acknowledged = max(owed.acknowledged, number)
        return at + ACKNOWLEDGED.size

    def _heard(self, at: int) -> int:
        _, sid, received, count = HEARD.unpack_from(self._data, at)
        owed = self._found[sid]
        at += HEARD.size
        end: int = at + 8 * count
        owed.received = received
        owed.pending = [int.from_bytes(self._data[p : p + 8], "little") for p in range(at, end, 8)]
        return end

    def _state(self, at: int) -> int:
        _, sid, fresh, size = STATE.unpack_from(self._data, at)
        owed = self._found[sid]
        if fresh:
            before, owed = owed, SessionRecovery()
            self._found[sid] = owed
            owed.next_key, owed.copies = before.next_key, before.copies
        at += STATE.size
        owed.state, owed.missed = self._data[at : at + size], 0
        return at + int(size)

    def _copies(self, at: int) -> int:
        _, sid, length, count = COPIES.unpack_from(self._data, at)
        at += COPIES.size
        instance, end = bytes(self._data[at : at + length]), at + length + count * COPY.size
        copies = self._found[sid].copies
        for key, number in COPY.iter_unpack(self._data[at + length : end]):
            copies[key] = instance, number
        while len(copies) > MAX_COPIES:
            del copies[next(iter(copies))]
        return int(end)

    def _forget(self, at: int) -> int:
        _, sid = FORGET.unpack_from(self._data, at)
        self._found.pop(sid, None)
        return at + FORGET.size

    def _nothing_before(self, at: int) -> int:
        self._found.clear()
        self._history.accepted = max(self._history.accepted, self._number - 1)
        self._history.known = {}
        return at + 1

    def _after(self, at: int) -> int:
        _, number, length = AFTER.unpack_from(self._data, at)
        self._history.before[self._number] = number, length
        return at + AFTER.size

    def _accept(self, at: int) -> int:
        _, number = ACCEPTED.unpack_from(self._data, at)
        history = self._history
        history.accepted = max(history.accepted, number)
        history.known = {known: length for known, length in history.known.items() if known > number}
        return at + ACCEPTED.size

    def _know(self, at: int) -> int:
        _, number, length = KNOWN.unpack_from(self._data, at)
        self._history.known[number] = length
        return at + KNOWN.size
