"""
Limits of partial input: lines, frames, fragments and request bodies that have begun and not ended.

Each is bounded by the largest message, but a client may begin many. So they are counted for each host and for
the node, beyond FREE bytes each, and must end within a time.
"""

from itertools import islice
from typing import Any, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from msgnode.config.schema import Config
from msgnode.protocol.close_codes import OVER_CAPACITY, UNFINISHED, Closing
from msgnode.protocol.peer_address import peer_host
from msgnode.sessions.limits.memory_budget import Budget
from msgnode.transport.data_plane import NO_DATA_PLANE

log = Logger()

FREE_BYTES = 4096  # bytes of each that are not counted: a connection costs as much
MAX_CUT_PER_TURN = 100  # inputs that are cut off in one turn


class Receiver(Protocol):
    """
    A connection with partial input.
    """

    def cut_short(self, why: Closing) -> None:
        """
        Discards the partial input, accepts no more of it, and reports `why` to the client.
        """


class _Partial:
    """
    A partial input: when it began, from which host, and the bytes counted.
    """

    __slots__ = ("counted", "host", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.counted = 0
        self.host = ""


class PartialInput:
    """
    The limits of partial input.

    A data plane has an account of its own, of what it and Python keep.
    """

    def __init__(self, config: Config, budget: Budget, clock: IReactorTime) -> None:
        self.data_plane = NO_DATA_PLANE
        self._bytes = 0
        self._config = config
        self._budget = budget
        self._clock = clock
        self._hosts: dict[str, int] = {}
        self._timed: dict[Any, _Partial] = {}  # oldest first
        self._others: dict[Any, _Partial] = {}
        self._timer: IDelayedCall | None = None

    def __len__(self) -> int:
        return len(self._timed) + len(self._others)

    def grow(self, receiver: Receiver, size: int, peer: str) -> bool:
        """
        Counts `size` bytes of partial input in all. False if that is too much; then the receiver was cut off.

        Its time begins with the first call.
        """
        partial = self._timed.get(receiver)
        if partial is None:
            partial = self._timed[receiver] = _Partial(self._clock.seconds())
            if self._timer is None:
                self._timer = self._clock.callLater(self._time_limit, self._look)
        if size <= FREE_BYTES or self._count(partial, size - FREE_BYTES, peer):
            return True
        self.done(receiver)
        receiver.cut_short(OVER_CAPACITY)
        return False

    def grow_untimed(self, receiver: object, size: int, peer: str) -> bool:
        """
        The same without a time limit and without a call to the receiver.
        """
        if size <= FREE_BYTES:
            return True
        partial = self._others.get(receiver)
        if partial is None:
            partial = self._others[receiver] = _Partial(0)
        if self._count(partial, size - FREE_BYTES, peer):
            return True
        self.done(receiver)
        return False

    def done(self, receiver: object) -> None:
        """
        The input has ended, or was discarded.
        """
        partial = self._timed.pop(receiver, None) or self._others.pop(receiver, None)
        if partial is not None and partial.counted:
            self._charge(partial, -partial.counted)

    def most_of_one(self) -> int:
        """
        The bytes of the host with the most partial input.
        """
        return max(max(self._hosts.values(), default=0), self.data_plane.partial_bytes("")[2])

    @property
    def bytes(self) -> int:
        """
        The number of bytes counted in all, those in the data plane included.
        """
        return max(self._bytes, self.data_plane.partial_bytes("")[0])

    # -- bytes -------------------------------------------------------------------

    def _count(self, partial: _Partial, size: int, peer: str) -> bool:
        limits, more = self._config.limits, size - partial.counted
        if not partial.counted:
            partial.host = peer_host(peer, self._config.trusted_proxies)
        in_all, of_host, _ = self.data_plane.partial_bytes(partial.host)
        of_host = max(of_host, self._hosts.get(partial.host, 0))
        for limit, most, used in (
            ("partial_bytes_per_ip", limits.partial_bytes_per_ip if partial.host else 0, of_host),
            ("partial_bytes", limits.partial_bytes, max(in_all, self._bytes)),
        ):
            if most and more > 0 and used + more > most:
                self._budget.refused[limit] += 1
                return False
        self._charge(partial, more)
        return True

    def _charge(self, partial: _Partial, more: int) -> None:
        partial.counted += more
        self._bytes += more
        self.data_plane.charge_partial(partial.host, more)
        if partial.host:
            left = self._hosts.get(partial.host, 0) + more
            if left:
                self._hosts[partial.host] = left
            else:
                self._hosts.pop(partial.host, None)

    # -- time --------------------------------------------------------------------

    @property
    def _time_limit(self) -> float:
        return self._config.limits.partial_seconds or 60.0

    def _look(self) -> None:
        """
        Cut off the inputs whose time is over, a limited number in each turn.
        """
        self._timer = None
        now, time_limit = self._clock.seconds(), self._time_limit
        late = []
        if self._config.limits.partial_seconds:
            for receiver, partial in islice(self._timed.items(), MAX_CUT_PER_TURN):
                if partial.since + time_limit > now:
                    break
                late.append(receiver)
        for receiver in late:
            self.done(receiver)
            self._budget.refused["partial_seconds"] += 1
            receiver.cut_short(UNFINISHED)
        first = next(iter(self._timed.values()), None)
        if first is not None:
            wait = max(0.0, first.since + time_limit - now)
            self._timer = self._clock.callLater(wait or (0 if late else time_limit), self._look)
