"""
The map of the overlay, and explanations of its routes, for operators.
"""

from collections.abc import Callable, Collection, Mapping

from msgnode.links.operations import LinkName, NetworkMap, Route
from msgnode.links.overlay.overlay import Overlay
from msgnode.links.overlay.snapshot import explain_route, network_map
from msgnode.links.wire.node_name import parse
from msgnode.protocol.errors import Rejected


class OverlayView:
    """
    A view of one node's overlay. `home` gives the home domain of an address, "" if it has no known domain.
    """

    def __init__(self, overlay: Overlay, home: Callable[[str], str]) -> None:
        self._overlay = overlay
        self._home = home

    def cost(self, domain: str) -> int | None:
        """
        The cost of the route to the nearest node of a domain; None if there is none.
        """
        nearest = next(iter(self._overlay.nodes_of(domain)), None)
        return None if nearest is None else self._overlay.routes.cost(nearest)

    def map(self) -> NetworkMap:
        return network_map(self._overlay)

    def explain(self, address: str, without: Collection[LinkName], costs: Mapping[LinkName, int]) -> Route:
        """
        The explanation of a route (LinkOperations.explain).
        """
        if address.startswith("mn://"):
            try:
                target = str(parse(address))
            except ValueError as why:
                raise Rejected(str(why)) from None
        else:
            is_address = "://" in address or address.startswith(("mn:", "global:"))
            target = self._home(address if is_address else f"domain://{address}/")
        return explain_route(self._overlay, address, target, without, costs)
