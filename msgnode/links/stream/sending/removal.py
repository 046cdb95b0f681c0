"""
The removal of entries from a backlog, some of them in each turn.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.links.stream.sending.entry import Entry

TURN_MESSAGES = 128  # removed in one turn of the event loop

Queue = tuple[int, deque[Entry]]  # of one lane
Leave = Callable[[int, Entry], bool]
Done = Callable[[list[Queue]], None]


class Removal:
    """
    The queues that leave a backlog, with their lanes: a bounded number of entries in each turn, in order.

    Until it leaves, an entry is on disk as before: after a kill it waits again.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self.on_idle: Callable[[], None] = lambda: None  # all have left
        self._clock = clock
        self._queues: deque[Queue] = deque()
        self._stayed: dict[int, deque[Entry]] = {}
        self._leave: Leave = lambda priority, entry: True
        self._done: Done = lambda stayed: None
        self._also: Callable[[Entry], bool] = lambda entry: False
        self._timer: IDelayedCall | None = None
        self._running = False

    @property
    def is_running(self) -> bool:
        return self._running

    def takes(self, entry: Entry) -> bool:
        """
        Is it an entry that leaves although it is new?
        """
        return self._running and self._also(entry)

    def add(self, priority: int, entry: Entry) -> None:
        """
        Remove one more, after all others.
        """
        if not self._queues or self._queues[-1][0] != priority:
            self._queues.append((priority, deque()))
        self._queues[-1][1].append(entry)

    def waiting(self) -> Iterator[tuple[int, Entry]]:
        """
        The entries that have not left, each with its lane.
        """
        for priority, entries in [*self._queues, *self._stayed.items()]:
            yield from ((priority, entry) for entry in entries.copy() if not entry.settled)

    def begin(
        self,
        queues: Iterable[Queue],
        leave: Leave,
        done: Done = lambda stayed: None,
        also: Callable[[Entry], bool] = lambda entry: False,
    ) -> None:
        """
        Remove these entries by calling `leave` for each, and for those that an earlier removal has left; the
        first of them now. Those for which it returns False stay: `done` gets them after the last. New entries
        of which `also` is true are removed, too.
        """
        before = self._done if self._running else None
        if before is not None:  # an order that is replaced is over
            self._queues.extendleft(reversed(self._stayed.items()))
            self._stayed = {}
        self._queues.extend(queues)
        self._leave, self._done, self._also = leave, done, also
        if before is not None:
            before([])
            return
        self._running = True
        self._step()

    def stop(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def _step(self) -> None:
        self._timer = None
        left = TURN_MESSAGES
        while left and self._queues:
            priority, entries = self._queues[0]
            if not entries:
                self._queues.popleft()
                continue
            left -= 1
            entry = entries.popleft()
            if not entry.settled and not self._leave(priority, entry):
                self._stayed.setdefault(priority, deque()).append(entry)
        if self._queues:
            self._timer = self._clock.callLater(0, self._step)
            return
        self._running = False
        done, self._done = self._done, lambda stayed: None
        stayed, self._stayed = self._stayed, {}
        done(list(stayed.items()))
        self.on_idle()
