"""
The services that `twistd msgnode` starts, in their order, and the resources of each listener.
"""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from twisted.application.service import MultiService, Service
from twisted.internet.base import ReactorBase
from twisted.internet.threads import deferToThreadPool
from twisted.web.resource import IResource, Resource

from msgnode import __version__
from msgnode.admin.access.figures import Figures
from msgnode.admin.access.foreign_hosts import ForeignHosts
from msgnode.admin.admin_tokens import AdminTokens
from msgnode.admin.api.resource import AdminAPI
from msgnode.admin.cluster_metrics import ClusterCollector
from msgnode.admin.health import EventLoopLag, HealthResource, LivenessResource
from msgnode.admin.link_metrics import LinkCollector
from msgnode.admin.links_api import LinksResource, RoutesResource
from msgnode.admin.live.live_api import EventsResource, TracesResource
from msgnode.admin.metrics import Metrics
from msgnode.admin.node_facts import NodeFacts
from msgnode.admin.operations import Operations
from msgnode.admin.operator_metrics import OperatorCollector
from msgnode.admin.pages.wiring import make_dashboard
from msgnode.admin.policy_api import PolicyAdmin
from msgnode.admin.policy_metrics import PolicyCollector
from msgnode.admin.stubs.stub_metrics import StubCollector
from msgnode.backends.identity.logins import Logins
from msgnode.backends.identity.token_validator import Tokens
from msgnode.cluster.relay.wire import MESSAGE, POLL, RESOURCE, SOCKET_IO
from msgnode.config.reload import Reloading, ReloadVerdict, Renewable, revision
from msgnode.config.schema import Config
from msgnode.connectors.http.poll import PollResource
from msgnode.connectors.http.protostub import WHERE, ProtocolStub, StubCatalogue
from msgnode.connectors.http.records import WHERE as RECORDS
from msgnode.connectors.http.records import RecordsResource
from msgnode.connectors.http.relayed import RelayedRequests
from msgnode.connectors.http.rest.events import Events
from msgnode.connectors.http.rest.message import Messages, OpenAPIResource
from msgnode.connectors.http.rest.resource import ResourceTree
from msgnode.connectors.http.rest.sending import RestSending
from msgnode.connectors.http.server import BoundedSite
from msgnode.connectors.http.site import Upgrade, tree
from msgnode.connectors.lines import LineFactory
from msgnode.connectors.socketio.polling_fastpath import PollFastPath
from msgnode.connectors.socketio.resource import SocketIO
from msgnode.connectors.socketio.websocket import SocketIOFactory
from msgnode.connectors.websocket import WebSocketFactory
from msgnode.links.operations import LinkOperations
from msgnode.node import Node
from msgnode.policy.administration.commands import PolicyCommands
from msgnode.policy.administration.policy_store import PolicyStore
from msgnode.service.data_plane_selection import data_plane_services, make_data_plane
from msgnode.service.federation import Federation, make_federation, warn_of_links
from msgnode.service.foreign import Foreign, make_foreign
from msgnode.service.lifecycle import NodeService, SecondSignal, exit_on_config_error
from msgnode.service.objects import ObjectKeeping
from msgnode.service.options import Options
from msgnode.service.process.log_format import levels_of
from msgnode.service.process.systemd import systemd_notifier
from msgnode.service.records import RecordsLoader
from msgnode.service.restart.recovery import Restart
from msgnode.service.restart.unlinked_streams import UnlinkedStreams
from msgnode.service.welcome import VARIABLE, Welcome
from msgnode.service.wiring import (
    add_identity_responder,
    add_qos_responder,
    add_registries,
    decision_logs,
    make_logins,
    make_policy_store,
    make_token_validator,
)
from msgnode.sessions.limits.disk_watermark import Watching, Watermark
from msgnode.storage.node_lines import NodeLines
from msgnode.storage.session_store import MAX_NOTED_BYTES, MIN_NOTED_BYTES, Store
from msgnode.storage.spool import Spool
from msgnode.storage.spool_compaction import SpoolCompactor
from msgnode.storage.traffic_log import NoLog, TrafficLog
from msgnode.storage.traffic_retention import Retention, TrafficRetention
from msgnode.structures.log_levels import LogLevels
from msgnode.transport.allowed_hosts import admin_hosts
from msgnode.transport.cork import Cork
from msgnode.transport.listener import Listener


def makeService(options: Options, reactor: Any = None) -> MultiService:
    """
    Returns the node with its connectors, ready to start.
    """
    if reactor is None:
        from twisted.internet import reactor
    _use_monotonic_clock(reactor)
    whole = NodeService(options.loaded, reactor)
    reactor.addSystemEventTrigger("before", "shutdown", SecondSignal(whole.hurry, reactor).install)
    levels = levels_of(options["log-format"], options["log-level"])
    whole.log_format, whole.log_levels = options["log-format"], levels
    for service in _services(options, reactor, levels):
        service.setServiceParent(whole)
    return whole


def _use_monotonic_clock(reactor: Any) -> None:
    """
    Let the reactor use a monotonic clock.

    With the wall clock, all timers would fire at once when it is set forward, or none for days when it is set
    back.
    """
    if isinstance(reactor, ReactorBase) and not reactor.getDelayedCalls():
        reactor.seconds = time.monotonic  # type: ignore[method-assign]


def _services(options: Options, reactor: Any, log_levels: LogLevels | None) -> list[Service]:
    """
    Returns all services, in the order in which they start.
    """
    config: Config = options.loaded
    where = options["config"] or "options"
    in_thread = partial(deferToThreadPool, reactor, reactor.getThreadPool())
    traffic = _traffic_log(config, reactor, in_thread)
    store, spool = _state(config, reactor, in_thread)
    with exit_on_config_error():
        tokens = make_token_validator(config, reactor)
    plane = make_data_plane(config, reactor)
    recorder = traffic or NoLog()
    node = Node(config, reactor, recorder, store, spool, validator=tokens, data_plane=plane)
    rename = bool(options["rename"])
    federation = make_federation(node, node.traffic, spool, rename, reactor)
    streams: Federation | UnlinkedStreams | None = federation
    if federation is None and spool is not None:
        streams = UnlinkedStreams(node, node.traffic, spool, rename, reactor)
    if traffic is not None:
        traffic.counts, traffic.data_plane = node.counts, plane
    records = RecordsLoader(config.records, node.known_records, in_thread)
    with exit_on_config_error(where):
        records.load()
        back_ends = add_registries(node, reactor, in_thread)
        logins = make_logins(node, tokens, reactor, in_thread)
        add_identity_responder(node, tokens, logins)
        brokers = add_qos_responder(node, reactor, run=in_thread)
        foreign = make_foreign(node, reactor, in_thread)
    lag = EventLoopLag(reactor)
    admins = AdminTokens(config.state)
    policies = make_policy_store(node, reactor, in_thread)
    if federation is not None:
        federation.policies = policies
    listening: list[Listener] = []
    facts = NodeFacts(config, options["config"] or "", options.given, listening)
    facts.log_levels = log_levels
    commands = PolicyCommands(policies, node.enforcement)
    operations = Operations(node, facts, lag, reactor, admins, commands, in_thread)
    lost = traffic_losses(traffic)
    served = factories(node, reactor)
    served["admin"] = admin_factory(node, lag, lost, reactor, policies, commands, admins, operations)
    with exit_on_config_error(where):
        listening += [Listener(listen, served[listen.kind], reactor) for listen in config.listeners()]
    node.components.listeners += listening
    if federation is not None and config.cluster.url:
        clients = [listener for listener in listening if listener.kind != "admin"]
        for listener in clients:
            listener.hold()
        federation.joined = partial(_release, clients)
    objects = ObjectKeeping(node, reactor)
    reactor.callWhenRunning(tokens.start)
    facts.reloading = _reloading(
        options,
        node,
        tokens,
        logins,
        listening,
        [*served.values()],
        policies,
        records,
        objects,
        federation,
        foreign,
        reactor,
    )
    return [
        facts.reloading,
        *_recording(traffic, config, reactor, in_thread),
        *data_plane_services(node, reactor),
        *_restoring(node, store, spool, streams, reactor),
        objects,
        lag,
        admins,
        *operations.services(),
        *decision_logs(node, reactor, in_thread),
        policies,
        *back_ends,
        # The admin listener still answers while clients are notified that the node stops.
        *(listener for listener in listening if listener.kind == "admin"),
        *((streams,) if streams is not None else ()),
        node.sessions,
        # It stops before the clients are sent away: they get answers to what waits for foreign domains.
        foreign,
        logins,
        *brokers,
        *(listener for listener in listening if listener.kind != "admin"),
        *_welcome(listening),
        *_notifying(node, facts.reloading, reactor),
    ]


def traffic_losses(traffic: TrafficLog | None) -> Callable[[], int]:
    return lambda: traffic.lost if traffic is not None else 0


def _notifying(node: Node, reloading: Reloading, reactor: Any) -> list[Service]:
    """
    Returns the service that notifies systemd, if systemd started the node.
    """

    def status() -> str:
        return f"{len(node.sessions):,} sessions of {node.config.domain}"

    notifier = systemd_notifier(os.environ, status, reactor)
    if notifier is None:
        return []
    reloading.begins, done = notifier.reloading, reloading.reloaded

    def reloaded(verdict: ReloadVerdict) -> None:
        done(verdict)
        notifier.reloaded(verdict)

    reloading.reloaded = reloaded
    return [notifier]


def _release(listening: list[Listener]) -> None:
    for listener in listening:
        listener.release()


def _traffic_log(config: Config, reactor: Any, in_thread: Callable[..., Any]) -> TrafficLog | None:
    if config.traffic == "none":
        return None
    storage = config.storage
    traffic = TrafficLog(
        config.traffic,
        config.node,
        reactor,
        run=in_thread,
        options=storage,
        always=lambda: config.traffic_log_always,
    )
    # The log stops before the disk is full: the reserve is for messages that the node has accepted.
    traffic.watermark = Watermark(Path(config.traffic), lambda: storage.reserve_bytes, times=2)
    return traffic


def _state(
    config: Config, reactor: Any, in_thread: Callable[..., Any]
) -> tuple[Store, Spool] | tuple[None, None]:
    """
    Returns the database and the spool of the state directory, if there is one.
    """
    if config.state == "none":
        return None, None
    full = config.sync == "full"
    store = Store(
        Path(config.state),
        reactor,
        in_thread,
        full=full,
        most=lambda: max(config.limits.state_bytes or MAX_NOTED_BYTES, MIN_NOTED_BYTES),
    )
    return store, Spool(Path(config.state, "spool"), full)


def _reloading(
    options: Options,
    node: Node,
    tokens: Tokens,
    logins: Logins,
    listening: list[Listener],
    factories: list[Any],
    policies: PolicyStore,
    records: RecordsLoader,
    objects: ObjectKeeping,
    federation: Federation | None,
    foreign: Foreign,
    reactor: Any,
) -> Reloading:
    """
    Returns the service that reloads on SIGHUP.  It starts first and stops last, so that a SIGHUP never ends
    the node, not even while it starts or stops.
    """
    certificates = [listener.tls for listener in listening if listener.tls is not None]
    apply = [
        node.apply,
        partial(add_identity_responder, node, tokens, logins),
        *(factory.apply for factory in factories),
        policies.look,
        records.reload,
        objects.apply,
        foreign.apply,
    ]
    renewed: list[Renewable] = [*certificates, tokens]
    if federation is not None:
        apply.append(federation.apply)
        renewed.append(federation)
    else:
        apply.append(partial(warn_of_links, node.config))
    return Reloading(options.loaded, options.read, renewed, apply, reactor.callFromThread)


def _recording(
    traffic: TrafficLog | None, config: Config, reactor: Any, in_thread: Callable[..., Any]
) -> list[Service]:
    if traffic is None:
        return []
    assert traffic.watermark is not None
    lines = NodeLines(traffic, __version__, lambda: revision(config), reactor, time.time_ns)
    kept = Retention(Path(config.traffic), traffic.prefix)
    retention = TrafficRetention(kept, config.storage, reactor, in_thread)
    return [traffic, Watching([traffic.watermark], reactor), lines, retention]


def _restoring(
    node: Node,
    store: Store | None,
    spool: Spool | None,
    streams: Federation | UnlinkedStreams | None,
    reactor: Any,
) -> list[Service]:
    if store is None or spool is None:
        return []
    return [
        store,
        Restart(node, store, spool, streams),
        SpoolCompactor(spool, node.sessions, reactor, others=[streams] if streams is not None else []),
        Watching([node.watermark], reactor),
    ]


def _welcome(listening: list[Listener]) -> list[Service]:
    hint = os.environ.get(VARIABLE)
    return [Welcome(hint, listening)] if hint else []


def factories(node: Node, reactor: Any) -> dict[str, Any]:
    """
    Returns the factory of each kind of listener but `admin`; `upgraded` and `sockets` make the web listener's
    WebSockets.
    """
    config = node.config
    cork = Cork(node.settle, config.session.unsent_bytes, node.counts)
    node.data_plane.use(cork, node.counts, node.sessions.journal)
    node.use_cork(cork)
    if not node.data_plane.is_native:  # that gathers by itself
        cork.turn = node.data_plane.turn
        node.objects.gather_output = cork.gather
    upgraded = WebSocketFactory(node, cork, reactor)
    websocket = Upgrade(upgraded)
    poll = PollResource(node, cork, reactor)
    sockets = SocketIOFactory(node, cork, reactor)
    socket_io, sending = SocketIO(sockets), RestSending(node, cork)
    messages = Messages(node, sending, reactor)
    resources = ResourceTree(node, sending, reactor)
    relayed: dict[str, Resource] = {POLL: poll, MESSAGE: messages, RESOURCE: resources, SOCKET_IO: socket_io}
    node.serve_relayed = RelayedRequests(node, relayed).serve
    paths: dict[str, IResource] = {
        "ws": websocket,
        "stub/connect": websocket,
        "poll": poll,
        "socket.io": socket_io,
        "message": messages,
        "message/openapi.json": OpenAPIResource(),
        "resource": resources,
        "events": Events(node, sending, cork, reactor),
        "live": LivenessResource(node, is_public=True),
        RECORDS: RecordsResource(node.known_records),
        WHERE: ProtocolStub(config, StubCatalogue(config)),
    }
    web = tree(paths, config.path_prefix)
    site = BoundedSite(web, config, reactor, node.connection_limits, partial_input=node.partial_input)
    site.fast_path = PollFastPath(sockets)
    return {
        "web": site,
        "line": LineFactory(node, cork, reactor),
        "upgraded": upgraded,
        "sockets": sockets,
    }


def admin_factory(
    node: Node,
    lag: EventLoopLag,
    lost_lines: Callable[[], int],
    reactor: Any,
    policies: PolicyStore,
    commands: PolicyCommands,
    admins: AdminTokens,
    operations: Operations,
) -> BoundedSite:
    """
    Returns the factory of the admin listener.
    """

    def links() -> LinkOperations | None:
        return node.link_operations

    api = AdminAPI(node, admins, operations.endpoints())
    dashboard = make_dashboard(node, operations, api, admins, reactor)
    admit = dashboard.logins.admit
    metrics = Metrics(
        node,
        lag,
        lost_lines,
        PolicyCollector(policies),
        LinkCollector(links),
        ClusterCollector(lambda: node.cluster_status),
        OperatorCollector(operations),
        StubCollector(lambda: node.stubs),
        facts=operations.inspector.facts,
    )
    health = HealthResource(node, reactor)
    paths = tree(
        {
            "live": Figures(health, admins, node.config, LivenessResource(node)),
            "metrics": Figures(metrics, admins, node.config),
            "policy": PolicyAdmin(commands, admins, operations.trail.act),
            "api/v1": api,
            "api/v1/policy": PolicyAdmin(commands, admins, operations.trail.act, needs_reason=True),
            "api/v1/events": EventsResource(operations.live.streams, admit),
            "api/v1/traces": TracesResource(operations.live.traces, admit, api),
            "api/v1/links": LinksResource(node, admins, operations.audited),
            "api/v1/routes": RoutesResource(node, admins),
        },
        root=dashboard,
    )
    return BoundedSite(
        paths,
        node.config,
        reactor,
        hosts=admin_hosts,
        partial_input=node.partial_input,
        misdirected=ForeignHosts(admins, LivenessResource(node)).resource,
    )
