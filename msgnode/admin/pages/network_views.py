"""
The pages on addresses, on nodes and links, on bans and limits, and on what operators did.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, gatherResults

from msgnode.admin.pages.page_calls import PageCalls
from msgnode.admin.pages.topology import Topology
from msgnode.admin.pages.views import Shown, Visit, first_failure


class NetworkViews:
    """
    The pages on addresses, on the nodes and links around this one, and on what operators keep out and did.
    """

    def __init__(self, calls: PageCalls, topology: Topology) -> None:
        self._calls = calls
        self._topology = topology
        self.pages: dict[str, Callable[[Visit], Any]] = {
            "addresses": self.addresses,
            "nodes": self.nodes,
            "bans": self.bans,
            "audit": self.audit,
        }

    def _get(self, visit: Visit, *path: str, **query: str) -> Deferred[Any]:
        return self._calls.ask("GET", list(path), visit.operator, visit.peer, query)

    def addresses(self, visit: Visit) -> Any:
        """
        The hearers of an address, the addresses that begin with a text, or the pools and reservations.
        """
        address, prefix = visit.query.get("address", ""), visit.query.get("prefix", "")
        context: dict[str, Any] = {
            "address": address,
            "prefix": prefix,
            "report": None,
            "found": None,
            "pools": None,
            "reservations": None,
            "may_act": visit.may("operator"),
        }
        if address:
            asked = self._get(visit, "addresses", address)
            return asked.addCallback(lambda found: ("addresses.html", {**context, "report": found}))
        if prefix:
            cursor = visit.query.get("cursor", "0")
            asked = self._get(visit, "addresses", prefix=prefix, limit="100", cursor=cursor)
            return asked.addCallback(lambda found: ("addresses.html", {**context, "found": found}))
        return Deferred.fromCoroutine(self._granted(visit, context))

    async def _granted(self, visit: Visit, context: dict[str, Any]) -> Shown:
        # One after the other: few lists are made at a time, and other operators want some, too.
        pools = await self._get(visit, "pools", limit="100")
        cursor = visit.query.get("reservation", "")
        reservations = await self._get(visit, "reservations", limit="100", cursor=cursor)
        return "addresses.html", {**context, "pools": pools, "reservations": reservations}

    def nodes(self, visit: Visit) -> Deferred[Shown]:
        """
        The nodes of the domain with their sessions, the links to other domains, and the map.
        """

        def shown(found: dict[str, Any]) -> Shown:
            return "nodes.html", {
                "nodes": found,
                "cluster": self._topology.cluster(),
                "domains": self._topology.domains(),
                "map": self._topology.map(),
            }

        return self._topology.nodes().addCallback(shown)

    def bans(self, visit: Visit) -> Deferred[Shown]:
        """
        The bans and the temporary limits.
        """
        both = gatherResults([self._get(visit, "bans"), self._get(visit, "limits")], consumeErrors=True)
        both.addErrback(first_failure)

        def shown(found: list[Any]) -> Shown:
            bans, limits = found
            return "bans.html", {**bans, **limits, "may_act": visit.may("operator")}

        return both.addCallback(shown)

    def audit(self, visit: Visit) -> Deferred[Shown]:
        """
        The newest entries of the audit log, and the named tokens, for the role admin.
        """
        query = {name: visit.query[name] for name in ("who", "action") if visit.query.get(name)}

        def shown(found: list[Any]) -> Shown:
            entries, tokens = (each[key] for each, key in zip(found, ("entries", "tokens"), strict=True))
            return "audit.html", {"entries": entries, "tokens": tokens, "query": query}

        asked = [self._get(visit, "audit", **query), self._get(visit, "tokens")]
        found = gatherResults(asked, consumeErrors=True)
        found.addErrback(first_failure)
        return found.addCallback(shown)
