"""
The spool against a model that is only dictionaries: restarts, torn ends, full disks, old files deleted.
"""

import copy
import errno
import os
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from msgnode.sessions.queue import QueuedMessage
from msgnode.storage import spool_end
from msgnode.storage.spool import Spool, segment_of, write_all
from msgnode.storage.spool_records import SessionRecovery
from msgnode.storage.spool_recovery import examine, segments
from tests.support.fuzz import TIMES

FOREVER = float("inf")
SEGMENT = 300  # bytes; a few batches


@dataclass
class Owed:
    """
    What a session must be found with.
    """

    state: bytes | None = None
    acknowledged: int = 0
    sent: int = 0
    received: int = 0
    missed: int = 0
    pending: list[int] = field(default_factory=list)
    notes: dict[int, tuple[bytes, float, int, int, int]] = field(default_factory=dict)

    def kept(self) -> list[tuple[Any, ...]]:
        notes = [(key, *note) for key, note in self.notes.items()]
        sent = [note for note in notes if note[-1] > self.acknowledged]
        waiting = [note for note in notes if not note[-1]]
        return sorted(sent, key=lambda note: note[-1]) + sorted(waiting)


class Both:
    """
    A spool and the model of it; `after` has what held when the last file was so long.
    """

    def __init__(self, directory: Path, test: SynchronousTestCase) -> None:
        self.directory = directory
        self.test = test
        self.model: dict[int, Owed] = {}
        self.keys = 0
        self.full = False
        self.room = 0
        self.open()

    def open(self) -> dict[int, SessionRecovery]:
        self.spool = Spool(self.directory, segment_bytes=SEGMENT, write=self.write)
        found = self.spool.open()
        self.after: list[tuple[int, dict[int, Owed]]] = []
        self.last: Path | None = None
        self.settled()
        return found

    def write(self, file: int, parts: list[bytes]) -> None:
        data = b"".join(parts)
        if not self.full or len(data) <= self.room:
            write_all(file, parts)
        else:
            os.write(file, data[: self.room])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def settled(self) -> None:
        last = segments(self.directory)[-1]
        if last != self.last:
            self.last, self.after, self.floor = last, [], 0
        self.after.append((last.stat().st_size, copy.deepcopy(self.model)))

    # -- what may happen -----------------------------------------------------

    def keep(self, sids: list[int], data: bytes, until: float, priority: int) -> None:
        for sid in sids:
            self.keys += 1
            place = self.spool.append(sid, self.keys, data, until, priority, sid + 2**40, 0)
            self.test.assertEqual(data, self.spool.read(place, len(data)))
            owed = self.model.setdefault(sid, Owed())
            owed.notes[self.keys] = (data, until, priority, sid + 2**40, 0)

    def send(self, sids: list[int], data: bytes) -> None:
        sent = []
        for sid in sids:
            self.keys += 1
            owed = self.model.setdefault(sid, Owed())
            owed.sent += 1
            sent.append((sid, QueuedMessage(self.keys, data, len(data), FOREVER, 5, sid), owed.sent))
            owed.notes[self.keys] = (data, FOREVER, 5, sid, owed.sent)
        self.spool.append_sent(sent)
        for _, kept, _ in sent:
            self.test.assertEqual(data, self.spool.read(kept.place, len(data)))

    def _waiting(self, sid: int) -> int | None:
        notes = self.model[sid].notes if sid in self.model else {}
        return next((key for key, note in notes.items() if not note[-1]), None)

    def left(self, sid: int) -> None:
        key = self._waiting(sid)
        if key is not None:
            owed = self.model[sid]
            owed.sent += 1
            self.spool.sent(sid, key, owed.sent)
            owed.notes[key] = (*owed.notes[key][:-1], owed.sent)

    def gone(self, sid: int, missed: bool) -> None:
        key = self._waiting(sid)
        if key is not None:
            self.spool.removed(sid, key, missed)
            del self.model[sid].notes[key]
            self.model[sid].missed += missed

    def acknowledged(self, sid: int, number: int) -> None:
        owed = self.model.setdefault(sid, Owed())
        number = min(number, owed.sent)
        self.spool.acknowledged(sid, number)
        owed.acknowledged = max(owed.acknowledged, number)

    def heard(self, sid: int, received: int, pending: list[int]) -> None:
        self.spool.received(sid, received, pending)
        owed = self.model.setdefault(sid, Owed())
        owed.received, owed.pending = received, pending

    def state(self, sid: int, state: bytes, fresh: bool) -> None:
        self.spool.state(sid, state, fresh)
        if fresh:
            self.model[sid] = Owed()
        owed = self.model.setdefault(sid, Owed())
        owed.state, owed.missed = state, 0

    def forget(self, sid: int) -> None:
        self.spool.forget(sid)
        self.model.pop(sid, None)

    def settle(self) -> None:
        if self.spool.flush():
            self.settled()

    def disk(self, full: bool, room: int) -> None:
        self.full, self.room = full, room

    def sweep(self) -> None:
        """
        As the owner does it: all of every session that lies in the oldest file, once more.
        """
        self.disk(False, 0)
        self.settle()
        oldest = self.spool.oldest()
        if oldest is None:
            return
        found = self.restart(1)
        for sid, owed in self.model.items():
            self.state(sid, b"swept", False)
            self.spool.received(sid, owed.received, owed.pending)
            self.spool.acknowledged(sid, owed.acknowledged)
            for note in found[sid].kept:
                if segment_of(note.place) == oldest:
                    data = self.spool.read(note.place, note.size)
                    rest = (note.until, note.priority, note.asker, note.number)
                    self.spool.append(sid, note.key, data, *rest)
        self.settle()
        self.spool.drop_oldest()
        self.settled()
        # A kill tears no batch that was settled, so this one is not cut away.
        self.after = self.after[-1:]
        self.floor = self.after[0][0]

    def restart(self, cut: float) -> dict[int, SessionRecovery]:
        """
        The process ends; of the last file so much is there.
        """
        self.disk(False, 0)
        self.spool.close()
        assert self.last is not None
        end = self.floor + round((self.last.stat().st_size - self.floor) * cut)
        os.truncate(self.last, end)
        if cut < 1:
            (self.directory / spool_end.NAME).unlink(missing_ok=True)
        before = [model for size, model in self.after if size <= end]
        self.model = before[-1] if before else self.after[0][1]
        self.test.assertEqual([], examine(self.directory))
        found = self.open()
        self.test.assertEqual(self.model, self.as_model(found, self.model))
        return found

    def as_model(self, found: dict[int, SessionRecovery], model: dict[int, Owed]) -> dict[int, Owed]:
        shown = {}
        for sid, owed in found.items():
            expected = model.get(sid, Owed())
            read = [(n, self.spool.read(n.place, n.size)) for n in owed.kept]
            kept = [(n.key, data, n.until, n.priority, n.asker, n.number) for n, data in read]
            self.test.assertEqual(expected.kept(), kept)
            self.test.assertGreaterEqual(owed.next_key, max((note.key for note in owed.kept), default=0))
            numbers = [note.number for note in owed.kept]
            # What was acknowledged may have been in a file that is deleted.
            self.test.assertTrue(max([0, *numbers]) <= owed.sent <= expected.sent)
            shown[sid] = Owed(owed.state, owed.acknowledged, expected.sent, owed.received, owed.missed)
            shown[sid].pending, shown[sid].notes = owed.pending, expected.notes
        return shown


_sid = st.integers(1, 2)
_sids = st.lists(_sid, min_size=1, max_size=3)
_texts = st.sampled_from([b"", b"m", b"a message", b"x" * 90, bytes(40)])
_keep = st.tuples(st.just("keep"), _sids, _texts, st.sampled_from([FOREVER, 1e9, 0.5]), st.integers(0, 9))
_events = st.lists(
    st.one_of(
        _keep,
        _keep,
        st.tuples(st.just("send"), _sids, _texts),
        st.tuples(st.just("left"), _sid),
        st.tuples(st.just("gone"), _sid, st.booleans()),
        st.tuples(st.just("acknowledged"), _sid, st.integers(1, 6)),
        st.tuples(st.just("heard"), _sid, st.integers(0, 2**40), st.lists(st.integers(1, 2**40), max_size=3)),
        st.tuples(st.just("state"), _sid, st.sampled_from([b"{}", b"state"]), st.booleans()),
        st.tuples(st.just("forget"), _sid),
        st.tuples(st.just("settle")),
        st.tuples(st.just("settle")),
        st.tuples(st.just("disk"), st.booleans(), st.integers(0, 60)),
        st.tuples(st.just("sweep")),
        st.tuples(st.just("restart"), st.floats(0, 1)),
    ),
    min_size=20,
    max_size=60,
)


class MachineTests(SynchronousTestCase):
    """
    Whatever happens.
    """

    @settings(max_examples=30 * TIMES, deadline=None)
    @given(_events, st.floats(0, 1))
    def test_restarts(self, events: list[tuple[Any, ...]], cut: float) -> None:
        """
        What is found after a restart is what held after the last whole batch, wherever the file is cut.
        """
        with TemporaryDirectory() as where:
            both = Both(Path(where, "spool"), self)
            for kind, *details in events:
                getattr(both, kind)(*details)
            both.settle()
            both.restart(cut)
            both.spool.close()

    @settings(max_examples=20 * TIMES, deadline=None)
    @given(_events, st.floats(0, 1, exclude_max=True), st.integers(1, 255))
    def test_one_byte(self, events: list[tuple[Any, ...]], where: float, flip: int) -> None:
        """
        One byte changed in any file is damage.
        """
        with TemporaryDirectory() as directory:
            both = Both(Path(directory, "spool"), self)
            for kind, *details in events:
                getattr(both, kind)(*details)
            both.disk(False, 0)
            both.settle()
            both.spool.close()
            files = segments(both.directory)
            at = int(sum(path.stat().st_size for path in files) * where)
            for path in files:
                if at < path.stat().st_size:
                    break
                at -= path.stat().st_size
            data = bytearray(path.read_bytes())
            data[at] ^= flip
            path.write_bytes(data)

            self.assertEqual([str(path)], [text.partition(": ")[0] for text in examine(both.directory)])
