"""
Where a domain's node is, by the DNS: SRV records (RFC 2782), else a default.
"""

import random
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.names import dns
from twisted.names.client import Resolver
from twisted.python.failure import Failure
from zope.interface import implementer

Lookup = Callable[[str], Deferred[Any]]  # as IResolver.lookupService


@implementer(IStreamClientEndpoint)
class ServiceEndpoint:
    """
    An endpoint that asks for SRV records at each connection, and connects to one of the best.
    """

    def __init__(
        self,
        name: str,
        default: tuple[str, int],
        reactor: Any,
        chance: random.Random,
        lookup: Lookup | None = None,
    ) -> None:
        self._name = name
        self._default = default
        self._reactor = reactor
        self._chance = chance
        self._lookup = lookup

    def connect(self, protocolFactory: Any) -> Deferred[Any]:
        return self.locate().addCallback(
            lambda place: HostnameEndpoint(self._reactor, *place).connect(protocolFactory)
        )

    def locate(self) -> Deferred[tuple[str, int]]:
        """
        The host and port to connect to.
        """
        if self._lookup is None:
            self._lookup = Resolver("/etc/resolv.conf", reactor=self._reactor).lookupService
        found: Deferred[Any] = maybeDeferred(self._lookup, self._name)
        return found.addCallbacks(self._choose, self._use_default)

    def _use_default(self, why: Failure) -> tuple[str, int]:
        return self._default

    def _choose(self, answer: Any) -> tuple[str, int]:
        records = [record.payload for record in answer[0] if record.type == dns.SRV]
        if not records:
            return self._default
        first = min(record.priority for record in records)
        best = [record for record in records if record.priority == first]
        (record,) = self._chance.choices(best, [record.weight + 1 for record in best])
        return str(record.target), record.port
