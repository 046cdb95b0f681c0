"""
Streams over the simulated overlays: some nodes send each other messages, and a ledger judges what came.
"""

import random
import shutil
from ast import literal_eval
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgnode.links.overlay.overlay import Overlay
from msgnode.links.stream.common import StreamLimits
from msgnode.links.stream.node_streams import NodeStreams
from msgnode.links.stream.safety.node_keys import KeyRing, PrivateKeys
from msgnode.links.stream.storage import epochs
from msgnode.links.stream.storage.spool_store import SpoolStreamStore
from msgnode.links.stream.streams import Envelope, NoRoom, Outcome, part_of
from msgnode.sessions.journal import DeliveryJournal
from msgnode.sessions.queue import FOREVER
from msgnode.storage.spool import Spool, write_all
from simulating.clock import HeapClock

LIMITS = StreamLimits(
    queue_messages=500,
    queue_bytes=4_000_000,
    message_bytes=100_000,
    memory_bytes=2_000_000,
    receive_bytes=1_000_000,
    pending_bytes=1_000_000,
)
MAX_MEMORY_BYTES = LIMITS.memory_bytes + LIMITS.receive_bytes + LIMITS.pending_bytes
LANES = (1, 5, 5, 7)
TTL_MILLIS = (3000, 10**7, 10**7, 10**7)
SIZES = (10, 10, 3000, 40_000)
LEARNT_SECONDS = 90.0  # in which all learn of a new start: damping holds a link for a minute
RECEIVED, TOLD, SENT = 1, 2, 3  # the sids of what a node keeps of them

Id = tuple[bytes, int]


class Ledger:
    """
    What all nodes with streams have sent, received and were told, as their disks have it.

    The numbers of ids rise over all nodes. `forgot` has the newest number when a node came back without its
    disk, `doubtful` the newest one that others may have sent before they learnt of that.
    """

    def __init__(self) -> None:
        self.number = 0
        self.sent: dict[Id, tuple[str, str, int]] = {}  # source, destination, lane
        self.told: dict[Id, list[str]] = {}
        self.received: dict[str, list[Id]] = {}
        self.forgot: dict[str, int] = {}
        self.doubtful: dict[str, int] = {}
        self.refused = 0  # because a queue was full, which the sender was told at once

    def reasons(self) -> dict[str, int]:
        """
        How many messages had each outcome.
        """
        return dict(Counter(reason for told in self.told.values() for reason in told))

    def judge(self) -> list[str]:
        """
        The promises that were broken, in words.
        """
        times = {name: Counter(ids) for name, ids in self.received.items()}
        broken = []
        for id, (source, destination, _) in self.sent.items():
            came, told = times[destination][id], self.told[id]
            has_forgotten = id[1] <= self.forgot.get(destination, 0)
            wrong = "came twice" if came > 1 else ""
            if id[1] > self.forgot.get(source, 0):
                if len(told) != 1:
                    wrong = "silence" if not told else "told twice"
                elif not has_forgotten and (told == ["acknowledged"]) != bool(came):
                    wrong = "told otherwise"
                elif told[0] == "in-doubt" and id[1] <= self.doubtful.get(destination, 0):
                    pass
                elif not has_forgotten and told[0] not in ("acknowledged", "stale"):
                    wrong = "in doubt without a cause"
            if wrong:
                broken.append(f"{wrong}: {id[1]} from {source} to {destination}: told {told}, came {came}")
        return broken + [each for name in self.received for each in self._disordered(name)]

    def _disordered(self, name: str) -> Iterator[str]:
        last: dict[tuple[str, int], int] = {}
        for id in self.received[name]:
            source, _, lane = self.sent[id]
            if id[1] < last.get((source, lane), 0):
                yield f"out of order: {id[1]} from {source} came to {name} after {last[source, lane]}"
            last[source, lane] = id[1]


class StreamEnd:
    """
    The streams of one node, with a spool in a directory; the listener of them (StreamListener).
    """

    def __init__(
        self, name: str, ledger: Ledger, directory: Path, clock: HeapClock, chance: random.Random
    ) -> None:
        self.name = name
        self.streams: NodeStreams | None = None
        self.ring = self.new_keys(clock)
        self._ledger = ledger
        self._directory = directory
        self._clock = clock
        self._chance = chance
        self._keys = 0  # of records of this node's own
        self._spool: Spool | None = None
        self._is_dead = False
        ledger.received[name] = []

    def new_keys(self, clock: HeapClock) -> KeyRing:
        """
        The keys of the next start, which the overlay advertises.
        """
        self.ring = KeyRing(PrivateKeys.generate(), clock)
        return self.ring

    def start(self, overlay: Overlay) -> None:
        self._is_dead = False
        if not self._directory.exists():
            # What was sent while it was away is in doubt, too.
            self._ledger.forgot[self.name] = self._ledger.number
            self._ledger.received[self.name] = []
            self._clock.callLater(LEARNT_SECONDS, self._learnt)
        self._directory.mkdir(exist_ok=True)
        self._spool = Spool(self._directory / "spool", write=self._write)
        found = self._spool.open()
        journal = DeliveryJournal(
            self._spool, 1 << 30, _ignore, _ignore, _ignore, self._clock, self._clock.seconds
        )
        store = SpoolStreamStore(journal)
        self._restore(found)
        next_epoch = epochs.load(self._directory, self.name, random_bytes=self._chance.randbytes)
        self.streams = NodeStreams(overlay, store, self.ring, self._clock, next_epoch, LIMITS)
        self.streams.start(self, store.recover(found))

    def _learnt(self) -> None:
        self._ledger.doubtful[self.name] = self._ledger.number

    def _restore(self, found: Any) -> None:
        """
        Take back what was not on disk when the node was killed, unless the disk is lost as well.
        """
        ledger = self._ledger
        if ledger.forgot.get(self.name) == ledger.number:
            return
        kept = {id for (id,) in self._read(found, SENT)}
        for id, (source, _, _) in list(ledger.sent.items()):
            if source == self.name and id[1] > ledger.forgot.get(source, 0):
                ledger.told[id] = []
                if id not in kept:
                    del ledger.sent[id], ledger.told[id]
        for id, reason in self._read(found, TOLD):
            ledger.told[id].append(reason)
        ledger.received[self.name] = [id for (id,) in self._read(found, RECEIVED)]

    def _read(self, found: Any, sid: int) -> Iterator[tuple[Any, ...]]:
        assert self._spool is not None
        for record in found[sid].kept if sid in found else ():
            self._keys = max(self._keys, record.key)
            yield literal_eval(self._spool.read(record.place, record.size).decode())

    def _record(self, sid: int, *values: object) -> None:
        assert self._spool is not None
        self._keys += 1
        self._spool.append(sid, self._keys, repr(values).encode(), FOREVER, 5, 0, 0)

    def kill(self, remembers: bool) -> None:
        """
        End as by kill -9: what is not on disk is lost; without its disk, everything is.
        """
        assert self.streams is not None and self._spool is not None
        self.streams.stop()
        self.streams = None
        self._is_dead = True
        self._spool.close()
        if not remembers:
            shutil.rmtree(self._directory)

    def _write(self, file: int, parts: list[bytes]) -> None:
        if self._is_dead:
            raise OSError(28, "No space left on device")
        write_all(file, parts)

    # -- messages --------------------------------------------------------------------

    def send(self, to: str) -> None:
        """
        Send a message of some lane, size and time to live.
        """
        ledger, chance = self._ledger, self._chance
        ledger.number += 1
        id, lane = (self.name.encode(), ledger.number), chance.choice(LANES)
        envelope = Envelope(kind="message", id=id, priority=lane, ttl_millis=chance.choice(TTL_MILLIS))
        assert self.streams is not None
        ledger.sent[id], ledger.told[id] = (self.name, to, lane), []
        try:
            self.streams.send(to, envelope, chance.randbytes(chance.choice(SIZES)), self._done)
        except NoRoom:
            ledger.refused += 1
            del ledger.sent[id], ledger.told[id]
            return
        self._record(SENT, id)

    def _done(self, envelope: Envelope, outcome: Outcome) -> None:
        self._ledger.told[envelope.id].append(outcome.reason)
        self._record(TOLD, envelope.id, outcome.reason)

    def received(
        self, source: str, envelope: Envelope, payload: bytes, path: Any, done: Callable[[], None]
    ) -> None:
        self._ledger.received[self.name].append(envelope.id)
        self._record(RECEIVED, envelope.id)
        done()

    def received_several(
        self,
        source: str,
        envelope: Envelope,
        payloads: Iterator[bytes],
        path: Any,
        keep: Callable[[], Callable[[], None]],
    ) -> None:
        for index, payload in enumerate(payloads):
            self.received(source, part_of(envelope, index), payload, path, _ignore)

    def ended(self, destination: str, envelope: Envelope, payload: bytes, outcome: Outcome) -> None:
        self._done(envelope, outcome)

    def restarted(self, source: str) -> None:
        """
        Nothing is subscribed to.
        """


def _ignore(*arguments: object) -> None:
    """
    There are no sessions.
    """
