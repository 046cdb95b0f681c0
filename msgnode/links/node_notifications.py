"""
Notifications of other nodes at `mn:/nodes`: a node was added or removed, or the cost of its route changed.

Only this node publishes there. A client may subscribe the address, or read the list of nodes, if a rule of
the policies names it. Each notification is a record of the namespace SYSTEM (docs/protocol.md).
"""

from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Any, NamedTuple

from twisted.application.service import Service
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.links.operations import NetworkMap
from msgnode.protocol.address import NODES
from msgnode.protocol.errors import Blocked, NotOffered
from msgnode.protocol.message import Message, compose
from msgnode.sessions.session import Session

NODE_ADDED = "be125fa3-b4a7-493c-ad9a-5fa1a23be84d"
NODE_REMOVED = "49a25f30-9b52-423d-800d-19c70cfb08f6"
COST_CHANGED = "47258af8-042d-4d35-9f16-7db80eb5d869"
INTERVAL_SECONDS = 1.0  # between two looks at the map; what changed back meanwhile is not notified
MAX_AT_ONCE = 100  # notifications in one interval; the others follow


class _Reached(NamedTuple):
    """
    A node that a route leads to, as subscribers know it.
    """

    kind: str
    cost: int


class NodeNotifications(Service):
    """
    A publisher of the differences between the map and what subscribers know of it.

    A node is there while a route leads to it. `map_changed`, and the three methods of a listener to nodes,
    may be called as often as anything changes: the map says what is so now.
    """

    def __init__(
        self, read_map: Callable[[], NetworkMap], publish: Callable[[Message], int], clock: IReactorTime
    ) -> None:
        self._read_map = read_map
        self._publish = publish
        self._clock = clock
        self._ids = count(1)
        self._known: dict[str, _Reached] = {}
        self._timer: IDelayedCall | None = None
        self._next_at = 0.0

    def startService(self) -> None:
        super().startService()
        self.map_changed()

    def stopService(self) -> None:
        super().stopService()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def map_changed(self) -> None:
        if self._timer is None and self.running:
            wait = max(0.0, self._next_at - self._clock.seconds())
            self._timer = self._clock.callLater(wait, self._look)

    def node_added(self, node: str, kind: str, cost: int) -> None:
        self.map_changed()

    def node_removed(self, node: str, kind: str) -> None:
        self.map_changed()

    def cost_changed(self, node: str, kind: str, cost: int) -> None:
        self.map_changed()

    def _look(self) -> None:
        self._timer = None
        self._next_at = self._clock.seconds() + INTERVAL_SECONDS
        differences = list(islice(self._differences(_reached(self._read_map())), MAX_AT_ONCE + 1))
        if len(differences) > MAX_AT_ONCE:
            self.map_changed()
        for node, record, reached in differences[:MAX_AT_ONCE]:
            self._notify(node, record, reached)

    def _differences(self, now: dict[str, _Reached]) -> Iterator[tuple[str, str, _Reached]]:
        for node, reached in self._known.items():
            if node not in now:
                yield node, NODE_REMOVED, reached
        for node, reached in now.items():
            known = self._known.get(node)
            if known is None or known.kind != reached.kind:
                yield node, NODE_ADDED, reached
            elif known.cost != reached.cost:
                yield node, COST_CHANGED, reached

    def _notify(self, node: str, record: str, reached: _Reached) -> None:
        body: dict[str, Any] = {"REMOTE_NODE": node, "TYPE": reached.kind}
        if record == NODE_REMOVED:
            del self._known[node]
        else:
            self._known[node] = reached
        if record == COST_CHANGED:
            body["COST"] = reached.cost
        self._publish(compose(next(self._ids), "update", NODES, NODES, body, record=record))


class NodesResponder:
    """
    The responder that lists the nodes that routes lead to; `is_named` says whether a rule names the address.
    """

    addresses = (NODES,)

    def __init__(
        self, read_map: Callable[[], NetworkMap], is_named: Callable[[Message, Session], bool]
    ) -> None:
        self._read_map = read_map
        self._is_named = is_named

    def respond(self, message: Message, session: Session) -> Message:
        """
        Answers 200 with the list as `value`.
        """
        if not self._is_named(message, session):
            raise Blocked(f"only clients that a policy names may read {NODES}", 403)
        if message.type.lower() != "read":
            raise NotOffered(f"{NODES} understands read, not {message.type!r}"[:200])
        nodes = _reached(self._read_map())
        value = [
            {"REMOTE_NODE": node, "TYPE": reached.kind, "COST": reached.cost}
            for node, reached in nodes.items()
        ]
        return message.reply({"code": 200, "value": value})


def _reached(found: NetworkMap) -> dict[str, _Reached]:
    return {
        node.node: _Reached(node.kind, node.cost)
        for node in found.nodes
        if node.cost is not None and node.node != found.node
    }
