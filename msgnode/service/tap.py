"""
The wiring diagram: what `twistd msgnode` starts, and what answers at each of its doors.
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
from twisted.web.resource import IResource

from msgnode.admin.admin_tokens import AdminTokens
from msgnode.admin.health import EventLoopLag, HealthResource, LivenessResource, Metrics
from msgnode.admin.policy_api import PolicyAdmin
from msgnode.admin.policy_metrics import PolicyCollector
from msgnode.config.reload import Reloading, Renewable
from msgnode.config.schema import Config
from msgnode.connectors.http.poll import PollResource
from msgnode.connectors.http.protostub import WHERE, ProtocolStub, StubCatalogue
from msgnode.connectors.http.rest import Messages, OpenAPIResource
from msgnode.connectors.http.server import BoundedSite
from msgnode.connectors.http.site import Upgrade, tree
from msgnode.connectors.lines import LineFactory
from msgnode.connectors.socketio.polling_fastpath import PollLane
from msgnode.connectors.socketio.resource import SocketIO
from msgnode.connectors.socketio.websocket import SocketIOFactory
from msgnode.connectors.websocket import WebSocketFactory
from msgnode.node import Node
from msgnode.policy.administration.commands import PolicyCommands
from msgnode.policy.administration.policy_store import PolicyStore
from msgnode.service.lifecycle import NodeService, exit_on_config_error
from msgnode.service.options import Options
from msgnode.service.recovery import Restart
from msgnode.service.welcome import VARIABLE, Welcome
from msgnode.service.wiring import (
    add_identity_responder,
    add_qos_responder,
    attach,
    decision_logs,
    make_policy_store,
    make_token_validator,
)
from msgnode.sessions.limits.disk_watermark import Watching, Watermark
from msgnode.sessions.session_table import TrafficRecorder
from msgnode.storage.session_store import LEAST_NOTED, MAX_NOTED, Store
from msgnode.storage.spool import Spool
from msgnode.storage.spool_compaction import SpoolCompactor
from msgnode.storage.traffic_log import NoLog, TrafficLog
from msgnode.transport.allowed_hosts import admin_hosts
from msgnode.transport.cork import Cork
from msgnode.transport.listener import Listener


def makeService(options: Options, reactor: Any = None) -> MultiService:
    """
    The node with its connectors, ready to start.
    """
    if reactor is None:
        from twisted.internet import reactor
    _use_monotonic_clock(reactor)
    whole = NodeService(options.loaded, reactor)
    for service in _services(options, reactor):
        service.setServiceParent(whole)
    return whole


def _use_monotonic_clock(reactor: Any) -> None:
    """
    Let the reactor count with a clock that never jumps.

    With the wall clock all timers would fire at once when it is set, or none for days.
    """
    if isinstance(reactor, ReactorBase) and not reactor.getDelayedCalls():
        reactor.seconds = time.monotonic  # type: ignore[method-assign]


def _services(options: Options, reactor: Any) -> list[Service]:
    """
    All that runs, in the order in which it starts.
    """
    config: Config = options.loaded
    where = options["config"] or "options"
    in_thread = partial(deferToThreadPool, reactor, reactor.getThreadPool())
    traffic = store = spool = None
    if config.traffic != "none":
        storage = config.storage
        traffic = TrafficLog(
            config.traffic,
            config.node,
            reactor,
            run=in_thread,
            options=storage,
            always=lambda: config.traffic_log_always,
        )
        # Before the last of the disk, which is for what was promised.
        traffic.watermark = Watermark(Path(config.traffic), lambda: storage.reserve_bytes, times=2)
    if config.state != "none":
        store = Store(
            Path(config.state),
            reactor,
            in_thread,
            full=config.sync == "full",
            most=lambda: max(config.limits.state_bytes or MAX_NOTED, LEAST_NOTED),
        )
        spool = Spool(Path(config.state, "spool"), config.sync == "full")
    traffic_recorder: TrafficRecorder = traffic or NoLog()
    with exit_on_config_error():
        tokens = make_token_validator(config, reactor)
    node = Node(config, reactor, traffic_recorder, store, spool, validator=tokens)
    if traffic is not None:
        traffic.counts = node.counts
    with exit_on_config_error(where):
        back_ends = attach(node, reactor, in_thread)
        add_identity_responder(node, tokens)
        add_qos_responder(node, reactor)
    lag = EventLoopLag(reactor)
    admins = AdminTokens(config.state)
    policies = make_policy_store(node, reactor, in_thread)
    served = factories(node, lag, lambda: traffic.lost if traffic else 0, reactor, policies, admins)
    with exit_on_config_error(where):
        listening = [Listener(listen, served[listen.kind], reactor) for listen in config.listeners()]
    node.components.listeners += listening
    certificates = [listener.tls for listener in listening if listener.tls is not None]
    apply = [
        node.apply,
        partial(add_identity_responder, node, tokens),
        *(factory.apply for factory in served.values()),
        policies.look,
    ]

    # A SIGHUP must not end the node, neither while it starts nor while it stops.
    renewed: list[Renewable] = [*certificates, tokens]
    services: list[Service] = [Reloading(config, options.read, renewed, apply, reactor.callFromThread)]
    if traffic is not None:
        assert traffic.watermark is not None
        services += [traffic, Watching([traffic.watermark], reactor)]
    if store is not None and spool is not None:
        services += [store, Restart(node, store, spool), SpoolCompactor(spool, node.sessions, reactor)]
        services.append(Watching([node.watermark], reactor))
    services += [lag, admins, *decision_logs(node, reactor, in_thread), policies, *back_ends]
    # Operators may look on while clients are told that the node stops.
    services += [listener for listener in listening if listener.kind == "admin"]
    services.append(node.sessions)
    services += [listener for listener in listening if listener.kind != "admin"]
    hint = os.environ.get(VARIABLE)
    if hint:
        services.append(Welcome(hint, listening))
    reactor.callWhenRunning(tokens.start)
    return services


def factories(
    node: Node,
    lag: EventLoopLag,
    lost_lines: Callable[[], int],
    reactor: Any,
    policies: PolicyStore,
    admins: AdminTokens,
) -> dict[str, Any]:
    """
    What answers on each kind of listener; `upgraded` and `sockets` make the web listener's WebSockets.
    """
    config = node.config
    cork = Cork(node.settle, config.session.unsent_bytes, node.counts)
    node.fanout.together = node.sessions.overload.together = cork
    upgraded = WebSocketFactory(node, cork, reactor)
    websocket = Upgrade(upgraded)
    poll = PollResource(node, cork, reactor)
    sockets = SocketIOFactory(node, cork, reactor)
    paths: dict[str, IResource] = {
        "ws": websocket,
        "stub/connect": websocket,
        "poll": poll,
        "socket.io": SocketIO(sockets),
        "message": Messages(node, cork, reactor),
        "message/openapi.json": OpenAPIResource(),
        "live": LivenessResource(node),
        WHERE: ProtocolStub(config, StubCatalogue(config)),
    }
    web = tree(paths, config.path_prefix)
    site = BoundedSite(web, config, reactor, node.connection_limits, partial_input=node.partial_input)
    site.lane = PollLane(sockets)
    admin = tree(
        {
            "live": HealthResource(node, reactor),
            "metrics": Metrics(node, lag, lost_lines, PolicyCollector(policies)),
            "policy": PolicyAdmin(PolicyCommands(policies, node.enforcement), admins),
        }
    )
    return {
        "web": site,
        "line": LineFactory(node, cork, reactor),
        "admin": BoundedSite(admin, config, reactor, hosts=admin_hosts, partial_input=node.partial_input),
        "upgraded": upgraded,
        "sockets": sockets,
    }
