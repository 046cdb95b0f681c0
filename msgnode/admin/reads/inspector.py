"""
The view of a node for reads: the node itself, and what the service knows about it.
"""

from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from msgnode.admin.health import EventLoopLag
from msgnode.admin.node_facts import NodeFacts
from msgnode.admin.process_metrics import ProcessFigures
from msgnode.node import Node
from msgnode.protocol.errors import Rejected
from msgnode.protocol.peer_address import ip_of, network_of, peer_host
from msgnode.sessions.session import Session
from msgnode.transport.sockets import local_address

MAX_WALKS = 2  # through all sessions at a time
MAX_LIMIT = 1000


class Busy(Rejected):
    """
    A refusal because too many walks are under way.
    """

    code = 429
    reason = "limit"
    retry_after = 1

    def __init__(self) -> None:
        super().__init__(f"{MAX_WALKS} lists are being made at this moment; try again")


class Inspector:
    """
    A view of the node, with the walks that are under way.
    """

    def __init__(self, node: Node, facts: NodeFacts, lag: EventLoopLag, clock: IReactorTime) -> None:
        self.node = node
        self.facts = facts
        self.lag = lag
        self.clock = clock
        self.process = ProcessFigures()
        self.walks = 0
        # Messages in and out a second of a session, None while they are not measured.
        self.rates: Callable[[Session], tuple[float | None, float | None]] = _not_measured
        # The newest events of the session of that name, at most so many.
        self.events: Callable[[str, int], list[dict[str, Any]]] = _no_events
        node.sessions.connections.local_address = local_address
        self._began = clock.seconds()

    @property
    def uptime(self) -> float:
        """
        Seconds since the start, whatever happened to the wall clock.
        """
        return self.clock.seconds() - self._began

    def wall_of(self, at: float) -> float:
        """
        A time of the node's clock, in seconds since 1970.
        """
        return self.facts.wall() - (self.clock.seconds() - at)

    def walk(self, steps: Iterator[None], result: Callable[[], Any]) -> Deferred[Any]:
        """
        Takes the steps in slices of the event loop; fires with `result()`. Raises Busy.
        """
        if self.walks >= MAX_WALKS:
            raise Busy()
        self.walks += 1
        done = self.node.slices.work(steps)

        def over(passed: Any) -> Any:
            self.walks -= 1
            return passed

        return done.addBoth(over).addCallback(lambda finished: result())

    def session(self, runtime: str) -> Session:
        """
        The session of that name. Raises Rejected (404).
        """
        found = self.node.sessions.get(runtime)
        if found is None:
            raise Rejected(f"there is no session {runtime[:200]!r} at this node", 404, "not-found")
        return found


def _no_events(runtime: str, most: int) -> list[dict[str, Any]]:
    return []


def _not_measured(session: Session) -> tuple[None, None]:
    return None, None


def checked_limit(limit: int) -> int:
    """
    The limit, if it is in its range. Raises Rejected.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise Rejected(f"parameter limit: expected 1 to {MAX_LIMIT}, found {limit}")
    return limit


def peer_filter(text: str) -> Callable[[str], bool]:
    """
    A test of peers: those with this IP address, or in this network. Raises Rejected.
    """
    try:
        network = network_of(text)
    except ValueError:
        raise Rejected(
            f"parameter peer: expected an IP address or a network such as 10.0.0.0/8, found {text[:80]!r}"
        ) from None

    def is_in(peer: str) -> bool:
        address = ip_of(peer)
        return address is not None and address in network

    return is_in


def peer_address(peer: str) -> str:
    """
    The IP address in the name of a peer, "" of a UNIX socket.
    """
    if peer[:1] == "[":
        return peer[1:].partition("]")[0]
    return peer_host(peer) if peer.count(":") <= 1 else peer
