"""
Counts of what crosses between this domain and others, and of what is refused or lost, by a stable word.
"""

from collections import Counter
from collections.abc import Callable

from twisted.logger import Logger

from msgnode.links.peer_counts import PeerTable
from msgnode.links.wire.node_name import domain_of
from msgnode.structures.bounded_cache import BoundedCache

log = Logger()

LOG_AGAIN_SECONDS = 3600.0
MAX_EVENTS = 100  # words that are counted apart: other domains give reasons, too
MAX_LOGGED = 1000  # pairs of domain and event
# The events that operators can do something about.
_LOGGED = {
    "rate": "it sends more than federation.rate_messages or rate_bytes permit; the rest is refused",
    "limit": "a limit for it is reached (federation.max_grants, max_upstream, memory, number of nodes)",
    "unasked": "it sent a receipt that no client asked for; such receipts are dropped",
}


class ExchangeCounts(Counter[str]):
    """
    The counts of all domains together. `note` counts an event for the peer, too.

    The words are `sent`, `received`, `revoked`, `lease-ended`, `old-answer`, `unasked`, `passed-on`,
    `repeated`, and the reasons of refusals. The first event of some kinds is logged, for each domain once an
    hour.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        super().__init__()
        self.peers = PeerTable(())  # the operators' table, once there is one
        self._seconds = seconds
        self._logged: BoundedCache[tuple[str, str], float] = BoundedCache(MAX_LOGGED)

    def note(self, of: str, event: str, times: int = 1) -> None:
        """
        Counts an event of a domain, or of a node of it, that happened so many times.
        """
        if event not in self and len(self) >= MAX_EVENTS:
            event = "refused"
        self[event] += times
        domain = domain_of(of) if of.startswith("mn:") else of
        self.peers.of(domain).exchanged[event] += times
        if event in _LOGGED:
            self._log(domain, event)

    def _log(self, domain: str, event: str) -> None:
        now = self._seconds()
        before = self._logged.get((domain, event))
        if before is None or now >= before + LOG_AGAIN_SECONDS:
            self._logged.put((domain, event), now)
            log.warn("domain {domain}: {what}", domain=domain, what=_LOGGED[event])
