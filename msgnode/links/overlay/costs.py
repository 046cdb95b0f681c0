"""
The cost of a link: fixed by configuration, or the round trip in milliseconds that the carrier has measured.
"""

from msgnode.links.carrier.link import Link
from msgnode.links.overlay.routes.shortest_path import MAX_COST

UNMEASURED_COST = 1000
CHANGE = 1 / 4  # a smaller change of a measured cost is not advertised


class LinkCost:
    """
    The advertised cost of a link, 1 or more.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._fixed = link.cost
        self._measured = link.round_trip is not None
        self.advertised = _cost(link)

    def update(self) -> bool:
        """
        Take the link's present cost. Returns True if it has to be advertised: it is another fixed cost, the
        first measured one, or has moved by a quarter.
        """
        cost = _cost(self._link)
        is_first = not self._measured and self._link.round_trip is not None
        is_other = self._link.cost != self._fixed or is_first
        self._fixed = self._link.cost
        self._measured = self._measured or is_first
        moved = abs(cost - self.advertised)
        if not moved or (self._fixed is None and not is_other and moved < self.advertised * CHANGE):
            return False
        self.advertised = cost
        return True


def _cost(link: Link) -> int:
    if link.cost is not None:
        return min(max(1, link.cost), MAX_COST)
    if link.round_trip is None:
        return UNMEASURED_COST
    return min(max(1, round(link.round_trip * 1000)), MAX_COST)
