"""
Federation: the links of this node, the network that they make, its streams, and the exchange with other
domains.

They are put together at the start, after the sessions are restored: the streams of before the restart are in
the same spool, and the epoch of the links is in the state directory.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_der_x509_certificate
from msgspec import structs
from twisted.application.internet import TimerService
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from msgnode.config.federation import Peer
from msgnode.config.schema import Config
from msgnode.links.admin_states import AdminStates
from msgnode.links.carrier.service import LinkService
from msgnode.links.exchange.envelopes import MessageIds
from msgnode.links.exchange.exchange import Exchange
from msgnode.links.exchange.node_parts import DomainLimits, ExchangeOptions
from msgnode.links.exchange.passing.origins import REDIRECTS
from msgnode.links.operators.link_view import LinkView
from msgnode.links.operators.node_operations import NodeOperations, check_new, make_operations
from msgnode.links.operators.overlay_view import OverlayView
from msgnode.links.operators.stream_view import StreamView
from msgnode.links.overlay.network import NodeKeys
from msgnode.links.overlay.overlay import Overlay
from msgnode.links.overlay.signatures import Signatures
from msgnode.links.overlay.trust import TrustedKey, Untrusted
from msgnode.links.stream.common import EncryptMode
from msgnode.links.stream.node_streams import NodeStreams
from msgnode.links.stream.safety.key_rotation import KeyRotation
from msgnode.links.stream.safety.node_keys import MIN_RSA_BITS, KeyRing, PrivateKeys
from msgnode.links.stream.storage import epochs
from msgnode.links.stream.storage.spool_store import SpoolStreamStore, bytes_of
from msgnode.links.stream.storage.store import MemoryStreamStore, StreamStore
from msgnode.links.stream.streams import NoRoom
from msgnode.links.trust.credentials import Credentials, MadeCredentials, key_hash
from msgnode.links.trust.origin_signer import OriginSigner
from msgnode.links.wire.node_name import domain_of
from msgnode.links.wire.stream_header import Epoch
from msgnode.node import Node
from msgnode.policy.administration.policy_store import PolicyStore
from msgnode.service.cluster import Cluster
from msgnode.service.restart.stream_state import epochs_of, name_of, stored_streams, stream_limits
from msgnode.service.wiring import add_link_operations
from msgnode.sessions.session_table import TrafficRecorder
from msgnode.storage.spool import Spool

ID_BYTES = 8  # of chance in the message ids of one start: a copied state directory repeats none
REDIRECTS_SECONDS = 0.5  # between two looks at the policies

log = Logger()


class Federation(MultiService):
    """
    The service of everything between nodes. ConfigError at its start if a file cannot be used.

    It takes part in the recovery and the compaction of the spool (Spooled), and in reloading (Renewable).
    """

    def __init__(
        self, node: Node, traffic_recorder: TrafficRecorder, spool: Spool | None, rename: bool, reactor: Any
    ) -> None:
        super().__init__()
        self._node = node
        self._traffic_recorder = traffic_recorder
        self._spool = spool
        self._rename = rename
        self._reactor = reactor
        self._recovered: dict[int, Any] = {}
        self._next_epoch: Callable[[], Epoch] | None = None
        self._parts: _Parts | None = None
        self.policies: PolicyStore | None = None  # that a cluster shares
        # Called when clients may be served: a node of a cluster first learns what the other members hold.
        self.joined: Callable[[], None] = lambda: None

    def recover(self, found: Mapping[int, Any]) -> None:
        """
        Take the records of streams that the spool has, by sid, before the start.

        If part of the spool is lost, the node has another instance from now on. That is on disk before the
        spool forgets that it is incomplete.
        """
        self._recovered = dict(found)
        self._node.sessions.journal.bytes_apart = bytes_of(found)
        self._next_epoch = self._epochs()

    def _epochs(self) -> Callable[[], Epoch]:
        config = self._node.config
        return epochs_of(config, name_of(config), self._spool, self._rename)

    def startService(self) -> None:
        next_epoch, self._next_epoch = self._next_epoch or self._epochs(), None
        parts = self._parts = _Parts(
            self._node, self._traffic_recorder, self._spool, next_epoch, self._reactor, self.joined
        )
        parts.links.setServiceParent(self)
        if parts.cluster is not None:
            parts.cluster.setServiceParent(self)
            if self.policies is not None:
                parts.cluster.share_policies(self.policies)
        parts.asking.setServiceParent(self)
        notifications = add_link_operations(self._node, parts.operations, self._reactor)
        notifications.setServiceParent(self)
        parts.overlay.listen_to_nodes(notifications)
        parts.exchange.start(federates=_has_links(self._node.config))
        store, found = parts.store, self._recovered
        parts.streams.start(
            parts.exchange, stored_streams(store, found) if isinstance(store, SpoolStreamStore) else ()
        )
        self._recovered = {}
        parts.forget_removed(is_start=True)
        parts.rotation.start()
        super().startService()

    def stopService(self) -> Deferred[Any]:
        parts = self._parts
        if parts is not None:
            parts.rotation.stop()
            parts.exchange.stop()
            parts.streams.stop()
            parts.overlay.stop()
        stopped: Deferred[Any] = super().stopService()
        return stopped

    # -- Spooled -------------------------------------------------------------------

    def rewrite(self, is_old: Callable[[int], bool]) -> Iterator[None]:
        if self._parts is not None:
            yield from self._parts.streams.rewrite(is_old)

    def move(self) -> None:
        if self._parts is not None:
            self._parts.streams.move()

    # -- Renewable -----------------------------------------------------------------

    def read(self) -> Any:
        return None if self._parts is None else self._parts.links.read()

    def use(self, read: Any) -> Any:
        return None if self._parts is None or read is None else self._parts.links.use(read)

    def apply(self) -> None:
        """
        Put the changed configuration into effect.
        """
        if self._parts is not None:
            self._parts.apply()


class _Parts:
    """
    The parts of one start.
    """

    def __init__(
        self,
        node: Node,
        traffic_recorder: TrafficRecorder,
        spool: Spool | None,
        next_epoch: Callable[[], Epoch],
        reactor: Any,
        joined: Callable[[], None],
    ) -> None:
        config = self._config = node.config
        self._node = node
        name = name_of(config)
        epoch = next_epoch()
        start = epochs.start_of(epoch)
        keys = KeyRing(PrivateKeys.generate(_make_rsa() if _wants_rsa(config) else None), reactor)
        self.states = AdminStates(None if config.state == "none" else Path(config.state))
        trust = _Trust(config.domain, lambda: self.links, self._is_key_of_member)
        self.cluster: Cluster | None = None
        made = None if _has_links(config) else MadeCredentials(config)
        own = made or Credentials(config)
        self._seal = Signatures(trust, time.time, own.key, own.chain)
        self.overlay = Overlay(
            reactor,
            name,
            self._seal,
            keys.current.public,
            start=start,
            is_peer=lambda domain: self.links.table.peer(domain) is not None,
            wall=time.time,
        )
        self.store: StreamStore = (
            MemoryStreamStore() if spool is None else SpoolStreamStore(node.sessions.journal)
        )
        self.streams = NodeStreams(
            self.overlay,
            self.store,
            keys,
            reactor,
            next_epoch,
            stream_limits(config),
            config.federation.compress,
            self._encrypt_mode,
        )
        self.overlay.listen(self.streams)
        self.options = ExchangeOptions()
        self._set_options()
        self._signer = OriginSigner(name, own.key, self.overlay.public_key, self.overlay.former_key)
        ids = MessageIds(epoch[0] + os.urandom(ID_BYTES), start)
        self.exchange = Exchange(
            node,
            self.streams,
            self.overlay,
            ids,
            reactor,
            traffic_recorder,
            self.options,
            self._signer,
        )
        self._kept: set[str] = set()  # domains that were no peers any more at the start
        self._redirects: frozenset[str] = frozenset()
        self.asking = TimerService(REDIRECTS_SECONDS, self._ask_for_signatures)
        self.asking.clock = reactor
        self.links = LinkService(
            config, self.overlay, start, reactor, credentials=None if made is None else lambda: made
        )
        self.links.trust_changed = self._trust_changed
        self.overlay.distrusted = self._distrusted
        self.links.table.together = lambda: node.ingress.together
        self.operations = self._operations(node, reactor)
        self._exclude_banned()
        if config.cluster.url:
            self.cluster = Cluster(
                node,
                name,
                epoch,
                own.key_hash,
                self.overlay,
                self.streams,
                self.exchange,
                ids,
                traffic_recorder,
                self._keys_of_members_changed,
                reactor,
                federates=made is None,
                joined=joined,
            )
            self.overlay.is_still_key = self._is_still_key
        self.rotation = KeyRotation(
            keys,
            reactor,
            lambda: _wants_rsa(config),
            lambda: deferToThreadPool(reactor, reactor.getThreadPool(), _make_rsa),
            self._advertise,
        )

    def _advertise(self, keys: NodeKeys) -> None:
        """
        Advertises other keys; the features stay.
        """
        own = self.overlay.own
        own.renew(structs.replace(keys, features=own.keys.features), is_urgent=True)

    def _is_still_key(self, node: str, key_hash: bytes) -> bool:
        """
        A member that was started again signs by another key, although its links of before are not down yet.
        """
        return domain_of(node) != self._config.domain or self._is_key_of_member(key_hash)

    def _is_key_of_member(self, digest: bytes) -> bool:
        return self.cluster is not None and self.cluster.carrier.table.is_key(digest)

    def _operations(self, node: Node, reactor: Any) -> NodeOperations:
        """
        The view and the orders of operators.
        """
        overlay, streams = self.overlay, self.streams

        def admit(destination: str, is_answer: bool) -> None:
            check_new(self.states, domain_of(destination), is_answer)
            watermark = node.sessions.watermark
            if watermark is not None and watermark.low and not overlay.has_route(destination):
                raise NoRoom(f"the disk has too little room for messages that wait for {destination}")

        streams.admit = admit
        streams.peer_counts.apply(self._peers())
        overlay.refusals.peers = streams.peer_counts
        return make_operations(
            self.links,
            streams,
            OverlayView(overlay, self.exchange.homes.home),
            LinkView(self.links, overlay, time.time),
            StreamView(streams),
            self.states,
            self._peers,
            self._orders_changed,
            reactor,
            time.time,
            self.exchange,
            self._config.domain,
        )

    def _peers(self) -> list[str]:
        own = [self._config.domain] if self._config.cluster.url else []
        return [*(peer.domain for peer in self._config.peer), *own]

    def _orders_changed(self) -> None:
        self.links.orders_changed()
        self._exclude_banned()

    def _exclude_banned(self) -> None:
        states = self.states
        self.overlay.exclude([domain for domain in states if states.of(domain) == "banned"])

    def _encrypt_mode(self, node: str) -> EncryptMode:
        peer = self.links.table.peer(domain_of(node))
        if peer is None or peer.encrypt == "default":
            return self._config.federation.encrypt
        return peer.encrypt

    def _set_options(self) -> None:
        federation = self._config.federation
        self.options.max_wait_seconds = federation.max_wait_seconds
        self.options.lease_seconds = federation.lease_seconds
        self.options.triangle = frozenset(peer.domain for peer in self._config.peer if peer.triangle)
        self.options.limits = DomainLimits(
            federation.max_grants, federation.max_upstream, federation.rate_messages, federation.rate_bytes
        )
        self.options.limits_by_domain = {
            peer.domain: _limits_of(peer, self.options.limits) for peer in self._config.peer
        }

    def _ask_for_signatures(self) -> None:
        """
        Advertises whether the policies may redirect what other nodes send to here to another domain.
        """
        program, homes = self._node.enforcement.program, self.exchange.homes
        found = program.redirects if program is not None else frozenset()
        if found is self._redirects:
            return
        self._redirects = found
        own, asks = self.overlay.own, any(homes.home(each) != homes.own for each in found)
        features = own.keys.features - {REDIRECTS} | ({REDIRECTS} if asks else set())
        if features != own.keys.features:
            own.renew(structs.replace(own.keys, features=features), is_urgent=True)

    def apply(self) -> None:
        self.links.apply()
        self.streams.apply(stream_limits(self._config), self._config.federation.compress)
        self.streams.peer_counts.apply(self._peers())
        self._set_options()
        self.exchange.apply()
        self.rotation.apply()
        self.forget_removed()

    def _keys_of_members_changed(self) -> None:
        self._seal.trust_changed()
        self.overlay.forget_former()

    def _trust_changed(self) -> None:
        """
        Sign by the current key, and verify all advertisements again.
        """
        own = self.links.credentials
        self._seal.renew(own.key, own.chain)
        self._signer.renew(own.key)
        if self.cluster is not None:
            self.cluster.carrier.table.renew(own.key_hash)
        self._seal.trust_changed()
        self.overlay.trust_changed()

    def _distrusted(self, node: str) -> None:
        """
        End the streams and subscriptions of a node whose certificate has ended or is revoked.
        """
        log.warn("the certificate of {node} has ended, or is trusted no more: its streams end", node=node)
        self.streams.forget(node)
        self.exchange.forget_node(node)

    def forget_removed(self, is_start: bool = False) -> None:
        """
        End what is held for nodes of domains that are not accepted any more.

        At the start messages for them are kept, as the configuration may be a mistake; they expire at their
        time, or are dropped by an order.
        """
        accept, peers = self._config.federation.accept, {peer.domain for peer in self._config.peer}
        if self.cluster is not None:
            peers.add(self._config.domain)
        if accept == "open":
            return
        for node in list(self.streams.peers):
            domain = domain_of(node)
            if domain in peers:
                self._kept.discard(domain)
                continue
            if is_start:
                self._keep(domain, self.streams.undelivered(node))
            elif domain not in self._kept:
                self.streams.forget(node)
        for domain in {*map(domain_of, self.streams.peers), *self.exchange.nodes.domains()} - peers:
            self.exchange.forget(domain)

    def _keep(self, domain: str, count: int) -> None:
        self._kept.add(domain)
        if count:
            log.warn(
                "{count} messages wait for {domain}, which is no peer any more; they are kept until they "
                "expire, or until 'msgnode link forget {domain}'",
                count=count,
                domain=domain,
            )


class _Trust:
    """
    The trust anchors of the links, which are made after the overlay that hears of them.

    This node's own certificate is trusted, too: its advertisements come back to it after a restart. So are
    those of the members of its cluster, which have announced their keys over NATS.
    """

    def __init__(
        self, domain: str, links: Callable[[], LinkService], is_member: Callable[[bytes], bool]
    ) -> None:
        self._domain = domain
        self._links = links
        self._is_member = is_member

    def verify(self, domain: str, chain: Sequence[bytes]) -> TrustedKey:
        if domain == self._domain:
            try:
                found = load_der_x509_certificate(chain[0])
                digest = key_hash(found)
            except Exception as why:  # a malformed certificate raises errors of many kinds
                raise Untrusted(f"expected a certificate: {str(why)[:200]}") from None
            own = self._links().credentials.certificate
            if chain[0] == own.public_bytes(Encoding.DER) or self._is_member(digest):
                return TrustedKey(found.public_key(), found.not_valid_after_utc.timestamp(), pinned=True)
        return self._links().anchors.verify(domain, chain)


def _wants_rsa(config: Config) -> bool:
    """
    Is encryption switched on for any peer? RSA is for those that have nothing else.
    """
    if not _has_links(config):
        return False
    modes = {config.federation.encrypt, *(peer.encrypt for peer in config.peer)}
    return bool(modes - {"default", "never"})


def _make_rsa() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, MIN_RSA_BITS)


def _limits_of(peer: Peer, general: DomainLimits) -> DomainLimits:
    """
    The limits of a peer: its own where the configuration has them.
    """
    names = DomainLimits.__struct_fields__
    own = {name: getattr(peer, name) for name in names if getattr(peer, name) is not None}
    return structs.replace(general, **own)


def make_federation(
    node: Node, traffic_recorder: TrafficRecorder, spool: Spool | None, rename: bool, reactor: Any
) -> Federation | None:
    """
    The federation of the configuration; None if it has no listener for nodes, no peers and no cluster.
    """
    if not _has_links(node.config) and not node.config.cluster.url:
        return None
    return Federation(node, traffic_recorder, spool, rename, reactor)


def _has_links(config: Config) -> bool:
    """
    Does the configuration say anything about links to other domains?
    """
    return bool(config.node_listeners() or config.peer)


def warn_of_links(config: Config) -> None:
    """
    Log that links which were configured while the node runs need a restart, for it was started without any.
    """
    if _has_links(config):
        log.warn("links to other nodes are configured; they start only after a restart of this node")
