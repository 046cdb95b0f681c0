"""
The parts of the node that the exchange needs, all of which `Node` has, and the options of the exchange.
"""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from msgnode.bus.components import ForeignDomains
from msgnode.bus.ingress import Ingress
from msgnode.bus.router import Router
from msgnode.bus.routing_table import RoutingTable
from msgnode.config.schema import Config
from msgnode.policy.enforcement.enforcement import PolicyEnforcement
from msgnode.sessions.access.address_ownership import AddressOwnership
from msgnode.sessions.counters import Counters
from msgnode.sessions.limits.memory_budget import Budget
from msgnode.sessions.persistence import SessionStore
from msgnode.sessions.session_table import Sessions
from msgnode.structures.time_slices import Slices


class DomainLimits(Struct, frozen=True):
    """
    The limits of one other domain.

    `max_grants` bounds the subscriptions of its clients here, `max_upstream` those of this node's clients
    there. `rate_messages` and `rate_bytes` are for what it sends in a second; 0: no limit.
    """

    max_grants: int = 100_000
    max_upstream: int = 100_000
    rate_messages: int = 0
    rate_bytes: int = 0


class ExchangeOptions(Struct):
    """
    The options of the exchange.

    A message waits for a route for at most `max_wait_seconds`. Subscriptions are kept for `lease_seconds` and
    renewed at half. `triangle` has the domains whose addresses clients of this node may hold. `limits` are
    those of each other domain that is not in `limits_by_domain`.
    """

    max_wait_seconds: float = 86_400.0
    lease_seconds: float = 3600.0
    triangle: frozenset[str] = frozenset()
    limits: DomainLimits = DomainLimits()
    limits_by_domain: dict[str, DomainLimits] = {}

    def limits_of(self, domain: str) -> DomainLimits:
        return self.limits_by_domain.get(domain, self.limits)


class NodeParts(Protocol):
    """
    The node, as the exchange sees it.
    """

    config: Config
    counts: Counters
    slices: Slices
    session_store: SessionStore
    sessions: Sessions
    routes: RoutingTable
    owners: AddressOwnership
    enforcement: PolicyEnforcement
    budget: Budget
    settle: Callable[..., None]

    @property
    def router(self) -> Router: ...
    @property
    def ingress(self) -> Ingress: ...

    def federate(self, foreign: ForeignDomains | None) -> None:
        """
        Connects the other domains to the parts that look up addresses; None: there are none any more.
        """
