"""
The other domains as the bus sees them: those over links, and those that a stub leads to.

A domain that is linked, or could be, is never reached by a stub.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import islice
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure

from msgnode.bus.components import ForeignDomains
from msgnode.config.foreign import ForeignStub
from msgnode.foreign.foreign_domain import STOPPING, ForeignDomain
from msgnode.foreign.host_names import HostNames
from msgnode.foreign.lifecycle.surroundings import Surroundings
from msgnode.links.exchange.node_parts import NodeParts
from msgnode.protocol.address import is_multicast
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message
from msgnode.sessions.routing import ALLOCATED
from msgnode.sessions.session import Session
from msgnode.sessions.session_table import TrafficRecorder
from msgnode.structures.time_slices import ADDRESSES

SWEEP_SECONDS = 30.0
_MANAGER = "domain://msg-node."


class StubDomains:
    """
    The other domains (ForeignDomains). `links` are those over links, None if this node has none.
    """

    def __init__(
        self,
        node: NodeParts,
        around: Surroundings,
        traffic_recorder: TrafficRecorder,
        links: ForeignDomains | None,
    ) -> None:
        self.own_host = f"{node.config.domain}/"
        self.links = links
        self.names = HostNames(node.config, self._linked)
        self._node = node
        self._around = around
        self._traffic_recorder = traffic_recorder
        self._domains: dict[str, ForeignDomain] = {}
        self._is_stopped = False
        # Called with a domain, and the addresses there of sessions that came from another member.
        self.moved_here: Callable[[str, list[str]], None] = lambda domain, addresses: None
        self._sweeping = LoopingCall(self._sweep)
        self._sweeping.clock = around.clock

    def __iter__(self) -> Iterator[ForeignDomain]:
        return iter(self._domains.values())

    def __len__(self) -> int:
        return len(self._domains)

    def start(self) -> None:
        self._sweeping.start(SWEEP_SECONDS, now=False)
        for session in list(self._node.sessions):
            self._node.slices.work(self._observe_again(session))

    def stop(self) -> Deferred[Any]:
        """
        Ends all stubs.
        """
        if self._sweeping.running:
            self._sweeping.stop()
        self._is_stopped = True
        domains, self._domains = self._domains, {}
        return DeferredList([each.stop() for each in domains.values()], consumeErrors=True)

    def apply(self) -> None:
        """
        Applies a changed configuration: stubs of domains that are not accepted any more end.
        """
        self.names.apply()
        connectors = {each.stub for each in self._node.config.connectors.values()}
        for name, each in list(self._domains.items()):
            if name not in connectors and self.names.home(f"hyperty://{name}/x") != name:
                del self._domains[name]
                each.stop()
            else:
                each.apply()

    def get(self, name: str) -> ForeignDomain | None:
        return self._domains.get(name)

    def find(self, name: str) -> ForeignDomain:
        """
        The domain of this name. Raises Rejected if there are too many, or after `stop`.
        """
        if self._is_stopped:
            raise Rejected(STOPPING, 502, "no-path")
        found = self._domains.get(name)
        if found is None:
            if len(self._domains) >= self._around.options.max_domains:
                self._make_room()
            found = ForeignDomain(name, self._node, self.names, self._around, self._traffic_recorder)
            found.subscriptions.moved_here = lambda addresses: self.moved_here(name, addresses)
            self._domains[name] = found
        return found

    def _make_room(self) -> None:
        for name, each in self._domains.items():
            if not each.lifecycle.is_running and not each.is_needed() and not len(each.subscriptions):
                del self._domains[name]
                each.stop()
                return
        raise Rejected("too many foreign domains are in use; try again later", 503, "limit")

    def _sweep(self) -> None:
        for each in list(self._domains.values()):
            self._node.slices.work(each.sweep())

    # -- which domain --------------------------------------------------------------------

    def _linked(self, address: str) -> str:
        """
        The domain over links that decides about the address: one in the map, or a peer that is down.
        """
        return self.links.home(address) if self.links is not None else ""

    def home(self, address: str) -> str:
        return self._linked(address) or self.names.home(address)

    def _stub_home(self, address: str) -> str:
        home = self.names.home(address)
        return "" if home == self.names.own else home

    @staticmethod
    def _is_stub(session: Session) -> bool:
        return session.is_node and session.is_ephemeral

    def decides(self, address: str, session: Session, message: Message | None = None) -> bool:
        if self._is_stub(session):
            return False  # it is for clients here
        home = self._stub_home(address)
        if not home:
            return self.links is not None and self.links.decides(address, session, message)
        if session.is_node:
            return False  # no other domain is passed on to a stub
        return not self._is_held_here(address, home)

    def _is_held_here(self, address: str, home: str) -> bool:
        """
        Does a client of that domain, which is connected here, own the address?
        """
        if address[:9].lower() == "domain://" or is_multicast(address):
            return False
        owner = self._node.owners.owner(address)
        if owner is None:
            return False
        return self._may_hold(owner, home) or bool(owner.bindings.get(address, 0) & ALLOCATED)

    def _may_hold(self, session: Session, home: str) -> bool:
        """
        May the session hold addresses of the domain? Its name must be of it; of a domain that is listed, no
        client may without `triangle`.
        """
        stub: ForeignStub | None = self._around.table(home)
        is_open = stub is None or stub.triangle
        return is_open and not session.is_node and self.names.home(session.runtime) == home

    def same_here(self, address: str) -> str:
        home = self._stub_home(address)
        if not home:
            return self.links.same_here(address) if self.links is not None else ""
        return f"{_MANAGER}{self._node.config.domain}/sm" if address == f"{_MANAGER}{home}/sm" else ""

    def is_held_elsewhere(self, address: str, session: Session) -> bool:
        home = self._stub_home(address)
        if not home:
            return self.links is not None and self.links.is_held_elsewhere(address, session)
        if address[:9].lower() == "domain://":
            return True
        if session.bindings.get(address, 0) & ALLOCATED:
            return False
        is_answer = is_multicast(address) and bool(session.bindings.get(address))  # of one who listens
        return not is_answer and not self._may_hold(session, home)

    # -- messages ------------------------------------------------------------------------

    def send(self, message: Message, session: Session) -> None:
        assert isinstance(message.to, str)
        home = self._stub_home(message.to)
        if not home:
            assert self.links is not None
            self.links.send(message, session)
            return
        try:
            self.find(home).send(message, session)
        except Rejected as why:
            why.has_reason_in_reply = True
            raise

    def permitted(
        self, message: Message, found: tuple[Session, ...], session: Session
    ) -> tuple[Session, ...]:
        if self._is_stub(session) or self.links is None:
            return found
        return self.links.permitted(message, found, session)

    def permitted_members(self, message: Message, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return nodes if self.links is None else self.links.permitted_members(message, nodes)

    def adopt(self, session: Session) -> None:
        if self.links is not None:
            self.links.adopt(session)
        self._node.slices.work(self._observe_again(session))

    def together(self) -> AbstractContextManager[None]:
        return self.links.together() if self.links is not None else nullcontext()

    def subscribe(self, message: Message, addresses: list[str], session: Session) -> Deferred[None] | None:
        asked = self.links.subscribe(message, addresses, session) if self.links is not None else None
        waiting = [] if asked is None else [asked]
        by_domain: dict[str, list[str]] = {}
        for address in [] if session.is_node else addresses:
            home = self._stub_home(address)
            if home and not self._is_held_here(address, home):
                by_domain.setdefault(home, []).append(address)
        for home, some in by_domain.items():
            waiting.append(self._observe(home, some, session))
        return _first_failure(waiting) if waiting else None

    def _observe_again(self, session: Session) -> Iterator[None]:
        """
        Subscribes for a session that was here before, or comes from another member, in slices.
        """
        if session.is_node:
            return
        bound = iter(list(session.bindings))
        while some := list(islice(bound, ADDRESSES)):
            by_domain: dict[str, list[str]] = {}
            for address in some:
                home = self._stub_home(address)
                if home and session.bindings.get(address, 0) & ALLOCATED:
                    self._adopt_given(home, address, session)
                elif home and not self._is_held_here(address, home):
                    by_domain.setdefault(home, []).append(address)
            for home, addresses in by_domain.items():
                self._observe(home, addresses, session).addErrback(_not_told)
            yield

    def _adopt_given(self, home: str, address: str, session: Session) -> None:
        with suppress(Rejected):  # too many domains are in use
            self.find(home).given.adopt(address, session)

    def _observe(self, home: str, addresses: list[str], session: Session) -> Deferred[None]:
        refused: Deferred[None] = Deferred()
        try:
            return self.find(home).observe(addresses, session)
        except Rejected as why:
            why.has_reason_in_reply = True
            refused.errback(why)
        return refused

    def unbound(self, address: str, session: Session) -> None:
        if self.links is not None:
            self.links.unbound(address, session)
        home = self._stub_home(address)
        found = self._domains.get(home) if home else None
        if found is not None:
            found.subscriptions.unbound(address, session)
            found.given.unbound(address, session)


def _not_told(why: Failure) -> None:
    """
    Ignores a refusal that no client waits for.
    """
    why.trap(Rejected)


def _first_failure(waiting: list[Deferred[None]]) -> Deferred[None]:
    """
    Fires when all have fired; fails with the first failure.
    """
    if len(waiting) == 1:
        return waiting[0]
    whole = DeferredList(waiting, fireOnOneErrback=True, consumeErrors=True)  # type: ignore[arg-type]
    answer: Deferred[None] = Deferred()
    whole.addCallbacks(lambda found: answer.callback(None), lambda why: answer.errback(why.value.subFailure))
    return answer
