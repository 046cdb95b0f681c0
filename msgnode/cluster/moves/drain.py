"""
Draining: all sessions of this node are handed over to other members, in slices.
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
    sessions; `give` hands one over to one of them, if it is still here.
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
        self._left: deque[str] = deque()
        self._waiting: list[Deferred[None]] = []
        self._turn: IDelayedCall | None = None

    def begin(self) -> Deferred[None]:
        """
        Hand over all sessions. Fires when the other members have all of them with what waits for them, or
        when there is no other member any more: the rest goes on when this node is started again.
        """
        over: Deferred[None] = Deferred()
        self._waiting.append(over)
        if self._turn is None:
            self._left.extend(self._names())
            self._turn = self._clock.callLater(0, self._step)
        return over

    def stop(self) -> None:
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        self._fire()

    def _step(self) -> None:
        self._turn = None
        targets = self._targets()
        leaving = self._moves.leaving_to(targets)
        if not targets or not (self._left or leaving or self._moves.is_releasing):
            log.info("{count} sessions were handed over to other members", count=self.handed_over)
            self._fire()
            return
        for _ in range(PER_TURN if leaving < AT_ONCE else 0):
            if self._left:
                target = targets[self.handed_over % len(targets)]
                self.handed_over += self._give(self._left.popleft(), target)
        is_busy = leaving >= AT_ONCE or not self._left
        self._turn = self._clock.callLater(LOOK_SECONDS if is_busy else 0, self._step)

    def _fire(self) -> None:
        waiting, self._waiting = self._waiting, []
        for over in waiting:
            over.callback(None)
