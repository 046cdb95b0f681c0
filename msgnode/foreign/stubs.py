"""
The stubs of foreign domains that this node runs, and the registry of them.
"""

import re
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime

from msgnode.bus.components import ForeignDomains
from msgnode.config.foreign import ForeignOptions, ForeignStub
from msgnode.config.schema import Config
from msgnode.foreign.connector import ConnectorStub
from msgnode.foreign.domains import StubDomains
from msgnode.foreign.fetch.code_store import CodeStore
from msgnode.foreign.fetch.fetcher import Fetcher
from msgnode.foreign.lifecycle.stub_host import LIMITS, StubHosts
from msgnode.foreign.lifecycle.stub_record import STATES
from msgnode.links.exchange.node_parts import NodeParts
from msgnode.protocol.errors import Rejected
from msgnode.sessions.session_table import TrafficRecorder

MINUTE = 60.0


class StubSurroundings:
    """
    The parts that the lifecycles of all stubs share (Surroundings).
    """

    def __init__(
        self,
        config: Config,
        hosts: StubHosts,
        fetcher: Fetcher,
        store: CodeStore,
        clock: IReactorTime,
        chance: Callable[[], float],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.options: ForeignOptions = config.foreign
        self.hosts, self.fetcher, self.store = hosts, fetcher, store
        self.clock, self.chance, self.wall = clock, chance, wall
        self.own = config.domain
        self.node = re.sub(r"[^A-Za-z0-9-]", "-", config.node)[:64]
        self.running: Callable[[], list[str]] = list  # the domain of each process
        self._fetches: deque[float] = deque()  # the times of those in the last minute

    def may_fetch(self, domain: str) -> bool:
        """
        May its stub be fetched? The limit is for domains that clients name; it does not hold up a listed one.
        """
        if self.table(domain) is not None:
            return True
        now, most = self.clock.seconds(), self.options.fetches_per_minute
        while self._fetches and self._fetches[0] <= now - MINUTE:
            self._fetches.popleft()
        if most and len(self._fetches) >= most:
            return False
        self._fetches.append(now)
        return True

    def may_start(self, domain: str) -> bool:
        """
        May one more stub of the domain run? For each listed domain a place is kept free.
        """
        running, most = self.running(), self.options.max_stubs
        if self.table(domain) is not None:
            return len(running) < most
        return sum(self.table(each) is None for each in running) + len(self.options.stub) < most

    def table(self, domain: str) -> ForeignStub | None:
        return next((stub for stub in self.options.stub if stub.domain == domain), None)


class ForeignStubs:
    """
    The registry of foreign stubs. While `foreign.accept` is "none" it is empty, and the bus knows nothing of
    it.
    """

    def __init__(self, node: NodeParts, around: StubSurroundings, traffic_recorder: TrafficRecorder) -> None:
        self._node = node
        self._around = around
        self._traffic_recorder = traffic_recorder
        # Called with a domain, and the addresses there of sessions that came from another member.
        self.moved_here: Callable[[str, list[str]], None] = lambda domain, addresses: None
        self._links: ForeignDomains | None = None
        self._connectors: dict[str, ConnectorStub] = {}
        self.domains: StubDomains | None = None
        around.running = self._running

    def start(self, links: ForeignDomains | None) -> None:
        """
        Begins, when the links are there; `links` are the domains that they reach.
        """
        self._links = links
        self.apply()

    def stop(self) -> Deferred[Any]:
        domains, self.domains = self.domains, None
        return succeed(None) if domains is None else domains.stop()

    def apply(self) -> None:
        """
        Applies a changed configuration.
        """
        is_on, domains = self._node.config.foreign.accept != "none", self.domains
        if is_on and domains is None:
            made = StubDomains(self._node, self._around, self._traffic_recorder, self._links)
            made.moved_here = lambda domain, addresses: self.moved_here(domain, addresses)
            self.domains = made
            made.start()
            self._node.federate(made)
            for connector in self._connectors.values():
                connector.attach(made.find(connector.stub))
        elif domains is not None and not is_on:
            self._node.federate(self._links)
            self.stop()
        elif domains is not None:
            domains.apply()

    def offer(self, connector: ConnectorStub) -> None:
        """
        Lets a stub take the place of a connector.
        """
        self._connectors[connector.addresses[0]] = connector
        if self.domains is not None:
            connector.attach(self.domains.find(connector.stub))

    def _running(self) -> list[str]:
        found = [(each.domain, each.lifecycle) for each in self.domains or ()]
        return [
            domain
            for domain, own in found
            for process in (own.current, own.trial.process)
            if process is not None
        ]

    # -- operators -----------------------------------------------------------------------

    def to_builtins(self) -> list[dict[str, Any]]:
        """
        The entries of all stubs in the registry of stubs and connectors.
        """
        return [each.to_builtins() for each in self.domains or ()]

    def by_state(self) -> Counter[str]:
        """
        The number of stubs in each state.
        """
        found = Counter(dict.fromkeys(STATES, 0))
        found.update(each.record.state for each in self.domains or ())
        return found

    def figures(self) -> Counter[str]:
        """
        The figures of all stubs together.
        """
        found: Counter[str] = Counter()
        for each in self.domains or ():
            found.update(each.record.counts)
        return found

    def limits(self) -> Counter[str]:
        """
        How often the stubs have reached their limits.
        """
        found = Counter(dict.fromkeys(LIMITS, 0))
        for each in self.domains or ():
            found.update(each.record.limits)
        return found

    def check(self, name: str, what: str) -> None:
        """
        Raises Rejected if the stub of a domain cannot be started, restarted or stopped.
        """
        domains = self.domains
        if domains is None:
            raise Rejected("this node runs no stubs: foreign.accept is 'none'", 409)
        if domains.get(name) is not None:
            return
        if what == "stop" or domains.names.home(f"hyperty://{name}/x") != name:
            raise Rejected(f"there is no stub of {name!r}"[:200], 404)

    def act(self, name: str, what: str) -> dict[str, Any]:
        """
        Starts, restarts or stops the stub of a domain; returns its entry. Raises Rejected.
        """
        self.check(name, what)
        assert self.domains is not None
        found = self.domains.get(name)
        if found is None:
            found = self.domains.find(name)
        if what == "stop":
            found.lifecycle.stop("an operator has stopped it")
        elif what == "restart":
            found.lifecycle.restart()
        else:
            found.lifecycle.want()
        return found.to_builtins()
