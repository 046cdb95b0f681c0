"""
The neighbours of this node: the links that are up, and since when they count.

A link counts after 3 seconds, doubled for each time it was lost, up to 60; what flaps is in no route. One
that is steady counts at once.
"""

from collections.abc import Iterator
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.links.carrier.link import Link
from msgnode.links.overlay.advertisement import MAX_LINKS
from msgnode.links.overlay.costs import LinkCost
from msgnode.links.overlay.holding import Budget, Holding
from msgnode.links.overlay.routes.graph import Key
from msgnode.links.wire.node_name import domain_of
from msgnode.structures.bounded_cache import BoundedCache

DAMPING_SECONDS = 3.0
MAX_DAMPING_SECONDS = 60.0
STEADY_SECONDS = 300.0  # a link that was up, or gone, for so long has not flapped
MAX_REMEMBERED = 1024
TRY_AGAIN_LATER = 1013


class Neighbour:
    """
    A neighbour with its link.

    `transit`: may its datagrams pass through this node to others? Those of this domain may.
    `differing` counts digests in a row that differed; none is compared before `compare_at`. `unsent` has the
    keys of advertisements that it has to get.
    """

    def __init__(self, link: Link, own_domain: str, budget: Budget, now: float) -> None:
        self.link = link
        self.node = link.node
        self.domain = domain_of(link.node)
        self.is_inside = self.domain == own_domain
        self.since = now
        self.counts = False
        self.counts_since = now
        self.cost = LinkCost(link)
        self.flaps = 0
        self.held = Holding(budget)
        self.is_full = False
        self.differing = 0
        self.compare_at = 0.0
        self.compare_wait = 0.0
        self.unsent: dict[Key, None] = {}
        self.timer: IDelayedCall | None = None
        self.sending: IDelayedCall | None = None

    @property
    def transit(self) -> bool:
        return self.is_inside or self.link.transit

    def stop(self) -> None:
        for timer in (self.timer, self.sending):
            if timer is not None and timer.active():
                timer.cancel()
        self.timer = self.sending = None


class NeighbourListener(Protocol):
    """
    A listener to neighbours.
    """

    def counted(self, neighbour: Neighbour) -> None:
        """
        The link counts from now on, or is a new link to a neighbour that counts.
        """

    def lost(self, neighbour: Neighbour) -> None:
        """
        The link is down, or replaced by a new one.
        """


class Neighbours:
    """
    A table of the neighbours by name.
    """

    def __init__(self, clock: IReactorTime, own_domain: str, listener: NeighbourListener) -> None:
        self.budget = Budget()
        self.without_transit: frozenset[str] = frozenset()
        self._clock = clock
        self._own_domain = own_domain
        self._listener = listener
        self._up: dict[str, Neighbour] = {}
        self._flaps: BoundedCache[str, tuple[int, float]] = BoundedCache(MAX_REMEMBERED)

    def __iter__(self) -> Iterator[Neighbour]:
        return iter(list(self._up.values()))

    def __len__(self) -> int:
        return len(self._up)

    def get(self, node: str) -> Neighbour | None:
        return self._up.get(node)

    def counted(self) -> Iterator[Neighbour]:
        return (neighbour for neighbour in self._up.values() if neighbour.counts)

    def update_transit(self) -> bool:
        """
        Set `without_transit` to the neighbours that count and get no transit. Returns True if it changed.
        """
        found = frozenset(neighbour.node for neighbour in self.counted() if not neighbour.transit)
        changed = found != self.without_transit
        self.without_transit = found
        return changed

    def costs(self) -> dict[str, int]:
        """
        The cost of each link that counts.
        """
        return {neighbour.node: neighbour.cost.advertised for neighbour in self.counted()}

    def of(self, link: Link) -> Neighbour | None:
        """
        The neighbour of a link that is up; None if the link has been replaced.
        """
        neighbour = self._up.get(link.node)
        return neighbour if neighbour is not None and neighbour.link is link else None

    def up(self, link: Link) -> None:
        """
        A link is up. It takes the place of an older one to the same neighbour.
        """
        now = self._clock.seconds()
        old = self._up.get(link.node)
        if old is None and len(self._up) >= MAX_LINKS:
            link.close(TRY_AGAIN_LATER, f"this node has {MAX_LINKS} links", MAX_DAMPING_SECONDS)
            return
        neighbour = Neighbour(link, self._own_domain, self.budget, now)
        self._up[link.node] = neighbour
        if old is not None and old.counts:
            neighbour.since, neighbour.flaps = old.since, old.flaps
            self._count(neighbour)
            neighbour.counts_since = old.counts_since
            self._end(old)
            return
        if old is not None:
            self._end(old)
        flaps, lost = self._flaps.get(link.node) or (0, now)
        neighbour.flaps = 0 if now > lost + STEADY_SECONDS else flaps
        wait = min(MAX_DAMPING_SECONDS, DAMPING_SECONDS * 2 ** min(neighbour.flaps, 10))
        neighbour.timer = self._clock.callLater(0 if link.is_steady else wait, self._count, neighbour)

    def down(self, link: Link) -> None:
        neighbour = self.of(link)
        if neighbour is None:
            return
        now = self._clock.seconds()
        flaps = 0 if now > neighbour.since + STEADY_SECONDS else neighbour.flaps
        self._flaps.put(neighbour.node, (flaps + 1, now))
        del self._up[neighbour.node]
        self._end(neighbour)

    def _count(self, neighbour: Neighbour) -> None:
        neighbour.timer = None
        neighbour.counts = True
        neighbour.counts_since = self._clock.seconds()
        neighbour.cost.update()
        self._listener.counted(neighbour)

    def _end(self, neighbour: Neighbour) -> None:
        neighbour.stop()
        self._listener.lost(neighbour)
