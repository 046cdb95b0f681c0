"""
The cluster of this node: the links over NATS, the directory, and the exchange with the other members.

It is one of the parts of federation, because links to other domains and to members make one network.
"""

import os
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred

from msgnode import __version__
from msgnode.cluster.carrier.nats_carrier import NatsCarrier
from msgnode.cluster.channels import Channels
from msgnode.cluster.directory.directory import ReplicatedDirectory
from msgnode.cluster.directory.limits import DirectoryLimits
from msgnode.cluster.exchange.member_exchange import MemberExchange
from msgnode.cluster.exchange.reached_domains import is_reached_domain
from msgnode.cluster.joining import Joining
from msgnode.cluster.known_members import KnownMembers
from msgnode.cluster.member_requests import MemberRequests
from msgnode.cluster.membership import Members
from msgnode.cluster.nats_options import nats_options
from msgnode.cluster.ownership.object_keepers import ObjectKeepers
from msgnode.cluster.ownership.owners import Owners
from msgnode.cluster.ownership.policy_versions import DomainPolicies
from msgnode.cluster.ownership.pool_leases import PoolLeases
from msgnode.cluster.ownership.registrations import DomainRegistrations
from msgnode.cluster.ownership.shared_rates import SharedRates
from msgnode.cluster.status import ClusterFigures
from msgnode.links.exchange.envelopes import MessageIds
from msgnode.links.exchange.exchange import Exchange
from msgnode.links.overlay.overlay import Overlay
from msgnode.links.stream.node_streams import NodeStreams
from msgnode.links.stream.storage import epochs
from msgnode.links.wire.node_name import domain_of, parse
from msgnode.links.wire.stream_header import INSTANCE_BYTES, Epoch
from msgnode.nats.client import NatsClient
from msgnode.nats.options import Listener
from msgnode.node import Node
from msgnode.policy.administration.policy_store import PolicyStore
from msgnode.service.cluster_relay import ClusterRelay
from msgnode.service.cluster_sessions import ClusterSessions
from msgnode.service.lifecycle import stop_for
from msgnode.sessions.session_table import TrafficRecorder


class Cluster(MultiService):
    """
    The service of the cluster (ClusterStatus). ConfigError if a file of its section cannot be used.

    `key` is the hash of the key by which this node signs; `keys_changed` is called when that of a member is
    another one. A node that `federates` has links to other domains, and is a gateway to them for all members.
    """

    def __init__(
        self,
        node: Node,
        name: str,
        epoch: Epoch,
        key: bytes,
        overlay: Overlay,
        streams: NodeStreams,
        exchange: Exchange,
        ids: MessageIds,
        traffic_recorder: TrafficRecorder,
        keys_changed: Callable[[], None],
        reactor: Any,
        federates: bool,
        joined: Callable[[], None],
    ) -> None:
        super().__init__()
        self._federates = federates
        self._node = node
        self._reactor = reactor
        self._overlay = overlay
        self._has_route = overlay.has_route
        options = node.config.cluster
        nats = nats_options(options, name)

        def connect(listener: Listener) -> NatsClient:
            return NatsClient(reactor, options.url, nats, listener)

        self.carrier = NatsCarrier(
            parse(name),
            options,
            __version__,
            (epoch[0], epochs.start_of(epoch)),
            key,
            os.urandom(INSTANCE_BYTES),
            connect,
            overlay,
            self._listen_to,
            partial(stop_for, reactor),
            reactor,
        )
        self.carrier.table.keys_changed = keys_changed
        self.carrier.setServiceParent(self)
        self.members = MemberExchange(
            node, streams, overlay, exchange, self.directory, ids, traffic_recorder, reactor.seconds
        )
        self._streams = streams
        carrier = self.carrier
        self._known_members = KnownMembers(
            Path(node.config.state) if node.config.state != "none" else None,
            self._ever_known,
            carrier.table.up,
            lambda: options.directory_lease_seconds,
            reactor,
        )
        self._joining = Joining(
            lambda: carrier.is_connected,
            lambda: carrier.claim.is_granted,
            self._missing,
            lambda: self.directory.compare().addCallback(lambda done: self.sessions.catch_up()),
            joined,
            reactor,
        )
        self._policies: DomainPolicies | None = None
        self.sessions = ClusterSessions(
            node,
            self._moving,
            self.directory,
            streams,
            self.members,
            self._missing,
            lambda: carrier.is_connected,
            reactor,
        )
        node.cluster_status = self

    def _listen_to(self, members: Members) -> Channels:
        """
        Makes the parts that use the links between members, each with a channel of its own.
        """
        node, clock = self._node, self._reactor
        options = node.config.cluster
        limits = DirectoryLimits(
            addresses=options.directory_addresses,
            table_bytes=options.directory_bytes,
            lease_seconds=options.directory_lease_seconds,
        )
        channels = Channels(members)
        channel = channels.make(b"d")
        self.directory = ReplicatedDirectory(channel, self._is_held, clock, node.slices, limits)
        self.directory.table.added = self._address_added
        channel.listener = self.directory
        channel = channels.make(b"r")
        self._channel = channel
        self.requests = channel.listener = MemberRequests(channel, clock)
        self._moving = channels.make(b"m")
        node.member_requests = self.requests
        node.operator_requests.join(self.requests, self._known)
        self.relay = ClusterRelay(
            node, channels, self.requests, members.up, self._away, self.directory, clock
        )
        owners = self._owners = Owners(members, self.requests, node.config.cluster.members)
        node.registered.others = DomainRegistrations(
            members.node,
            self.requests,
            members.up,
            node.registered,
            lambda: node.config.identity.auth != "none",
        )
        channel = channels.make(b"l")
        self.rates = channel.listener = SharedRates(channel, clock)
        node.rates.share(self.rates.share)
        node.enforcement.share_rates(self.rates.share)
        self._leases: PoolLeases | None = None
        if owners.view:
            self._leases = node.allocation.leases = PoolLeases(
                members.node, owners, self.requests, self.directory, node.allocation, node.slices, clock
            )
        self._keepers = ObjectKeepers(members.node, owners, self.requests, members.up)
        self._keepers.missed = self._object_missed
        if owners.view:
            node.objects.share(self._keepers)
        return channels

    def _object_missed(self, object: str) -> None:
        kept = self._node.objects.kept
        if kept is not None:
            kept.note_missed(object)

    def _away(self) -> list[str]:
        """
        The members that are not reached, but were heard a short while ago.
        """
        known = self.carrier.table.known()
        return [node for node, up in known.items() if not up and not self.directory.is_suspected(node)]

    def share_policies(self, policies: PolicyStore) -> None:
        """
        Has policies that are pushed to one node live at all of `cluster.members`.
        """
        if self._owners.view:
            members = self._channel
            policies.domain = self._policies = DomainPolicies(
                members.node,
                self._owners,
                self.requests,
                members.up,
                members.max_payload,
                policies,
                self._reactor,
            )

    def _is_held(self, address: str) -> bool:
        return self.members.is_held(address)

    def _address_added(self, address: str) -> None:
        """
        Has the data plane ask again: for the address, or for all if a member reaches another domain now.
        """
        plane = self._node.data_plane
        plane.change_all() if is_reached_domain(address) else plane.change(address)

    def _domains(self) -> set[str]:
        """
        The domains that this node reaches over links, or is configured to.
        """
        peers = {peer.domain for peer in self._node.config.peer}
        return peers.union(map(domain_of, self._overlay.routes.labels()))

    def startService(self) -> None:
        self.members.start(self._federates, self._domains)
        self.directory.start()
        self._known_members.start()
        self.sessions.start()
        super().startService()
        self._joining.start()

    def stopService(self) -> Deferred[Any]:
        self._joining.stop()
        self._known_members.stop()
        self.sessions.stop()
        self.directory.stop()
        self.requests.stop()
        self._node.operator_requests.stop()
        self.relay.stop()
        self.rates.stop()
        if self._policies is not None:
            self._policies.stop()
        stopped: Deferred[Any] = super().stopService()
        return stopped

    def _known(self) -> set[str]:
        """
        The members that have been heard in the last hour, or that the configuration names.
        """
        config = self._node.config
        named = {f"mn://{config.domain}/{name}" for name in config.cluster.members}
        return named.union(self.carrier.table.known())

    def _missing(self) -> set[str]:
        """
        The members that are expected and not reached.
        """
        up = set(self.carrier.table.up())
        known = self._known_members.expected(self._ever_known()).union(up, self._away())
        return {node for node in known if node not in up or not self._has_route(node)}

    def _ever_known(self) -> set[str]:
        """
        The members with which this node has streams, that get sessions of it, or that the configuration
        names.
        """
        domain, own = self._node.config.domain, self.carrier.table.node
        known = {node for node in self._streams.peers if domain_of(node) == domain}
        known |= {f"mn://{domain}/{name}" for name in self._node.config.cluster.members}
        return known.union(self.sessions.moves.receivers()) - {own}

    # -- ClusterStatus -----------------------------------------------------------------

    @property
    def why_degraded(self) -> str:
        return self.carrier.why_degraded

    def report(self) -> dict[str, Any]:
        report = {
            "nats": self.why_degraded or "ok",
            "members": self._states(),
            "addresses_elsewhere": self.directory.table.count,
            "moves": self.sessions.under_way(),
        }
        if self._policies is not None:
            report["policy_revision"] = self._policies.revision
        return report

    def figures(self) -> ClusterFigures:
        table = self.directory.table
        return ClusterFigures(
            not self.why_degraded,
            Counter(self._states().values()),
            table.count,
            table.size,
            self.carrier.table.refusals.by_reason,
            structs.asdict(self.directory.counts),
            structs.asdict(self.requests.counts),
            self.relay.counts(),
            self.relay.requests_now,
            self.relay.connections_now,
            self._leases.lost if self._leases is not None else 0,
            structs.asdict(self.rates.counts),
            self.sessions.figures(),
            self.sessions.under_way(),
            self.sessions.local.copies.remembered,
            (self.sessions.moves.counts.taken, self.sessions.moves.taking_seconds),
        )

    def _states(self) -> dict[str, str]:
        return {node: self._state(node, up) for node, up in sorted(self.carrier.table.known().items())}

    def _state(self, node: str, is_up: bool) -> str:
        if is_up:
            return "up" if self._has_route(node) else "synchronising"
        return "suspected" if self.directory.is_suspected(node) else "down"
