"""
The view of a node for reads: the node itself, and what the service knows about it.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from copy import copy
from typing import Any

from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.internet.interfaces import IReactorTime

from msgnode.admin.health import EventLoopLag
from msgnode.admin.node_facts import NodeFacts
from msgnode.admin.process_metrics import ProcessFigures
from msgnode.cluster.operator_requests import Operator
from msgnode.node import Node
from msgnode.protocol.errors import Rejected
from msgnode.protocol.peer_address import ip_of, network_of, peer_host
from msgnode.sessions.session import Session
from msgnode.transport.sockets import local_address

MAX_LISTS, MAX_LISTS_OF_ONE = 4, 2  # walks through all sessions at a time, and those of one operator
MAX_ACTIONS, MAX_WAITING_ACTIONS = 2, 64  # walks of actions at a time, and those that wait for their turn
MAX_LIMIT = 1000


class Busy(Rejected):
    """
    A refusal because too many walks are under way.
    """

    code = 429
    reason = "limit"
    retry_after = 1

    def __init__(self, number: int, what: str) -> None:
        super().__init__(f"{number} {what} at this moment; try again")


class Walks:
    """
    The walks through all sessions that are under way. Lists are refused beyond a limit, of which one operator
    has a part; actions have a limit of their own, and wait for their turn: no reader keeps a ban out.
    """

    def __init__(self) -> None:
        self._lists: Counter[str] = Counter()
        self._actions = DeferredSemaphore(MAX_ACTIONS)

    def list(self, begin: Callable[[], Deferred[None]], reader: str) -> Deferred[None]:
        """
        Begins the walk of a list for this reader. Raises Busy.
        """
        if self._lists[reader] >= MAX_LISTS_OF_ONE:
            raise Busy(MAX_LISTS_OF_ONE, "lists are being made for this token")
        if self._lists.total() >= MAX_LISTS:
            raise Busy(MAX_LISTS, "lists are being made")
        self._lists[reader] += 1

        def over(passed: Any) -> Any:
            self._lists[reader] -= 1
            self._lists += Counter()  # forgets readers with none
            return passed

        return begin().addBoth(over)

    def act(self, begin: Callable[[], Deferred[None]]) -> Deferred[None]:
        """
        Begins the walk of an action when it is its turn. Raises Busy.
        """
        if len(self._actions.waiting) >= MAX_WAITING_ACTIONS:
            raise Busy(MAX_WAITING_ACTIONS, "actions wait")
        return self._actions.run(begin)


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
        self.walks = Walks()
        self._reader = ""
        # Messages in and out a second of a session, None while they are not measured.
        self.rates: Callable[[Session], tuple[float | None, float | None]] = _not_measured
        # The newest events of the session of that name, at most so many.
        self.events: Callable[[str, int], list[dict[str, Any]]] = _no_events
        # The labels that operators gave a runtimeURL.
        self.labels: Callable[[str], list[str]] = _no_labels
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

    def by(self, operator: Operator) -> "Inspector":
        """
        This view for an operator, to whom the lists that are made by it count.
        """
        found = copy(self)
        found._reader = f"{operator.name}@{operator.node}"
        return found

    def walk(self, steps: Iterator[None], result: Callable[[], Any]) -> Deferred[Any]:
        """
        Takes the steps of a list in slices of the event loop; fires with `result()`. Raises Busy.
        """
        walked = self.walks.list(lambda: self.node.slices.work(steps), self._reader)
        return walked.addCallback(lambda finished: result())

    def walk_to_act(self, steps: Iterator[None]) -> Deferred[Any]:
        """
        Takes the steps that find the targets of an action, in slices of the event loop. Raises Busy.
        """
        return self.walks.act(lambda: self.node.slices.work(steps))

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


def _no_labels(runtime: str) -> list[str]:
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
