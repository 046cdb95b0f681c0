"""
The batch of all streams: their records of one turn are written together, and each part then goes on.
"""

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.links.stream.common import Committed
from msgnode.links.stream.storage.store import StreamStore

RETRY_SECONDS = 1.0  # between attempts to write to a failing disk


class Batch:
    """
    The parts that have a record in the batch. It is written in this turn or the next.
    """

    def __init__(self, store: StreamStore, clock: IReactorTime) -> None:
        self.running = False
        self._store = store
        self._clock = clock
        self._waiting: dict[Committed, None] = {}
        self._asked = False  # the store calls when it is written
        self._flush: IDelayedCall | None = None

    def add(self, part: Committed) -> None:
        """
        Note that a record of `part` is in the batch.
        """
        self._waiting[part] = None
        if not self._asked:
            self._asked = True
            self._store.when_written(self._written)
        if self._flush is None and self.running:
            self._flush = self._clock.callLater(0, self._settle)

    def has(self, part: Committed) -> bool:
        return part in self._waiting

    def remove(self, part: Committed) -> None:
        self._waiting.pop(part, None)

    def stop(self) -> None:
        self.running = False
        if self._flush is not None and self._flush.active():
            self._flush.cancel()
        self._flush = None

    def _settle(self) -> None:
        self._flush = None
        self._store.settle()
        if self._waiting and self._flush is None and self.running:
            self._flush = self._clock.callLater(RETRY_SECONDS, self._settle)

    def _written(self) -> None:
        self._asked = False
        waiting, self._waiting = self._waiting, {}
        if self.running:
            for part in waiting:
                part.written()
