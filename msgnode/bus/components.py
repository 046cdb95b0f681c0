"""
The registry of connectors: how messages come in, who answers at the node's addresses, what it calls.

Seed 002: session management "manages the registry of protocol stubs and
connectors supported by the Messaging Nodes to support the routing of messages
to these components".  The node is wired from it: the router finds responders
here and nowhere else.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from msgnode.bus.responder import Responder
from msgnode.protocol.address import Domain
from msgnode.protocol.errors import Blocked, NotOffered
from msgnode.protocol.message import Message
from msgnode.sessions.session import Session

CONNECTOR, RESPONDER, BACK_END = "connector", "responder", "back end"
UP, DOWN, PAUSED = "up", "down", "paused"


class BackEnd(Protocol):
    """
    A server that the node calls: what came of it so far, by outcome, and is it given up for the moment?
    """

    name: str
    counts: Counter[str]

    @property
    def down(self) -> bool: ...


class Listening(Protocol):
    """
    A listener: its kind, and where it listens, `""` while it does not.
    """

    kind: str
    where: str


class Components:
    """
    The registry of connectors, back ends and responders.

    `responders` by their addresses, `back_ends` in the order in which they came, `listeners` as configured.

    `answered` counts the requests that each responder was asked.
    """

    def __init__(self, connections: Callable[[], Counter[str]]) -> None:
        self.responders: dict[str, Responder] = {}
        self.back_ends: list[BackEnd] = []
        self.listeners: list[Listening] = []
        self.answered: Counter[Any] = Counter()
        self._names: dict[Any, str] = {}
        self._connections = connections

    def offer(self, name: str, responder: Responder, addresses: Iterable[str]) -> None:
        """
        Let it answer at these addresses, in the place of one of its name.
        """
        for address in [at for at, other in self.responders.items() if self._names.get(other) == name]:
            before = self.responders.pop(address)
            self._names.pop(before, None)
            self.answered[responder] += self.answered.pop(before, 0)
        self.responders.update(dict.fromkeys(addresses, responder))
        self._names[responder] = name

    def call(self, back_end: BackEnd) -> None:
        """
        Another back end, in the place of one of its name.
        """
        self.back_ends[:] = [other for other in self.back_ends if other.name != back_end.name] + [back_end]

    def to_builtins(self) -> list[dict[str, Any]]:
        """
        Each with `name`, `kind`, `state` and its figures; for JSON.
        """
        return [*self._connectors(), *self._responders(), *self._back_ends()]

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
    Lists what the node is made of to those whom a policy names; `is_named` tells whether one does.
    """

    def __init__(
        self, domain: Domain, components: Components, is_named: Callable[[Message, Session], bool]
    ) -> None:
        self.address = f"{domain.node}/connectors"
        self._components = components
        self._is_named = is_named

    def respond(self, message: Message, session: Session) -> Message:
        """
        200 with the list as `value`.
        """
        if not self._is_named(message, session):
            raise Blocked(f"only whom a policy names may read {self.address}", 403)
        if message.type.lower() != "read":
            raise NotOffered(f"connectors understand read, not {message.type!r}"[:200])
        return message.reply({"code": 200, "value": self._components.to_builtins()})
