"""
The link table: all connections to other nodes, which of them are accepted, and the link of each neighbour.

Two nodes may dial each other at once. Then the connection stays that was dialled by the node with the smaller
name, and the other is closed only after the one that stays has answered a ping. A newer start of the same
node replaces the older at once.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from msgspec import structs
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from msgnode.config.federation import Peer
from msgnode.config.schema import Config
from msgnode.links.carrier.admission import Admission
from msgnode.links.carrier.connection import Content, LinkConnection
from msgnode.links.carrier.handshakes import Handshakes
from msgnode.links.carrier.link import LinkListener
from msgnode.links.carrier.node_link import NodeLink
from msgnode.links.carrier.pings import Pings
from msgnode.links.carrier.wire import CONFLICT, STOPPING, TIMEOUT, TOO_MANY, Refused, Wire
from msgnode.links.overlay.trust import TrustedKey
from msgnode.links.peer_counts import PeerTable
from msgnode.links.trust.certificates import DomainTrust
from msgnode.links.wire.entries import Hello
from msgnode.links.wire.node_name import domain_of
from msgnode.structures.bounded_cache import BoundedCache
from msgnode.structures.log_limits import StrangerLog

RECHECK_SECONDS = 3600.0  # at most, between two checks of a certificate: the wall clock may leap
MAX_LINKS = 4096
REVIEWED_AT_ONCE = 32  # in one turn of the event loop: each certificate is verified
RETRY_SECONDS = 30.0
MAX_LOGGED = 1000  # pairs of peer and cause that are remembered as logged
LOG_AGAIN_SECONDS = 3600.0
log = Logger()


class DialListener:
    """
    A listener to what becomes of connections, for those that dial.
    """

    def up(self, connection: LinkConnection) -> None: ...

    def ended(self, connection: LinkConnection, is_linked: bool) -> None:
        """
        `is_linked`: the node of the connection is linked by another one.
        """

    def down(self, node: str) -> None: ...


class LinkTable:
    """
    The table of links by node, and the Keeper of their connections.

    `own` is this node's hello. `config` is read at each use, so that a reload counts at once, with `review`.
    """

    def __init__(
        self,
        config: Config,
        own: Hello,
        anchors: DomainTrust,
        listener: LinkListener,
        clock: IReactorTime,
        chance: random.Random | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.clock = clock
        self.listener = listener
        self.admission = Admission(config, anchors)
        self.links: dict[str, NodeLink] = {}
        self.connections: set[LinkConnection] = set()
        self.counts: Counter[str] = Counter()
        self.peer_counts = PeerTable(())
        # The last fault of each peer, by node, domain or host, and when it was.
        self.faults: BoundedCache[str, tuple[str, float]] = BoundedCache(MAX_LOGGED)
        self.dials = DialListener()
        self.together: Callable[[], AbstractContextManager[Any]] = nullcontext
        self.is_stopping = False
        self._config = config
        self._own = own
        self._chance = chance or random.Random()
        self.wall = wall
        self._handshakes = Handshakes()
        self._timers: dict[LinkConnection, IDelayedCall] = {}
        self._log = StrangerLog(log, clock.seconds)
        self._logged: BoundedCache[tuple[str, str], float] = BoundedCache(MAX_LOGGED)

    # -- connections -----------------------------------------------------------

    def connect(self, wire: Wire, dialled: str = "", host: str = "") -> LinkConnection | None:
        """
        A new connection; None if too many have not said hello yet.
        """
        if dialled:
            self._handshakes.know(host)
        elif not self._handshakes.has_room(host, self.connections, self._config.federation.handshakes):
            self.note(host, "handshakes", "too many connections are waiting for their hello")
            return None
        connection = LinkConnection(wire, self, dialled, host)
        self.connections.add(connection)
        return connection

    @property
    def handshakes(self) -> int:
        """
        The connections to this node that have not said hello yet.
        """
        return self._handshakes.count(self.connections)

    def peer(self, domain: str) -> Peer | None:
        return self.admission.peer(domain)

    def review(self) -> None:
        """
        End the links that the configuration, or a certificate, no longer allows, and apply its limits to the
        others.
        """
        for link in self.links.values():
            link.queue.max_bytes = self._config.federation.link_queue_bytes
        self._review(list(self.connections))

    def _review(self, connections: list[LinkConnection]) -> None:
        for connection in connections[:REVIEWED_AT_ONCE]:
            if connection.is_up:
                self._recheck(connection)
        if rest := connections[REVIEWED_AT_ONCE:]:
            self.clock.callLater(0, self._review, rest)

    def close_all(self, reason: str, retry_after: float) -> None:
        self.is_stopping = True
        for connection in list(self.connections):
            connection.close(STOPPING, reason, retry_after)

    def note(self, who: str, cause: str, text: str) -> None:
        """
        Count a fault of a peer, and log it once an hour for each peer and cause.
        """
        self.counts[cause] += 1
        self.peer_counts.fault(who, "link", cause)
        now = self.clock.seconds()
        self.faults.put(who, (text, now))
        if cause == "dial":
            self.peer_counts.of(who).failures += 1
        logged = self._logged.get((who, cause))
        if logged is None or now - logged >= LOG_AGAIN_SECONDS:
            self._logged.put((who, cause), now)
            self._log.note("link with {peer}: {what}", peer=who, what=text)

    # -- Keeper ----------------------------------------------------------------

    @property
    def hello_seconds(self) -> float:
        return self._config.federation.handshake_seconds

    def hello(self) -> Hello:
        return structs.replace(self._own, contact=self._config.federation.contact)

    def make_pings(self, connection: LinkConnection) -> Pings:
        return Pings(
            self.clock,
            self._chance,
            connection.send_ping,
            partial(self._silent, connection),
            partial(self._measured, connection),
        )

    def prove_dialled(self, domain: str, chain: Sequence[bytes]) -> None:
        self.admission.check(domain, chain)

    def admit(self, connection: LinkConnection, hello: Hello) -> TrustedKey:
        if self.is_stopping:
            raise Refused(STOPPING, "the node is stopping", RETRY_SECONDS)
        proof = self.admission.check_hello(hello, connection.chain, connection.dialled)
        self._check_room(hello, domain_of(hello.node))
        return proof

    def established(self, connection: LinkConnection) -> None:
        self._watch(connection)
        self._handshakes.know(connection.host)
        hello = connection.peer
        assert hello is not None
        link = self.links.get(hello.node)
        if link is not None and hello.epoch > link.epoch:
            link.close(CONFLICT, "replaced by a newer start of the same node")
            link = None
        if link is None:
            self._link_up(connection, hello)
        else:
            self._settle_later(link, connection)
        self.dials.up(connection)

    def received(self, connection: LinkConnection, entry: Content) -> None:
        link = self.links.get(connection.node)
        if link is not None and connection in (link.connection, link.spare):
            self.listener.received(link, entry)

    def has_room(self, connection: LinkConnection) -> None:
        link = self.links.get(connection.node)
        if link is not None and link.connection is connection:
            link.sent()

    def ended(self, connection: LinkConnection, reason: str) -> None:
        timer = self._timers.pop(connection, None)
        if timer is not None and timer.active():
            timer.cancel()
        link = self.links.get(connection.node)
        if link is not None and link.spare is connection:
            link.spare = None
        elif link is not None and link.connection is connection:
            self._link_lost(link, reason)
        self.dials.ended(connection, connection.node in self.links)

    def gone(self, connection: LinkConnection) -> None:
        if connection in self.connections:
            counts = self.peer_counts.of(
                domain_of(connection.node) if connection.node else connection.dialled
            )
            counts.bytes_in += connection.bytes_in
            counts.bytes_out += connection.bytes_out
        self.connections.discard(connection)

    def misbehaved(self, connection: LinkConnection, cause: str, text: str) -> None:
        self.note(connection.node or connection.dialled or connection.host, cause, text)

    # -- who may have a link -----------------------------------------------------

    def _check_room(self, hello: Hello, domain: str) -> None:
        link = self.links.get(hello.node)
        if link is None and len(self.links) >= MAX_LINKS:
            raise Refused(TOO_MANY, f"there are {MAX_LINKS} links already", RETRY_SECONDS)
        if link is None:
            most = self._config.federation.links_per_domain
            if sum(each.domain == domain for each in self.links.values()) >= most:
                raise Refused(
                    TOO_MANY, f"there are {most} links with nodes of {domain} already", RETRY_SECONDS
                )
        elif hello.epoch < link.epoch:
            raise Refused(CONFLICT, "a newer start of the same node is linked already", RETRY_SECONDS)
        elif hello.epoch == link.epoch and link.spare is not None:
            raise Refused(TOO_MANY, "a second connection of the same node is being settled", RETRY_SECONDS)

    def _watch(self, connection: LinkConnection) -> None:
        """
        Check the certificate again when it ends.
        """
        proof = connection.proof
        assert proof is not None
        wait = min(max(proof.until - self.wall(), 0.0) + 0.1, RECHECK_SECONDS)
        self._timers[connection] = self.clock.callLater(wait, self._recheck, connection)

    def _recheck(self, connection: LinkConnection) -> None:
        timer = self._timers.pop(connection, None)
        if timer is not None and timer.active():
            timer.cancel()
        try:
            connection.proof = self.admission.check(domain_of(connection.node), connection.chain)
        except Refused as why:
            self.misbehaved(connection, "untrusted", why.reason)
            connection.close(why.code, why.reason, 1.0)  # it may have a newer certificate
        else:
            self._watch(connection)

    # -- links --------------------------------------------------------------------

    def _link_up(self, connection: LinkConnection, hello: Hello) -> None:
        link = NodeLink(self, connection, hello, self._config.federation.link_queue_bytes)
        self.links[link.node] = link
        self.counts["up"] += 1
        self._log.note(
            "link with {node} is up; {who} dialled{contact}",
            node=link.node,
            who="this node" if connection.dialled else "it",
            contact=f"; its operators: {link.contact}" if link.contact else "",
        )
        self.listener.link_up(link)

    def _link_lost(self, link: NodeLink, reason: str) -> None:
        spare = link.spare
        link.spare = None
        if spare is not None and spare.is_up and bool(spare.dialled) != bool(link.connection.dialled):
            link.use(spare)
            return
        self._link_down(link, reason)
        if spare is not None and spare.is_up and spare.peer is not None:
            self._link_up(spare, spare.peer)

    def _link_down(self, link: NodeLink, reason: str) -> None:
        del self.links[link.node]
        self.counts["down"] += 1
        self.faults.put(link.node, (reason, self.clock.seconds()))
        self.peer_counts.of(link.domain).failures += 1
        self._log.note("link with {node} is down: {reason}", node=link.node, reason=reason)
        self.listener.link_down(link, reason)
        self.dials.down(link.node)

    def _settle_later(self, link: NodeLink, second: LinkConnection) -> None:
        """
        Two connections: the one that stays must answer a ping, then the other is closed.
        """
        link.spare = second
        first = link.connection
        if bool(first.dialled) == bool(second.dialled):
            stays = second  # the node that dialled again has lost the first one
        else:
            stays = second if self._dialler(second) < self._dialler(first) else first
        stays.pings.probe(partial(self._settle, link, stays))

    def _dialler(self, connection: LinkConnection) -> str:
        return self._own.node if connection.dialled else connection.node

    def _settle(self, link: NodeLink, stays: LinkConnection) -> None:
        second = link.spare
        if second is None or self.links.get(link.node) is not link:
            return
        first = link.connection
        if stays is first:
            link.spare = None
            second.close(CONFLICT, "another connection between the two nodes stays")
        elif bool(first.dialled) != bool(second.dialled):
            link.spare = None
            link.use(second)
            first.close(CONFLICT, "another connection between the two nodes stays")
        else:
            first.close(CONFLICT, "the node has connected again")  # link_down, then link_up by the spare

    def _silent(self, connection: LinkConnection) -> None:
        self.misbehaved(connection, "silent", "no answer to pings")
        connection.close(TIMEOUT, "no answer to pings", 1.0)

    def _measured(self, connection: LinkConnection) -> None:
        link = self.links.get(connection.node)
        if link is not None and link.connection is connection:
            self.listener.round_trip_changed(link)
