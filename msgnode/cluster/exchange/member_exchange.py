"""
The exchange with the other members: what the bus sends to them, and what they send to sessions here.

The member where a client is routes its message: policies at `in` are asked there, and each member that holds
the address gets one copy. A member that gets one delivers it to sessions of its own only, after the policies
at `out`, so that no message goes in circles.
"""

from collections.abc import Callable
from typing import Protocol

from twisted.internet.defer import Deferred

from msgnode.cluster.directory_view import MemberDirectory
from msgnode.cluster.exchange.lookup import MemberLookup
from msgnode.cluster.exchange.receiving import MemberReceiving
from msgnode.cluster.exchange.sending import MemberSending
from msgnode.links.exchange.envelopes import MessageIds
from msgnode.links.exchange.exchange import Exchange
from msgnode.links.exchange.node_parts import NodeParts
from msgnode.links.overlay.network import Network
from msgnode.links.stream.streams import Streams
from msgnode.protocol.message import Message
from msgnode.sessions.session import Session
from msgnode.sessions.session_table import TrafficRecorder


class MemberParts(NodeParts, Protocol):
    """
    The node, as the exchange between members sees it.
    """

    def join_cluster(self, members: "MemberExchange") -> None: ...


class MemberExchange:
    """
    The exchange with the other members (ClusterMembers of the bus, Members of the exchange between domains).
    """

    def __init__(
        self,
        node: MemberParts,
        streams: Streams,
        network: Network,
        exchange: Exchange,
        directory: MemberDirectory,
        ids: MessageIds,
        traffic_recorder: TrafficRecorder,
        seconds: Callable[[], float],
    ) -> None:
        self.changes = 0
        self._node = node
        self._directory = directory
        self._last = ""  # the address that was changed last
        homes, journal = exchange.homes, node.sessions.journal
        self._lookup = lookup = MemberLookup(directory, homes.own, node.routes.resolve, homes.home, seconds)
        sending = MemberSending(
            streams,
            network,
            exchange.outgoing,
            lambda: node.router,
            homes.own,
            ids,
            exchange.is_collecting,
            journal.before_write,
            exchange.options,
            exchange.counts,
        )
        receiving = MemberReceiving(node, exchange, sending, traffic_recorder, seconds)
        # Bound methods of the parts: a message would otherwise pay for one more call.
        self.holders, self.is_held = lookup.holders, lookup.is_held
        self.ask, self.subscribe = lookup.ask, lookup.subscribe
        self.is_held_elsewhere = lookup.is_held_elsewhere
        self.send, self.send_copies, self.carry = sending.send, sending.send_copies, sending.carry
        self.received, self.received_several = receiving.received, receiving.received_several
        self.copy_id = sending.copy_id
        self._sending = sending
        exchange.members = self

    def start(self, federates: bool = False) -> None:
        """
        Connects to the bus, when the sessions of before a restart are there. A node that `federates` sends
        what members have for other domains.
        """
        self._lookup.federates = federates
        self._node.join_cluster(self)

    def forward(self, message: Message, session: Session) -> bool:
        to = message.to
        nodes = self.holders(to, False) if isinstance(to, str) and self._lookup.is_own(to) else ()
        return len(nodes) == 1 and self._sending.forward(message, session, nodes[0])

    # -- what this node holds ------------------------------------------------------------------

    def bound(self, address: str) -> None:
        if not address.startswith("mn:"):
            self._changed(address)
            self._directory.bound(address)

    def unbound(self, address: str) -> None:
        if not address.startswith("mn:"):
            self._changed(address)
            self._directory.unbound(address)

    def opened(self, runtime: str) -> None:
        if not runtime.startswith("mn:"):
            session = self._node.routes.runtime(runtime)
            self._changed(runtime)
            generation = session.generation if session is not None else 1
            self._directory.session_bound(runtime, _token_hash(session), generation)

    def closed(self, runtime: str) -> None:
        if not runtime.startswith("mn:"):
            self._changed(runtime)
            self._directory.session_unbound(runtime)

    def _changed(self, address: str) -> None:
        self.changes += 1
        self._last = address

    def settled(self) -> Deferred[None]:
        return self._directory.settled(self._last)


def _token_hash(session: Session | None) -> bytes:
    """
    The part of the hash of a session's token that the directory holds.
    """
    return session.token_hash[:16].ljust(16, b"\0") if session is not None else bytes(16)
