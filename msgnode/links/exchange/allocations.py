"""
Allocations at other domains: the addresses that the node of another domain gave to a session here.

To that domain they belong to this node, which passes what is sent to them on to the session, and gives them
back when the session ends.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct
from twisted.internet.interfaces import IReactorTime

from msgnode.bus.responders.bindings import flatten_strings
from msgnode.links.exchange.counts import ExchangeCounts
from msgnode.links.exchange.domains import HomeDomains
from msgnode.links.exchange.node_parts import NodeParts
from msgnode.protocol.address import MAX_ADDRESS_CHARS, Domain
from msgnode.protocol.errors import NotOffered, Rejected
from msgnode.protocol.message import Message, compose, decode
from msgnode.sessions.limits.memory_budget import binding_size
from msgnode.sessions.routing import ALLOCATED, OWNED
from msgnode.sessions.session import Session
from msgnode.structures.bounded_cache import BoundedCache

MAX_REQUESTED = 10_000  # requests that other domains have not answered
_MANAGER, _SERVICE = "domain://msg-node.", "-allocation"


class Requested(Struct):
    """
    A request for addresses: the session that asked, and the names of children that it wants with each.
    """

    session: Session
    children: list[str]


class Allocations:
    """
    The table of addresses that sessions here have from other domains, with the service that gave them.

    `send` sends a message of the node's own to another domain.
    """

    def __init__(
        self,
        node: NodeParts,
        homes: HomeDomains,
        send: Callable[[Message], None],
        clock: IReactorTime,
        counts: ExchangeCounts,
    ) -> None:
        self._node = node
        self._homes = homes
        self._send = send
        self._clock = clock
        self._counts = counts
        self._domain = Domain(node.config.domain)
        self._requested: BoundedCache[tuple[str, int | str, str], Requested] = BoundedCache(MAX_REQUESTED)
        self._held: dict[str, str] = {}  # the service of each address
        self._given_back: dict[str, list[str]] = {}  # by service, until the end of the turn

    def __len__(self) -> int:
        return len(self._held)

    def start(self) -> None:
        """
        Takes the allocations of before a restart.
        """
        for session in [session for session in self._node.sessions if not session.is_node]:
            for address, kinds in session.bindings.items():
                home = self._homes.home(address)
                if kinds & ALLOCATED and home not in ("", self._homes.own):
                    self._held[address] = f"{_MANAGER}{home}/address{_SERVICE}"

    @staticmethod
    def is_service(to: object) -> bool:
        return isinstance(to, str) and to.startswith(_MANAGER) and to.endswith(_SERVICE)

    def request(self, message: Message, session: Session) -> None:
        """
        Notes a request that leaves for the allocation service of another domain.

        Raises Rejected if it names addresses of others, or a key: all sessions of this node would share it.
        """
        assert isinstance(message.to, str)
        body, kind = message.fields(), message.type.lower()
        most = self._node.config.limits.addresses_per_request
        below = flatten_strings(body.get("childrenResources"), most)
        children = [each for each in below if "://" not in each]
        if kind == "create":
            value = body.get("value")
            if isinstance(value, dict) and value.get("allocationKey") is not None:
                raise NotOffered("another domain allocates without a key only")
            self._requested.put((message.from_, message.id, message.to), Requested(session, children))
            return
        named = flatten_strings(body.get("resource"), most)
        named += [each for each in below if "://" in each]
        for address in named:
            if not session.bindings.get(address, 0) & ALLOCATED:
                raise Rejected(f"{address} is not allocated to this session"[:300], 403, "not-your-address")
        for address in named:
            self._held.pop(address, None)
            self._node.routes.unbind(address, session, ALLOCATED)

    def answered(self, message: Message) -> None:
        """
        Binds the addresses in the answer of another domain to the session that asked.
        """
        if not isinstance(message.to, str) or not self.is_service(message.from_):
            return
        key = message.to, message.id, message.from_
        requested = self._requested.get(key)
        if requested is None or message.type.lower() != "response":
            return
        body = message.fields()
        code, value = body.get("code"), body.get("value")
        if isinstance(code, int) and code < 200:
            return
        self._requested.pop(key)
        allocated = value.get("allocated") if isinstance(value, dict) else None
        if code == 200 and isinstance(allocated, list):
            self._bind(message.from_, allocated, requested)

    def _bind(self, service: str, allocated: list[Any], requested: Requested) -> None:
        home, session = self._homes.home(service), requested.session
        for address in allocated[: self._node.config.allocation.per_request]:
            if not isinstance(address, str) or len(address) > MAX_ADDRESS_CHARS:
                continue
            if self._homes.home(address) != home or address.startswith("domain://"):
                self._counts.note(home, "peer")
                continue
            for each in (address, *(f"{address}/children/{name}" for name in requested.children)):
                if session.ended or not self._has_room(each, session):
                    self._give_back(service, each)
                else:
                    self._held[each] = service
                    own = OWNED if each is address else 0
                    self._node.routes.bind(each, session, ALLOCATED | own)

    def _has_room(self, address: str, session: Session) -> bool:
        if len(session.bindings) >= self._node.config.limits.bindings_per_session:
            return False
        return self._node.budget.has_room(session.account, binding_size(address))

    # -- the way back ------------------------------------------------------------------

    def unbound(self, address: str) -> None:
        """
        A session is no longer bound to the address: if it was allocated elsewhere, it is given back.
        """
        service = self._held.pop(address, None)
        if service is not None:
            self._give_back(service, address)

    def _give_back(self, service: str, address: str) -> None:
        if not self._given_back:
            self._clock.callLater(0, self._send_back)
        self._given_back.setdefault(service, []).append(address)

    def _send_back(self) -> None:
        """
        Gives back what was released in this turn, and not moved to another session, as the node itself.
        """
        given_back, self._given_back = self._given_back, {}
        for service, addresses in given_back.items():
            gone = []
            for address in addresses:
                if self._node.routes.is_allocated(address):
                    self._held[address] = service
                else:
                    gone.append(address)
            if gone:
                request = compose(0, "delete", own_address(self._domain), service, {"resource": gone})
                self._send(decode(request.data))


def own_address(domain: Domain) -> str:
    """
    The address from which a node gives addresses back; answers to it are of no use.
    """
    return f"{domain.node}/links"
