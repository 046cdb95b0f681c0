"""
Refusals: everything that the overlay refuses is counted by reason, and logged once for each peer and reason.
"""

from collections import Counter
from collections.abc import Callable

from twisted.logger import Logger

from msgnode.links.peer_counts import PeerTable
from msgnode.structures.bounded_cache import BoundedCache
from msgnode.structures.log_limits import printable

QUIET_SECONDS = 3600.0
MAX_LOGGED = 4096  # pairs of peer and reason

_log = Logger()


class Refusals:
    """
    Counters of refusals by reason, with a log line for the first of each peer and reason in an hour.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.by_reason: Counter[str] = Counter()
        self.peers = PeerTable(())  # the operators' table, once there is one
        self._seconds = seconds
        self._logged: BoundedCache[tuple[str, str], float] = BoundedCache(MAX_LOGGED)

    def count(self, reason: str) -> None:
        """
        Count what needs no log line, because it happens while routes change.
        """
        self.by_reason[reason] += 1

    def refuse(self, peer: str, reason: str, text: str = "") -> None:
        """
        Count a refusal of what `peer` sent.
        """
        self.by_reason[reason] += 1
        self.peers.fault(peer, "map", reason)
        now = self._seconds()
        before = self._logged.get((peer, reason))
        if before is not None and now < before + QUIET_SECONDS:
            return
        self._logged.put((peer, reason), now)
        _log.warn(
            "{peer} was refused: {reason}: {text}", peer=peer, reason=reason, text=printable(text[:500])
        )
