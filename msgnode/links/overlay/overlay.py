"""
The overlay: links in, datagrams out. It joins neighbours, link states, flooding, routes and forwarding.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from msgnode.links.carrier.link import CLIENT, SERVER, Link
from msgnode.links.overlay.advertisement import Advertisement, Refused
from msgnode.links.overlay.flooding import Flooding
from msgnode.links.overlay.forwarding import Forwarding
from msgnode.links.overlay.link_state import LinkStates, Record
from msgnode.links.overlay.neighbours import Neighbour, Neighbours
from msgnode.links.overlay.network import NetworkListener, NodeKeys
from msgnode.links.overlay.own_advertisement import OwnAdvertisements, Signed
from msgnode.links.overlay.refusals import Refusals
from msgnode.links.overlay.routes.graph import Graph, Key
from msgnode.links.overlay.routes.table import Routes
from msgnode.links.overlay.signatures import Seal, Signer
from msgnode.links.overlay.synchronising import DIGEST_SECONDS, Synchronising
from msgnode.links.wire.datagram import Datagram
from msgnode.links.wire.entries import Data, Digest, State, Summary
from msgnode.links.wire.node_name import domain_of

TICK_SECONDS = 10.0
REVERIFIED_AT_ONCE = 32
MAX_OWN_MET = 3  # advertisements of another process with this node's name, before the operator is notified

_log = Logger()


class NodeListener(Protocol):
    """
    A listener to the nodes of the network, as `mn:/nodes` publishes them.
    """

    def node_added(self, node: str, kind: str, cost: int) -> None:
        """
        The node can be reached.
        """

    def node_removed(self, node: str, kind: str) -> None: ...

    def cost_changed(self, node: str, kind: str, cost: int) -> None: ...


class Overlay:
    """
    The overlay of one node: a LinkListener to its carriers, and the Network of its streams.

    `start` is the node's start counter. `is_peer` says whether a domain is configured as a peer. `wall` is
    the time of day in seconds since 1970, for the end of certificates only.
    """

    def __init__(
        self,
        clock: IReactorTime,
        node: str,
        seal: Seal,
        keys: NodeKeys,
        *,
        start: int = 1,
        kind: str = SERVER,
        is_peer: Callable[[str], bool] = lambda domain: False,
        wall: Callable[[], float],
    ) -> None:
        self.kind = kind
        self.refusals = Refusals(clock.seconds)
        self.states = LinkStates(clock.seconds)
        self.neighbours = Neighbours(clock, domain_of(node), self)
        self.routes = Routes(clock, Graph(node), self)
        self.forwarding = Forwarding(clock, node, kind, self.neighbours, self.routes, self.refusals)
        self.flooding = Flooding(clock, node, seal, self.states, self.neighbours, self.refusals, self)
        self.own = OwnAdvertisements(clock, node, kind, seal, keys, start, self.neighbours, self)
        self.synchronising = Synchronising(clock, node, self.states, self.own, self.neighbours, self.flooding)
        self.seconds = clock.seconds
        self._clock = clock
        self._node = node
        self._seal = seal
        self._is_peer = is_peer
        self._wall = wall
        self._listeners: list[NetworkListener] = []
        self._node_listeners: list[NodeListener] = []
        self._kinds: dict[str, str] = {}
        self._reverifying: IDelayedCall | None = None
        # Called with a node whose certificate has ended, or is trusted no more.
        self.distrusted: Callable[[str], None] = lambda node: None
        # May the node still sign by the key with that hash? Members of a cluster announce theirs.
        self.is_still_key: Callable[[str, bytes], bool] = lambda node, key_hash: True
        self._own_met: dict[bytes, int] = {}
        self._digest_at = clock.seconds() + DIGEST_SECONDS
        self._tick: IDelayedCall | None = clock.callLater(TICK_SECONDS, self._ticked)

    def listen(self, listener: NetworkListener) -> None:
        """
        Have the streams hear of datagrams and routes.
        """
        self._listeners.append(listener)
        self.forwarding.listener = listener

    def listen_to_nodes(self, listener: NodeListener) -> None:
        self._node_listeners.append(listener)

    def stop(self) -> None:
        """
        End all timers. The carriers close the links.
        """
        for timer in (self._tick, self._reverifying):
            if timer is not None and timer.active():
                timer.cancel()
        self._tick = self._reverifying = None
        for part in (self.routes, self.own, self.flooding, *self.neighbours):
            part.stop()

    # Network

    @property
    def node(self) -> str:
        return self._node

    def send(self, datagram: Datagram) -> bool:
        return self.forwarding.send(datagram)

    def keys(self, node: str) -> NodeKeys | None:
        record = self.states.newest(node)
        return None if record is None else record.advertisement.keys

    def public_key(self, node: str) -> PublicKeyTypes | None:
        """
        The key of the certificate by which a node signs; None if it is not known, not trusted or excluded.
        """
        record = self.states.newest(node)
        if record is None or record.signer.until <= self._wall() or domain_of(node) in self.states.excluded:
            return None
        return record.signer.public_key

    def former_key(self, node: str) -> PublicKeyTypes | None:
        """
        The key by which a node signed until it renewed its key just now; None if there is none, or nothing
        of the node is trusted.
        """
        former = self.states.former_signer(node)
        if former is None or former.until <= self._wall() or self.public_key(node) is None:
            return None
        return former.public_key

    def has_route(self, node: str) -> bool:
        return node in self.routes

    def nodes_of(self, domain: str) -> Iterable[str]:
        return self.routes.nodes_of(domain)

    def knows(self, domain: str) -> bool:
        is_known = self._is_peer(domain) or domain in self.states.excluded
        return is_known or bool(self.routes.nodes_of(domain))

    def exclude(self, domains: Collection[str]) -> None:
        """
        Have no routes to these domains, and pass nothing on of them; all others are excluded no more.
        """
        before, after = self.states.excluded, frozenset(domains)
        self.states.excluded = self.forwarding.excluded = after
        for key, record in self.states.records.items():
            if domain_of(key[0]) in before ^ after:
                self._put_in_graph(record.advertisement)
        self.routes.changed()

    def avoid_first_hop(self, node: str) -> None:
        self.routes.avoid_first_hop(node)

    # LinkListener

    def link_up(self, link: Link) -> None:
        self.neighbours.up(link)

    def link_down(self, link: Link, reason: str) -> None:
        self.neighbours.down(link)

    def received(self, link: Link, entry: Data | State | Digest | Summary) -> None:
        neighbour = self.neighbours.of(link)
        if neighbour is None:
            return
        if isinstance(entry, Data):
            self.forwarding.received(neighbour, entry.datagram)
        elif isinstance(entry, State):
            self.flooding.take(neighbour, entry.advertisement)
        elif isinstance(entry, Digest):
            self.synchronising.received_digest(neighbour, entry.digest)
        else:
            self.synchronising.received_summary(neighbour, entry.nodes)

    def has_room(self, link: Link) -> None:
        if neighbour := self.neighbours.of(link):
            self.forwarding.has_room(neighbour)

    def round_trip_changed(self, link: Link) -> None:
        neighbour = self.neighbours.of(link)
        if neighbour is not None and neighbour.cost.update() and neighbour.counts:
            self._links_changed()

    # NeighbourListener

    def counted(self, neighbour: Neighbour) -> None:
        self.synchronising.send_all(neighbour)
        self.routes.renewed(neighbour.node)
        self._links_changed(is_urgent=neighbour.link.is_steady)

    def lost(self, neighbour: Neighbour) -> None:
        self.flooding.forget(neighbour)
        if neighbour.counts:
            self._links_changed(is_urgent=True)
        self.forwarding.lost(neighbour)

    # OwnListener

    def signed(self, signed: Signed) -> None:
        self.flooding.announce(signed)

    def is_gateway(self, node: str) -> bool:
        record = self.states.newest(node)
        return record is not None and record.advertisement.gateway

    # FloodingListener

    def record_changed(self, old: Advertisement | None, new: Advertisement) -> None:
        for each in self.states.affected(old, new):
            self._put_in_graph(each)
        self.routes.changed()
        if old is None or old.keys != new.keys:
            for listener in self._listeners:
                listener.keys_changed(new.node)
        neighbour = self.neighbours.get(new.node)
        if neighbour is not None and neighbour.is_inside and (old is None or old.gateway != new.gateway):
            self.own.changed()

    def is_reachable(self, node: str) -> bool:
        return node in self.routes

    def is_key_of(self, node: str, key_hash: bytes) -> bool:
        return self.is_still_key(node, key_hash)

    def met_own(self, advertisement: Advertisement, compact: str, signer: Signer, peer: str) -> None:
        keys = self.own.keys
        if not self.own.met(advertisement, compact) or advertisement.keys.start == keys.start:
            return
        # One of an earlier start is met once or twice; one of another living process again and again.
        start = advertisement.keys.start
        if len(self._own_met) >= MAX_OWN_MET and start not in self._own_met:
            self._own_met.clear()
        self._own_met[start] = self._own_met.get(start, 0) + 1
        if self._own_met[start] == MAX_OWN_MET:
            self.states.conflict(self._node, b"", signer.key_hash, peer)
            _log.error(
                "another process uses the name of this node, {node}; its advertisements come from {peer}",
                node=self._node,
                peer=peer,
            )

    # RouteListener

    def node_added(self, node: str) -> None:
        record = self.states.newest(node)
        kind = self._kinds[node] = SERVER if record is None else record.advertisement.kind
        for listener in self._node_listeners:
            listener.node_added(node, kind, self.routes.cost(node) or 0)

    def node_removed(self, node: str) -> None:
        kind = self._kinds.pop(node, SERVER)
        for listener in self._node_listeners:
            listener.node_removed(node, kind)

    def cost_changed(self, node: str, cost: int) -> None:
        for listener in self._node_listeners:
            listener.cost_changed(node, self._kinds.get(node, SERVER), cost)

    def first_hop_changed(self, node: str) -> None:
        for listener in self._listeners:
            listener.route_changed(node)

    def trust_changed(self) -> None:
        """
        Certificate authorities, pins or this node's certificate are others: all advertisements are verified
        again, in slices, and its own are signed again.
        """
        self.own.renew()
        self.states.forget_former()
        keys = list(self.states.records)
        if self._reverifying is not None and self._reverifying.active():
            self._reverifying.cancel()
        self._reverify(keys)

    def forget_former(self) -> None:
        """
        Nodes of this domain were started again with other keys: what they advertised by the former ones does
        not count any more. Their new advertisements would else be refused as a second claim of their names,
        for as long as a third node still has a link to the former start.
        """
        domain = domain_of(self._node)
        for key, record in list(self.states.records.items()):
            if domain_of(key[0]) == domain and not self._is_signed_by_trusted(record):
                self.refusals.count("former-key")
                self._remove(key, is_distrusted=False)
        self.routes.changed()

    def _reverify(self, keys: list[Key]) -> None:
        self._reverifying = None
        for key in keys[:REVERIFIED_AT_ONCE]:
            record = self.states.records.get(key)
            if record is not None and not self._is_trusted(record):
                self._remove(key, is_distrusted=True)
        self.routes.changed()
        if rest := keys[REVERIFIED_AT_ONCE:]:
            self._reverifying = self._clock.callLater(0, self._reverify, rest)

    def _is_trusted(self, record: Record) -> bool:
        try:
            self._seal.verify(record.compact, record.advertisement)
        except Refused as why:
            self.refusals.refuse(record.advertisement.node, why.reason, str(why))
            return False
        return True

    def _is_signed_by_trusted(self, record: Record) -> bool:
        try:
            self._seal.verify(record.compact, record.advertisement)
        except Refused:
            return False
        return True

    def _put_in_graph(self, new: Advertisement) -> None:
        if self.states.excluded and domain_of(new.node) in self.states.excluded:
            self.routes.graph.remove(new.key)
        else:
            is_end = new.kind == CLIENT or self._is_client(new.node)
            self.routes.graph.put(new.key, is_end, self.states.links_of(new))

    def _is_client(self, node: str) -> bool:
        neighbour = self.neighbours.get(node)
        return neighbour is not None and neighbour.link.kind == CLIENT

    def _links_changed(self, is_urgent: bool = False) -> None:
        self.neighbours.update_transit()
        self.routes.graph.set_links(self.neighbours.costs())
        self.routes.changed()
        self.own.changed(is_urgent)

    def _remove(self, key: Key, is_distrusted: bool) -> None:
        self.states.remove(key)
        self.routes.graph.remove(key)
        if self.states.newest(key[0]) is None:
            for listener in self._listeners:
                listener.keys_changed(key[0])
            if is_distrusted:
                self.distrusted(key[0])

    def _ticked(self) -> None:
        self._tick = self._clock.callLater(TICK_SECONDS, self._ticked)
        now = self._wall()
        for key in self.states.ended(now):
            self._remove(key, is_distrusted=self.states.records[key].signer.until <= now)
        if self.neighbours.update_transit():
            self.own.changed()
        self.routes.changed()
        self.routes.forget_avoided()
        self.own.refresh()
        if self._clock.seconds() >= self._digest_at:
            self._digest_at = self._clock.seconds() + DIGEST_SECONDS
            self.synchronising.send_digests()
