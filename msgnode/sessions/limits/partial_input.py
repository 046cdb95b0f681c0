"""
What has begun to come and not ended: lines, frames, fragments, bodies of requests; and what waits behind it.

Each is bounded by what a message may have, but a client may begin many.  So
they are counted for their host and for the node, from FREE bytes each, and
have to come to their end in time.
"""

from itertools import islice
from typing import Any, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from msgnode.config.schema import Config
from msgnode.protocol.close_codes import OVER_CAPACITY, UNFINISHED, Closing
from msgnode.protocol.peer_address import peer_host
from msgnode.sessions.limits.memory_budget import Budget

log = Logger()

FREE = 4096  # bytes of each that nobody counts: a connection costs as much
AT_ONCE = 100  # that are given up in one turn


class Receiver(Protocol):
    """
    A connection by which partial input comes.
    """

    def cut_short(self, why: Closing) -> None:
        """
        Keep nothing of what has begun, take no more of it, and tell the client why.
        """


class _Partial:
    """
    Since when it comes, from which host, and how much of it is counted.
    """

    __slots__ = ("counted", "host", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.counted = 0
        self.host = ""


class PartialInput:
    """
    Limits of what has begun to come and not ended.

    `bytes` is what is counted of all of them.
    """

    def __init__(self, config: Config, budget: Budget, clock: IReactorTime) -> None:
        self.bytes = 0
        self._config = config
        self._budget = budget
        self._clock = clock
        self._hosts: dict[str, int] = {}
        self._timed: dict[Any, _Partial] = {}  # the one that began first at the front
        self._others: dict[Any, _Partial] = {}
        self._timer: IDelayedCall | None = None

    def __len__(self) -> int:
        return len(self._timed) + len(self._others)

    def grow(self, receiver: Receiver, size: int, peer: str) -> bool:
        """
        So much has come by now from that peer; False: that is too much, and the receiver was told.

        Its time began with the first bytes.
        """
        partial = self._timed.get(receiver)
        if partial is None:
            partial = self._timed[receiver] = _Partial(self._clock.seconds())
            if self._timer is None:
                self._timer = self._clock.callLater(self._patience, self._look)
        if size <= FREE or self._count(partial, size - FREE, peer):
            return True
        self.done(receiver)
        receiver.cut_short(OVER_CAPACITY)
        return False

    def grow_untimed(self, receiver: object, size: int, peer: str) -> bool:
        """
        The same, where somebody else sees to the time; the receiver need not be told.
        """
        if size <= FREE:
            return True
        partial = self._others.get(receiver)
        if partial is None:
            partial = self._others[receiver] = _Partial(0)
        if self._count(partial, size - FREE, peer):
            return True
        self.done(receiver)
        return False

    def done(self, receiver: object) -> None:
        """
        It has ended, or will not.
        """
        partial = self._timed.pop(receiver, None) or self._others.pop(receiver, None)
        if partial is not None and partial.counted:
            self._charge(partial, -partial.counted)

    def most_of_one(self) -> int:
        """
        Bytes of the host that has most.
        """
        return max(self._hosts.values(), default=0)

    # -- bytes -------------------------------------------------------------------

    def _count(self, partial: _Partial, size: int, peer: str) -> bool:
        limits, more = self._config.limits, size - partial.counted
        if not partial.counted:
            partial.host = peer_host(peer, self._config.trusted_proxies)
        of_host = self._hosts.get(partial.host, 0)
        for limit, most, held in (
            ("partial_bytes_per_ip", limits.partial_bytes_per_ip if partial.host else 0, of_host),
            ("partial_bytes", limits.partial_bytes, self.bytes),
        ):
            if most and more > 0 and held + more > most:
                self._budget.refused[limit] += 1
                return False
        self._charge(partial, more)
        return True

    def _charge(self, partial: _Partial, more: int) -> None:
        partial.counted += more
        self.bytes += more
        if partial.host:
            left = self._hosts.get(partial.host, 0) + more
            if left:
                self._hosts[partial.host] = left
            else:
                self._hosts.pop(partial.host, None)

    # -- time --------------------------------------------------------------------

    @property
    def _patience(self) -> float:
        return self._config.limits.partial_seconds or 60.0

    def _look(self) -> None:
        """
        Give up those whose time is over, some of them in a turn.
        """
        self._timer = None
        now, patience = self._clock.seconds(), self._patience
        late = []
        if self._config.limits.partial_seconds:
            for receiver, partial in islice(self._timed.items(), AT_ONCE):
                if partial.since + patience > now:
                    break
                late.append(receiver)
        for receiver in late:
            self.done(receiver)
            self._budget.refused["partial_seconds"] += 1
            receiver.cut_short(UNFINISHED)
        first = next(iter(self._timed.values()), None)
        if first is not None:
            wait = max(0.0, first.since + patience - now)
            self._timer = self._clock.callLater(wait or (0 if late else patience), self._look)
