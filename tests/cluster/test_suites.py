"""
What holds on every connector holds where one client is at one node of a domain, and the others at another.

TLS and CRLF are of one connection, of which the next node sees nothing: MSGNODE_FUZZ tries them here, too.
"""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.connectors import test_connectors as connectors
from tests.support.fuzz import TIMES
from tests.support.network_pair import NetworkPair
from tests.support.runtimes import CRLFRuntime, Runtime, TLSRuntime

FIRST = "a"  # the name of the suites' client that is at the first node
LARGE_ONLY = (TLSRuntime, CRLFRuntime) if TIMES == 1 else ()


class OverTwoNodes:
    """
    A suite whose client `a` is at one node, and all others at another of the same domain.
    """

    net: NetworkPair
    connect: Any
    reached = 0  # who reads is at another node than who does not, and in a traffic log line there

    def restart(self: Any, **sections: Any) -> None:
        self.net = NetworkPair(**sections)

    def arrive(self: Any, name: str = FIRST) -> Runtime:
        found: Runtime = self.connect(self.net.networks[name != FIRST], f"runtime://example.org/{name}")
        return found

    def use(self: Any, *rules: dict[str, Any], **how: Any) -> None:
        self.net.use(*rules, **how)

    def test_learnt_address_is_anothers_once_subscribed(self: Any) -> None:
        """
        A learnt address is another's, too, as soon as that one subscribes it at another node.
        """
        stranger, owner, sender = self.client(), self.client("1"), self.client("b")
        hyperty = "hyperty://foreign.example/h1"
        stranger.send({"id": 1, "type": "create", "from": hyperty, "to": sender.url})

        self.subscribe(owner, hyperty)
        message = {"id": 5, "type": "update", "from": f"{sender.url}/x", "to": hyperty}
        sender.send(message)

        self.assertEqual([message], owner.take())


def _suites() -> dict[str, type[SynchronousTestCase]]:
    found = {}
    for name, suite in vars(connectors).items():
        if (
            isinstance(suite, type)
            and issubclass(suite, SynchronousTestCase)
            and name != "SynchronousTestCase"
            and getattr(suite, "connect", None) not in LARGE_ONLY
        ):
            found[name] = type(
                name, (OverTwoNodes, suite), {"__module__": __name__, "__doc__": suite.__doc__}
            )
    return found


globals().update(_suites())
