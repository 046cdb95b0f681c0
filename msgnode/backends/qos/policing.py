"""
The policing of reservations: what coturn has relayed for each is compared with what is reserved.

coturn updates the counts of a session with each 2048 packets. The average between two updates, which are at
least `overuse_seconds` apart, is therefore known at the second one. It is never too high: an update may have
been at any time since the look before, and the longest time that is possible counts.
"""

from collections.abc import Iterable

from msgnode.backends.qos.coturn import RelaySession
from msgnode.backends.qos.reservation import Reservation

MAX_SAMPLES = 64  # of one session
MAX_SESSIONS = 10_000
WINDOWS = 3  # the averages go back so far, and the last one of a session counts so long
BITS = 8
FREE_BITS = 16_000  # bits per second of a direction for which less is reserved,
FREE_SHARE = 20  # and such a part of what is reserved for the other direction


class _Usage:
    """
    The counts of one session at its updates: time, and bytes up and down. `rate` is the last one, in bits per
    second: the highest average up to the last sample.
    """

    def __init__(self, began: float, at: float) -> None:
        self.samples: list[tuple[float, int, int]] = [(began, 0, 0)]  # none: the next update is the first
        self.last = 0, 0
        self.seen_at = at  # the time of the last look
        self.rate = 0.0, 0.0
        self.until = 0.0  # the rate counts until then

    def look(self, found: RelaySession, at: float, seconds: float) -> None:
        since, self.seen_at = at - self.seen_at, at
        if (found.up, found.down) == self.last:
            return
        self.last = found.up, found.down
        self.samples.append((at, found.up, found.down))
        while len(self.samples) > 2 and at - self.samples[1][0] >= WINDOWS * seconds:
            del self.samples[0]
        del self.samples[1:-MAX_SAMPLES]
        rates = [
            ((found.up - up) * BITS / longest, (found.down - down) * BITS / longest)
            for began, up, down in self.samples
            if at - began >= seconds
            for longest in (at - began + since,)  # its update may have been that much before the look
        ]
        if rates:
            self.rate = max(up for up, _ in rates), max(down for _, down in rates)
            self.until = at + WINDOWS * max(seconds, at - self.samples[-2][0])


class Overuse:
    """
    The measured rate of a reservation that is used for more than is reserved, in bits per second.
    """

    def __init__(self, reservation: Reservation, up: int, down: int) -> None:
        self.reservation = reservation
        self.up = up
        self.down = down


class Policing:
    """
    Knows which reservations are overused: by more than `tolerance` times the amount, on the average of at
    least `seconds`, in all their sessions together.
    """

    def __init__(self) -> None:
        self._usages: dict[str, tuple[str, _Usage]] = {}  # by session: its reservation and what it used

    def __len__(self) -> int:
        return len(self._usages)

    def forget(self, id: str) -> None:
        """
        Measures a reservation from now on: its amount has changed, or its client was warned.
        """
        for of, usage in self._usages.values():
            if of == id:
                usage.samples = []
                usage.until = 0.0

    def look(
        self,
        sessions: Iterable[RelaySession],
        reservations: dict[str, Reservation],
        at: float,
        seconds: float,
        tolerance: float,
    ) -> list[Overuse]:
        """
        The reservations that are overused, by what coturn says now.
        """
        usages: dict[str, tuple[str, _Usage]] = {}
        rates: dict[str, tuple[float, float]] = {}
        for found in sessions:
            if found.reservation not in reservations or len(usages) >= MAX_SESSIONS:
                continue
            before = self._usages.get(found.id)
            usage = before[1] if before is not None else _Usage(at - found.age - 1, at)
            usage.look(found, at, seconds)
            usages[found.id] = found.reservation, usage
            if usage.until > at:
                up, down = rates.get(found.reservation, (0.0, 0.0))
                rates[found.reservation] = up + usage.rate[0], down + usage.rate[1]
        self._usages = usages
        return [
            Overuse(reservations[id], int(up), int(down))
            for id, (up, down) in rates.items()
            if up > _most(reservations[id].up, reservations[id].down, tolerance)
            or down > _most(reservations[id].down, reservations[id].up, tolerance)
        ]


def _most(amount: int, other: int, tolerance: float) -> float:
    """
    The bits per second that are no overuse in one direction, where `other` is reserved in the other one: what
    goes one way has reports the other way.
    """
    return max(tolerance * amount, FREE_BITS + other / FREE_SHARE)
