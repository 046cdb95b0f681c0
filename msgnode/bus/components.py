"""
The registry of components: the node's connectors, responders and back ends.

Seed 002: session management "manages the registry of protocol stubs and connectors supported by the Messaging
Nodes to support the routing of messages to these components". The router looks up responders only here.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from msgnode.protocol.address import Domain
from msgnode.protocol.close_codes import Closing
from msgnode.protocol.errors import Blocked, NotOffered
from msgnode.protocol.message import Message
from msgnode.sessions.session import Connection, Session

CONNECTOR, RESPONDER, BACK_END = "connector", "responder", "back end"
UP, DOWN, PAUSED = "up", "down", "paused"

Reply = Message | Deferred[Message] | None


class Responder(Protocol):
    """
    Code of the node that answers at one of the node's own addresses.
    """

    def respond(self, message: Message, session: Session) -> Reply:
        """
        The reply, which the node delivers. Raises Rejected to refuse the message.
        """


class BackEnd(Protocol):
    """
    A server that the node calls, with its calls counted by outcome; `down`: is its circuit breaker open?

    `since` is when that last changed, by the node's clock; `latest` has the seconds of the latest calls.
    """

    name: str
    counts: Counter[str]
    latest: deque[float]

    @property
    def url(self) -> str: ...

    @property
    def since(self) -> float: ...

    @property
    def under_way(self) -> int: ...

    @property
    def queued(self) -> int: ...

    @property
    def down(self) -> bool: ...


class Listening(Protocol):
    """
    A listener: its kind, and its address in `where`, `""` while it does not listen.
    """

    kind: str
    where: str


class ForeignSubscriptions(Protocol):
    """
    Subscriptions at other domains, as the bus makes them.
    """

    def subscribe(self, message: Message, addresses: list[str], session: Session) -> Deferred[None] | None:
        """
        Subscribes at the domains that decide about these addresses; None if there are none.

        The result fails with Rejected if one of them refuses, or does not answer in time.
        """


class ForeignDomains(ForeignSubscriptions, Protocol):
    """
    The other domains, reached over links (links/exchange) or by stubs (foreign), as the bus sees them.

    `own_host` is the node's domain and a slash: an address with it behind `scheme://` is never asked about.
    """

    own_host: str

    def home(self, address: str) -> str:
        """
        The domain that the address belongs to, this one or another; "" if none is known.
        """

    def decides(self, address: str, session: Session, message: Message | None = None) -> bool:
        """
        Does another domain decide who gets what this session sends to the address? A `message` may have been
        redirected to it.
        """

    def same_here(self, address: str) -> str:
        """
        The address of this node that means the same as this service of another node; "" if there is none.
        """

    def is_held_elsewhere(self, address: str, session: Session) -> bool:
        """
        Is it an address of another domain, which this session may not hold?
        """

    def send(self, message: Message, session: Session) -> None:
        """
        Sends a message that another domain decides about. Raises Rejected to refuse it.
        """

    def permitted(
        self, message: Message, found: tuple[Session, ...], session: Session
    ) -> tuple[Session, ...]:
        """
        Those of these sessions that get what a node sends to their address; `session` is the node's.
        """

    def permitted_members(self, message: Message, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """
        Those of these members that get what a node of another domain sends to their address.
        """

    def adopt(self, session: Session) -> None:
        """
        A session with its addresses has come from another member.
        """

    def together(self) -> AbstractContextManager[None]:
        """
        Sends the copies of one message to a list, made within, as one message for each domain.
        """

    def unbound(self, address: str, session: Session) -> None:
        """
        The session is no longer bound to the address.
        """


class HeldAddresses(Protocol):
    """
    A listener to the addresses that sessions of this node are bound to.
    """

    def bound(self, address: str) -> None:
        """
        The first session here is bound to the address.
        """

    def unbound(self, address: str) -> None:
        """
        No session here is bound to the address any more.
        """

    def opened(self, runtime: str) -> None:
        """
        A session here has this runtimeURL, and with it everything below.
        """

    def closed(self, runtime: str) -> None:
        """
        No session here has this runtimeURL any more.
        """


class ClusterMembers(HeldAddresses, Protocol):
    """
    The other nodes of this domain, as the bus sees them (cluster/exchange).

    `changes` counts what this node has told the members about its addresses.
    """

    changes: int

    def holders(self, address: str, is_held_here: bool) -> tuple[str, ...]:
        """
        The members that hold the address. One that is held here may be held elsewhere, too; one that is not
        may be below a runtimeURL there.
        """

    def is_held_elsewhere(self, address: str) -> bool:
        """
        Does a session at another member, which is not suspected, hold the address, or a runtimeURL above it?
        """

    def ask(self, address: str, has_moved: bool = False) -> Deferred[tuple[str, ...]] | None:
        """
        The members that hold an address that the directory does not know, or reach its domain, by asking all;
        never fails. None if they were asked just now, or if nothing is lost without. `has_moved`: a member
        says that this node holds it.
        """

    def passed_here(self, message: Message, session: Session, recipient: Session) -> bool:
        """
        Notes a message of a session here to another one. False if it is a response to a request that was
        answered in its place: its recipient was at another member then.
        """

    def awaits(self, session: Session, address: str) -> bool:
        """
        Does the session wait for an answer of the address to a request that went to another member?
        """

    def send(self, message: Message, session: Session, node: str) -> None:
        """
        Sends a message to the only member that holds its address. Raises Rejected.
        """

    def carry(self, node: str, data: bytes) -> None:
        """
        Sends a message of this node's own to a member. Never raises.
        """

    def publish(self, message: Message, nodes: tuple[str, ...]) -> None:
        """
        Sends a copy of a message of this node's own to each of these members. Never raises.
        """

    def send_copies(self, message: Message, session: Session, nodes: tuple[str, ...]) -> int:
        """
        Sends one copy to each of these members, without receipts; returns to how many.
        """

    def forward(self, message: Message, session: Session, nodes: tuple[str, ...] | None) -> bool:
        """
        Sends what a member has routed here on to the one that its session has moved to; `nodes` are those
        that hold its address, None: those that are known. False if there is not one. Raises Rejected.
        """

    def settled(self) -> Deferred[None]:
        """
        Fires when all members know what this node holds now, or after a short while.
        """


class OtherHolders(Protocol):
    """
    The other nodes of the domain as holders of sessions that clients open here (cluster/moves).
    """

    def take(self, runtime: str, token: str, connection: Connection, again: Callable[[], object]) -> bool:
        """
        Asks for a session that another node may hold. False: no node has to be asked; True: `again` is called
        when the session is here, or cannot be had.
        """

    def outcome(self, connection: Connection, runtime: str) -> int | Closing:
        """
        The generation with which a session that is not here begins, or the reason why the client is refused.
        """

    def began(self, session: Session) -> None:
        """
        A session began here.
        """


class PoolLeases(Protocol):
    """
    The leases of pools in a domain of several nodes (cluster/ownership).
    """

    def lease(self, scheme: str, number: int) -> Deferred[list[str]]:
        """
        Free addresses of a pool, for a session here; fails with Rejected.
        """


class Components:
    """
    The registry of connectors, back ends and responders.

    `responders` are by address, `back_ends` in the order of registration, `listeners` as configured.

    `answered` counts the requests to each responder. `stubs` lists the foreign stubs that the node runs.
    """

    def __init__(self, connections: Callable[[], Counter[str]]) -> None:
        self.responders: dict[str, Responder] = {}
        self.back_ends: list[BackEnd] = []
        self.listeners: list[Listening] = []
        self.stubs: Callable[[], list[dict[str, Any]]] = list
        self.answered: Counter[Any] = Counter()
        self._names: dict[Any, str] = {}
        self._connections = connections

    def offer(self, name: str, responder: Responder, addresses: Iterable[str]) -> None:
        """
        Adds a responder at these addresses; it replaces one of the same name.
        """
        for address in [at for at, other in self.responders.items() if self._names.get(other) == name]:
            before = self.responders.pop(address)
            self._names.pop(before, None)
            self.answered[responder] += self.answered.pop(before, 0)
        self.responders.update(dict.fromkeys(addresses, responder))
        self._names[responder] = name

    def call(self, back_end: BackEnd) -> None:
        """
        Adds a back end; it replaces one of the same name.
        """
        self.back_ends[:] = [other for other in self.back_ends if other.name != back_end.name] + [back_end]

    def to_builtins(self) -> list[dict[str, Any]]:
        """
        The components as JSON values, each with `name`, `kind`, `state` and its figures.
        """
        return [*self._connectors(), *self._responders(), *self._back_ends(), *self.stubs()]

    def _connectors(self) -> list[dict[str, Any]]:
        listening = [
            {
                "name": listener.kind,
                "kind": CONNECTOR,
                "state": UP if listener.where else DOWN,
                "where": listener.where,
            }
            for listener in self.listeners
        ]
        by_name = sorted(self._connections().items())
        return listening + [
            {"name": name, "kind": CONNECTOR, "state": UP, "connections": number} for name, number in by_name
        ]

    def _responders(self) -> list[dict[str, Any]]:
        found: dict[Any, list[str]] = {}
        for address, responder in self.responders.items():
            found.setdefault(responder, []).append(address)
        return [
            {
                "name": self._names.get(responder) or type(responder).__name__,
                "kind": RESPONDER,
                "state": UP,
                "addresses": addresses,
                "requests": self.answered[responder],
            }
            for responder, addresses in found.items()
        ]

    def _back_ends(self) -> list[dict[str, Any]]:
        return [
            {
                "name": each.name,
                "kind": BACK_END,
                "state": PAUSED if each.down else UP,
                "requests": sum(each.counts.values()),
                "outcomes": dict(each.counts),
            }
            for each in self.back_ends
        ]


class ComponentResponder:
    """
    The responder that lists the node's components to clients that a policy names; `is_named` checks that.
    """

    def __init__(
        self, domain: Domain, components: Components, is_named: Callable[[Message, Session], bool]
    ) -> None:
        self.address = f"{domain.node}/connectors"
        self._components = components
        self._is_named = is_named

    def respond(self, message: Message, session: Session) -> Message:
        """
        Answers 200 with the list as `value`.
        """
        if not self._is_named(message, session):
            raise Blocked(f"only clients that a policy names may read {self.address}", 403)
        if message.type.lower() != "read":
            raise NotOffered(f"connectors understand read, not {message.type!r}"[:200])
        return message.reply({"code": 200, "value": self._components.to_builtins()})
