"""
A lane of a stream at its destination: what was taken, and what waits for a gap before it to be filled.
"""

from collections.abc import Iterable

from msgnode.links.stream.pieces import Assembly, ReceiveBudget
from msgnode.links.wire.stream_header import MAX_RANGES, LaneAcknowledgement

MAX_WINDOW = 1024  # messages of a lane above those that were taken


def ranges_of(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """
    The ranges of ascending numbers, at most as many as an acknowledgement can have, the lowest first.
    """
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        elif len(found) == MAX_RANGES:
            break
        else:
            found.append((number, number))
    return found


class ReceiverLane:
    """
    A lane of a stream at its destination.

    All numbers up to `taken` were taken. Those up to `recorded` are in a batch, those up to `durable` on
    disk: these are acknowledged. `stale` has the numbers that were dropped as stale, until the source
    knows.
    """

    def __init__(
        self, taken: int, budget: ReceiveBudget, source: str, stale: list[int] | None = None
    ) -> None:
        self.source = source
        self.taken = self.recorded = self.durable = taken
        self.stale: list[int] = stale or []
        self.stalled = False  # the next one is complete, and is not wanted yet
        self._waiting: dict[int, Assembly] = {}
        self._budget = budget

    def __len__(self) -> int:
        return len(self._waiting)

    def is_known(self, number: int) -> bool:
        """
        Was it taken, or is it complete?
        """
        if number <= self.taken:
            return True
        found = self._waiting.get(number)
        return found is not None and found.complete

    def skip_to(self, floor: int) -> bool:
        """
        Nothing below `floor` is waited for any more. True if that moves the lane.
        """
        if self.stale and self.stale[0] < floor:
            self.stale = [number for number in self.stale if number >= floor]
        if floor - 1 <= self.taken:
            return False
        for number in [number for number in self._waiting if number < floor]:
            self.evict(self._waiting[number])
        self.taken = floor - 1
        self._promote()
        return True

    def add(
        self, number: int, piece: int, pieces: int, payload: bytes, flags: int, key: str
    ) -> Assembly | None:
        """
        Add a piece. Returns its assembly; None if there is no room for it.
        """
        found = self._waiting.get(number)
        if found is not None and (found.key, found.wanted, found.flags) != (key, pieces, flags):
            self.evict(found)
            found = None
        if found is None:
            found = Assembly(number, pieces, key, flags, number == self.taken + 1)
            self._waiting[number] = found
        if piece not in found.pieces and not self._budget.charge(found, len(payload), self):
            if not found.pieces:
                self._waiting.pop(number, None)
            return None
        found.pieces[piece] = payload
        return found

    def drop_partial(self, number: int) -> None:
        """
        The message came in another way.
        """
        found = self._waiting.get(number) if self._waiting else None
        if found is not None:
            self.evict(found)

    def bury(self, number: int) -> Assembly | None:
        """
        Note that a message which has not come never will. None if there is no room for that.
        """
        found = self._waiting.get(number)
        if found is not None:
            self.evict(found)
        found = self.add(number, 0, 1, b"", 0, "")
        if found is not None:
            found.tombstone = True
        return found

    def next_complete(self) -> Assembly | None:
        """
        The next message, if it is complete.
        """
        found = self._waiting.get(self.taken + 1)
        return found if found is not None and found.complete else None

    def take(self, assembly: Assembly) -> None:
        """
        The next message is taken from here.
        """
        del self._waiting[assembly.number]
        self._budget.release(assembly, self)

    def advance(self, is_stale: bool = False) -> None:
        """
        Count one more message as taken.
        """
        self.taken += 1
        if is_stale:
            self.stale.append(self.taken)
            del self.stale[: -2 * MAX_WINDOW]
        self._promote()

    def _promote(self) -> None:
        if self._waiting:
            following = self._waiting.get(self.taken + 1)
            if following is not None:
                self._budget.promote(following, self)

    def evict(self, assembly: Assembly) -> None:
        self._waiting.pop(assembly.number, None)
        self._budget.release(assembly, self)

    def drop_old(self, before: float) -> None:
        """
        Drop those of which nothing has come since then.
        """
        for assembly in [each for each in self._waiting.values() if each.arrived <= before]:
            self.evict(assembly)

    def clear(self) -> None:
        for assembly in list(self._waiting.values()):
            self.evict(assembly)

    def acknowledgement(self, lane: int) -> LaneAcknowledgement:
        received, stale = self.durable, []
        if self.stale:
            told = [number for number in self.stale if number <= received]
            stale = ranges_of(told)
            if stale and stale[-1][1] < told[-1]:
                # The others fit into a later acknowledgement: until then they are not acknowledged.
                received = next(number for number in told if number > stale[-1][1]) - 1
        above = [(received + 1, self.taken)] if self.taken > received else []
        if self._waiting:
            complete = sorted(number for number, each in self._waiting.items() if each.complete)
            above = (above + ranges_of(complete))[:MAX_RANGES]
        return LaneAcknowledgement(lane, received, above, stale)
