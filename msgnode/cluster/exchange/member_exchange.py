"""
The exchange with the other members: what the bus sends to them, and what they send to sessions here.

The member where a client is routes its message: policies at `in` are asked there, and each member that holds
the address gets one copy. A member that gets one delivers it to sessions of its own only, after the policies
at `out`, so that no message goes in circles.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from twisted.internet.defer import Deferred

from msgnode.cluster.directory_view import MemberDirectory
from msgnode.cluster.exchange.lookup import MemberLookup
from msgnode.cluster.exchange.reached_domains import ReachedDomains
from msgnode.cluster.exchange.receiving import MemberReceiving
from msgnode.cluster.exchange.sending import MemberSending
from msgnode.links.exchange.envelopes import IN_PLACE, MessageIds
from msgnode.links.exchange.exchange import Exchange
from msgnode.links.exchange.node_parts import NodeParts
from msgnode.links.exchange.status import TEXTS
from msgnode.links.overlay.network import Network
from msgnode.links.stream.streams import Streams
from msgnode.protocol.errors import Rejected
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
        self.ids = ids
        self._node = node
        self._directory = directory
        self._last = ""  # the address that was changed last
        homes, journal = exchange.homes, node.sessions.journal
        self._lookup = lookup = MemberLookup(
            directory,
            homes.own,
            node.routes.resolve,
            lambda address: homes.is_reached(homes.home(address)),
            lambda address: node.router.expected_responses.is_sender(address),
            seconds,
            node.sessions.released,
        )
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
        self.ask = lookup.ask
        self.is_held_elsewhere = lookup.is_held_elsewhere
        self.send, self.send_copies, self.carry = sending.send, sending.send_copies, sending.carry
        self.publish = sending.publish
        self.received, self.received_several = receiving.received, receiving.received_several
        self.copy_id, self.copy_marks = sending.copy_id, sending.marks
        self.outgoing = exchange.outgoing
        self.outgoing.came_here, self.outgoing.is_here = lookup.came_here, lookup.is_here
        self._sending = sending
        self._exchange = exchange
        exchange.members = self
        self._reached = reached = ReachedDomains(directory, network.has_route)
        homes.by_member = reached.is_reached
        exchange.gateways.member = self._gateway

    def start(self, federates: bool = False, domains: Callable[[], Iterable[str]] = tuple) -> None:
        """
        Connects to the bus, when the sessions of before a restart are there. A node that `federates` sends
        what members have for other domains: those that are in `domains`, now and later.
        """
        if federates:
            own = self._exchange.homes.own
            self._exchange.gateways.watched = lambda: self._reached.tell(set(domains()) - {own})
            self._exchange.gateways.watched()
        self._node.join_cluster(self)
        self._node.router.receipts.send_elsewhere = self.send_elsewhere
        self._node.router.receipts.is_expected = lambda answer, session: self.passed_here(
            answer, session, session
        )
        self._exchange.receipts.send_elsewhere = self.send_elsewhere
        self.outgoing.send_elsewhere = partial(self.send_elsewhere, reason=IN_PLACE)

    def passed_here(self, message: Message, session: Session, recipient: Session) -> bool:
        return self.outgoing.awaited.passed_here(message, session.sid, recipient.sid)

    def awaits(self, session: Session, address: str) -> bool:
        return self.outgoing.awaited.awaits(session.sid, address)

    def forward(self, message: Message, session: Session, nodes: tuple[str, ...] | None) -> bool:
        to = message.to
        if nodes is None:
            nodes = self.holders(to, False) if isinstance(to, str) and self._lookup.is_own(to) else ()
        else:
            nodes = nodes[:1]  # each has it, or hands it over to the other
        return len(nodes) == 1 and self._sending.forward(message, session, nodes[0])

    def _gateway(self, domain: str) -> str:
        """
        The member that reaches the domain, if this node does not.
        """
        return "" if self._exchange.homes.is_reached(domain) else self._reached.gateway(domain)

    def send_out(self, message: Message, session: Session, domain: str) -> None:
        node = "" if session.is_node else self._gateway(domain)  # else it would go from member to member
        if not node:
            raise Rejected(f"{TEXTS['no-path']}: {domain}", 502, "no-path")
        self.send(message, session, node)

    def send_elsewhere(self, message: Message, reason: str = "") -> None:
        """
        Sends a receipt or an answer of this node to the member where the session is now that asked; an answer
        also to another domain. `reason` is for the member. Never raises.
        """
        to = message.to
        assert isinstance(to, str)
        if not self._lookup.is_own(to):
            home = self._exchange.homes.home(to) if message.type == "response" else ""
            gateway = self._exchange.gateways.choose(home) if home else ""
            self._follow((gateway,) if gateway else (), message)
            return
        nodes = self.holders(to, False)
        asked = None if nodes else self.ask(to)
        if asked is not None:
            asked.addCallback(self._follow, message, reason)
        else:
            self._follow(nodes, message, reason)

    def _follow(self, nodes: tuple[str, ...], message: Message, reason: str = "") -> None:
        if nodes:
            self._sending.follow(message, nodes[0], reason)

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
