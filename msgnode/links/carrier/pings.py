"""
Pings on a connection of a link: they detect a silent peer and measure the round trip.
"""

import random
from collections import OrderedDict, deque
from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

PING_SECONDS = 10.0
FIRST_SECONDS = 1.0  # between the first pings
FIRST_PINGS = 4
MAX_MISSED = 3
SAMPLES = (
    4  # the least of the last few counts: one slow answer, of a node that is busy, says nothing of the way
)


class Pings:
    """
    The pings of one connection, `every` so many seconds after the first few. `silent` is called when one is
    unanswered for as long as three take.

    A ping has a random number, so that a peer cannot answer before the question and appear nearer.
    """

    def __init__(
        self,
        clock: IReactorTime,
        chance: random.Random,
        send: Callable[[int], None],
        silent: Callable[[], None],
        measured: Callable[[], None],
        every: float = PING_SECONDS,
    ) -> None:
        self.round_trip: float | None = None
        self._clock = clock
        self._chance = chance
        self._send = send
        self._silent = silent
        self._measured = measured
        self._every = every
        self._pending: OrderedDict[int, float] = OrderedDict()  # number, time
        self._probes: list[tuple[int, Callable[[], None]]] = []
        self._timer: IDelayedCall | None = None
        self._made = 0
        self._samples: deque[float] = deque(maxlen=SAMPLES)

    def start(self) -> None:
        """
        Send the first ping, and the others in time.
        """
        self._ping_again()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._probes.clear()

    def probe(self, answered: Callable[[], None]) -> None:
        """
        Send a ping at once, and call `answered` when it, or a later one, is answered.
        """
        self._probes.append((self._ping(), answered))

    def pong(self, number: int) -> None:
        """
        The peer answered. A number that is not awaited is ignored.
        """
        sent = self._pending.get(number)
        if sent is None:
            return
        answered = set()
        for earlier in list(self._pending):
            del self._pending[earlier]
            answered.add(earlier)
            if earlier == number:
                break
        sample = self._clock.seconds() - sent
        self._samples.append(sample)
        self.round_trip = min(self._samples)
        self._measured()
        probes = [probe for probe in self._probes if probe[0] in answered]
        self._probes = [probe for probe in self._probes if probe[0] not in answered]
        for _, call in probes:
            call()

    def _tick(self) -> None:
        self._timer = None
        oldest = next(iter(self._pending.values()), None)
        if oldest is not None and self._clock.seconds() - oldest >= MAX_MISSED * self._every:
            self._silent()
            return
        self._ping_again()

    def _ping_again(self) -> None:
        self._made += 1
        seconds = FIRST_SECONDS if self._made < FIRST_PINGS else self._every
        self._timer = self._clock.callLater(seconds, self._tick)
        self._ping()

    def _ping(self) -> int:
        number = self._chance.getrandbits(48)
        self._pending[number] = self._clock.seconds()
        self._send(number)
        return number
