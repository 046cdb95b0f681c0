"""
The published conformance cases with the runtimes at different nodes of one domain.
"""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.bus import test_conformance as conformance
from tests.support.fakes import Turns
from tests.support.network import Network
from tests.support.network_pair import NetworkPair
from tests.support.registry import RegistryNode


class OverTwoNodes:
    """
    Stubs against two nodes: the runtimes take turns, in the order in which they come.
    """

    net: NetworkPair

    def start(self: Any, **sections: Any) -> None:
        self.net = NetworkPair(domain=conformance.D, **sections)
        self.places: dict[str, Network] = {}

    def start_with_registry(self: Any) -> None:
        clock = Turns()
        first = RegistryNode(domain=conformance.D, clock=clock)
        self.net = NetworkPair((first, RegistryNode(first, domain=conformance.D, clock=clock)))
        self.places = {}

    def use(self: Any, *rules: dict[str, Any]) -> None:
        self.net.use(*rules)

    def at(self: Any, runtime: str) -> Network:
        place: Network = self.places.setdefault(runtime, self.net.networks[len(self.places) % 2])
        return place


def _suites() -> dict[str, type[SynchronousTestCase]]:
    return {
        name: type(name, (OverTwoNodes, suite), {"__module__": __name__, "__doc__": suite.__doc__})
        for name, suite in vars(conformance).items()
        if isinstance(suite, type) and issubclass(suite, conformance.Case) and suite is not conformance.Case
    }


globals().update(_suites())
