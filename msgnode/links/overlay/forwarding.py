"""
Forwarding of datagrams: to the next hop, or to this node's streams; everything refused is counted by reason.

No datagram visits a node twice: its path has the nodes that it has left, and one that would come back is
refused. A datagram that its link does not take waits in memory, by priority.
"""

from twisted.internet.interfaces import IReactorTime

from msgnode.links.carrier.link import CLIENT
from msgnode.links.overlay.holding import Waiting
from msgnode.links.overlay.neighbours import Neighbour, Neighbours
from msgnode.links.overlay.network import NetworkListener
from msgnode.links.overlay.refusals import Refusals
from msgnode.links.overlay.routes.table import Routes
from msgnode.links.wire.datagram import (
    HOP_LIMIT,
    MAX_DATAGRAM_BYTES,
    MAX_HEADER_BYTES,
    PRIORITIES,
    Datagram,
)
from msgnode.links.wire.entries import Data

MAX_MICROS = 1 << 40


class Forwarding:
    """
    Sends, receives and forwards datagrams.
    """

    def __init__(
        self,
        clock: IReactorTime,
        node: str,
        kind: str,
        neighbours: Neighbours,
        routes: Routes,
        refusals: Refusals,
    ) -> None:
        self.listener: NetworkListener | None = None
        self.excluded: frozenset[str] = frozenset()  # domains from and to which nothing passes
        self.sent = self.forwarded = self.delivered = 0
        self._clock = clock
        self._node = node
        self._is_client = kind == CLIENT
        self._neighbours = neighbours
        self._routes = routes
        self._refusals = refusals
        self._wants_room = False

    def send(self, datagram: Datagram) -> bool:
        """
        Send a datagram of this node. False: no route, or the next hop is full.
        """
        hop = self._routes.first_hop(datagram.destination)
        neighbour = None if hop is None else self._neighbours.get(hop)
        if neighbour is None:
            return False
        if neighbour.held and not neighbour.held.has_room_for_own(datagram.priority):
            self._wants_room = True
            return False
        self.sent += 1
        self._leave(neighbour, _with(datagram, HOP_LIMIT, []))
        return True

    def received(self, neighbour: Neighbour, datagram: Datagram) -> None:
        """
        A datagram came from a neighbour.
        """
        if reason := self._malformed(neighbour, datagram):
            self._refusals.refuse(neighbour.node, "malformed", reason)
        elif self.excluded and self._is_excluded(datagram):
            self._refusals.count("banned")
        elif any(node == self._node for node, _ in datagram.path):
            self._refusals.count("loop")
        elif datagram.destination == self._node:
            self.delivered += 1
            if self.listener is not None:
                self.listener.received(datagram)
        elif self._may_pass(neighbour, datagram):
            self._forward(datagram)

    def has_room(self, neighbour: Neighbour) -> None:
        """
        The link takes datagrams again: send what waits.
        """
        neighbour.is_full = False
        while not neighbour.is_full and (waiting := neighbour.held.pop()) is not None:
            if not self._put_on_link(neighbour, waiting.datagram, waiting.since):
                neighbour.held.put_back(waiting)
        if self._wants_room and not neighbour.is_full and self.listener is not None:
            self._wants_room = False
            self.listener.has_room()

    def lost(self, neighbour: Neighbour) -> None:
        """
        The link is down. Datagrams that wait take another route, if there is one.
        """
        waiting: list[Waiting] = []
        while (each := neighbour.held.pop()) is not None:
            waiting.append(each)
        for each in waiting:
            self._reroute(each, neighbour)
        if self._wants_room and self.listener is not None:
            self._wants_room = False
            self.listener.has_room()

    def _malformed(self, neighbour: Neighbour, datagram: Datagram) -> str:
        path = datagram.path
        if not 1 <= datagram.hop_limit <= HOP_LIMIT or not 0 <= datagram.priority < PRIORITIES:
            return f"hop limit {datagram.hop_limit}, priority {datagram.priority}"
        if len(datagram.payload) > MAX_DATAGRAM_BYTES or len(datagram.header) > MAX_HEADER_BYTES:
            return f"{len(datagram.payload)} bytes of payload, {len(datagram.header)} of header"
        if not 1 <= len(path) <= HOP_LIMIT:
            return f"a path of {len(path)} nodes"
        if path[0][0] != datagram.source or path[-1][0] != neighbour.node:
            return "a path that does not lead from the source to this neighbour"
        if not all(0 <= micros <= MAX_MICROS for _, micros in path):
            return "a path with impossible times"
        return ""

    def _is_excluded(self, datagram: Datagram) -> bool:
        ends = (datagram.source, datagram.destination)
        return any(name[5:].partition("/")[0] in self.excluded for name in ends)

    def _may_pass(self, neighbour: Neighbour, datagram: Datagram) -> bool:
        if self._is_client or (neighbour.link.kind == CLIENT and datagram.source != neighbour.node):
            self._refusals.refuse(neighbour.node, "client", "a CLIENT node is an end")
        elif not neighbour.transit:
            self._refusals.refuse(neighbour.node, "transit", f"a datagram for {datagram.destination[:200]}")
        elif datagram.hop_limit == 1:
            self._refusals.count("hop-limit")
        else:
            return True
        return False

    def _forward(self, datagram: Datagram) -> None:
        hop = self._routes.transit_hop(datagram.destination, self._neighbours.without_transit)
        if self._pass(hop, _with(datagram, datagram.hop_limit - 1, datagram.path)):
            self.forwarded += 1

    def _leave(self, neighbour: Neighbour, datagram: Datagram) -> None:
        """
        Put a datagram on the link, or let it wait.
        """
        now = self._clock.seconds()
        if not neighbour.held and not neighbour.is_full and self._put_on_link(neighbour, datagram, now):
            return
        for _ in neighbour.held.put(datagram, now):
            self._refusals.count("full")

    def _put_on_link(self, neighbour: Neighbour, datagram: Datagram, since: float) -> bool:
        micros = max(0, round((self._clock.seconds() - since) * 1_000_000))
        path = [*datagram.path, (self._node, micros)]
        if neighbour.link.send(Data(_with(datagram, datagram.hop_limit, path))):
            return True
        neighbour.is_full = True
        return False

    def _reroute(self, waiting: Waiting, lost: Neighbour) -> None:
        """
        Find another route now: the table still has those by the link that is lost.
        """
        datagram = waiting.datagram
        hop = self._routes.first_hop(datagram.destination)
        if hop == lost.node and self._neighbours.get(hop) is None:
            refused = frozenset((lost.node,)) | (
                self._neighbours.without_transit if datagram.path else frozenset()
            )
            hop = self._routes.transit_hop(datagram.destination, refused)
        self._pass(hop, datagram)

    def _pass(self, hop: str | None, datagram: Datagram) -> bool:
        neighbour = None if hop is None else self._neighbours.get(hop)
        if neighbour is None or (datagram.path and not neighbour.transit):
            self._refusals.count("no-route")
        elif any(node == hop for node, _ in datagram.path):
            self._refusals.count("loop")
        else:
            self._leave(neighbour, datagram)
            return True
        return False


def _with(datagram: Datagram, hop_limit: int, path: list[tuple[str, int]]) -> Datagram:
    """
    A copy of a datagram with another hop limit and path.
    """
    return Datagram(
        datagram.source,
        datagram.destination,
        hop_limit,
        path,
        datagram.priority,
        datagram.key,
        datagram.nonce,
        datagram.tag,
        datagram.header,
        datagram.payload,
    )
