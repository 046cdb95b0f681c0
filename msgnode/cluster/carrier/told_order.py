"""
The order of payloads to a member: they have numbers, of which none is missing.

NATS delivers at most once. A receiver that misses a number asks for a new run, which begins with all there
is.
"""

from collections.abc import Callable

from msgnode.cluster.carrier.packets import At, Lost, Told


class ToldSender:
    """
    The numbers of what is sent to one member in one life of its link.
    """

    def __init__(self) -> None:
        self.run, self.number = 1, 0

    def next(self, payload: bytes) -> Told:
        self.number += 1
        return Told(self.run, self.number, payload)

    @property
    def position(self) -> At:
        return At(self.run, self.number)

    def lost(self, entry: Lost) -> bool:
        """
        The member misses something: True if a new run begins now.
        """
        if entry.run != self.run:
            return False
        self.run, self.number = self.run + 1, 0
        return True


class ToldReceiver:
    """
    The numbers of what one member sends. `restarted` is called when a new run begins, before its first
    payload; `miss` gets the entry that asks for one.
    """

    def __init__(self, restarted: Callable[[], None], miss: Callable[[Lost], None]) -> None:
        self._restarted = restarted
        self._miss = miss
        self._run, self._number = 1, 0
        self._is_missing = False

    def take(self, entry: Told) -> bool:
        """
        True if the payload is the next one.
        """
        if not self._follow(entry.run) or self._is_missing:
            return False
        if entry.number == self._number + 1:
            self._number = entry.number
            return True
        if entry.number > self._number:
            self._ask()
        return False

    def position(self, entry: At) -> None:
        """
        The member has sent so many: a loss that nothing followed is noticed here.
        """
        if self._follow(entry.run) and (self._is_missing or entry.number > self._number):
            self._ask()

    def _follow(self, run: int) -> bool:
        if run > self._run:
            self._run, self._number, self._is_missing = run, 0, False
            self._restarted()
        return run == self._run

    def _ask(self) -> None:
        self._is_missing = True
        self._miss(Lost(self._run))
