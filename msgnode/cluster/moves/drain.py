"""
Draining: all sessions of this node are handed over to other members, a few in each turn of the event loop.
"""

from collections import deque
from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from msgnode.cluster.moves.moves import Moves

log = Logger()

AT_ONCE = 500  # handovers under way
PER_TURN = 25  # sessions that are released in one turn of the event loop
LOOK_SECONDS = 0.02  # between two looks, while so many are under way


class Drain:
    """
    A drain of this node. `names` gives the sessions that are held here, `targets` the members that take
    sessions; `give` hands one over to one of them, and is False if it is not here any more, or not yet.
    """

    def __init__(
        self,
        moves: Moves,
        names: Callable[[], list[str]],
        targets: Callable[[], list[str]],
        give: Callable[[str, str], bool],
        clock: IReactorTime,
    ) -> None:
        self.handed_over = 0
        self._moves = moves
        self._names = names
        self._targets = targets
        self._give = give
        self._clock = clock
        self._until = 0.0
        self._left: deque[str] = deque()
        self._waiting: list[Deferred[None]] = []
        self._turn: IDelayedCall | None = None

    def begin(self, seconds: float) -> Deferred[None]:
        """
        Hand over all sessions. Fires when the other members have all of them with what waits for them, when
        there is no other member any more, or after so many seconds: the rest goes on when this node is
        started again.
        """
        over: Deferred[None] = Deferred()
        self._waiting.append(over)
        self._until = self._clock.seconds() + seconds
        if self._turn is None:
            self._left.extend(self._names())
            self._turn = self._clock.callLater(0, self._step)
        return over

    def stop(self) -> None:
        """
        Hand over no more.
        """
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        self._left.clear()
        self._fire()

    def _step(self) -> None:
        self._turn = None
        targets = self._targets()
        leaving = self._moves.leaving_to(targets)
        if not self._left:
            self._left.extend(self._names())  # some came meanwhile, or could not be handed over yet
        is_done = not (self._left or leaving or self._moves.is_releasing)
        if is_done or not targets or self._clock.seconds() >= self._until:
            self._end(leaving)
            return
        before = self.handed_over
        for _ in range(min(PER_TURN, len(self._left)) if leaving < AT_ONCE else 0):
            target = targets[self.handed_over % len(targets)]
            self.handed_over += self._give(self._left.popleft(), target)
        must_wait = self.handed_over == before or not self._left
        self._turn = self._clock.callLater(LOOK_SECONDS if must_wait else 0, self._step)

    def _end(self, leaving: int) -> None:
        log.info("{count} sessions were handed over to other members", count=self.handed_over - leaving)
        left = len(self._names()) + leaving
        if left:
            log.warn("{count} sessions could not be handed over; they wait for this node's start", count=left)
        self.stop()

    def _fire(self) -> None:
        waiting, self._waiting = self._waiting, []
        for over in waiting:
            over.callback(None)
