"""
The wiring diagram: what `twistd msgnode` starts, and its options.
"""

import os
import sys
import time
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from treq.client import HTTPClient
from twisted.application.internet import StreamServerEndpointService
from twisted.application.service import MultiService, Service
from twisted.internet.base import ReactorBase
from twisted.internet.defer import Deferred, inlineCallbacks, maybeDeferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort, IReactorTime, IStreamServerEndpoint
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.usage import Options as BaseOptions
from twisted.web.client import Agent
from twisted.web.resource import IResource

from msgnode import __version__
from msgnode.address import Domain
from msgnode.admintoken import AdminTokens
from msgnode.backends import attach
from msgnode.config import Config, ConfigError, Listen
from msgnode.configfile import load
from msgnode.connectors.cork import Cork
from msgnode.connectors.health import Lag, Live, LiveInFull, Metrics
from msgnode.connectors.message import Document, Messages
from msgnode.connectors.policyadmin import PolicyAdmin
from msgnode.connectors.policymetrics import PolicyCollector
from msgnode.connectors.policysource import RepositorySource
from msgnode.connectors.poll import Poll
from msgnode.connectors.polllane import PollLane
from msgnode.connectors.socketio import SocketIO
from msgnode.connectors.socketlane import SocketFactory
from msgnode.connectors.tcp import LineFactory
from msgnode.connectors.tls import TLSFactory, over_tls
from msgnode.connectors.web import BoundedSite, Upgrade, tree
from msgnode.connectors.websocket import WebSocketFactory
from msgnode.connectors.wellknown import WHERE, ProtocolStub
from msgnode.connectors.wire import keep_alive
from msgnode.decisions import DecisionLog
from msgnode.node import Node
from msgnode.offers import offer_identity, offer_qos, tokens_of
from msgnode.policies import PUSH, Policies
from msgnode.policydesk import PolicyDesk
from msgnode.policyresponder import PolicyResponder
from msgnode.policysource import FileSource, Source
from msgnode.reloading import Reloading, Renewable
from msgnode.restore import restore
from msgnode.segment import Damaged
from msgnode.sessions import Journal
from msgnode.spool import Spool
from msgnode.store import Store
from msgnode.stubs import Stubs
from msgnode.sweep import Sweep
from msgnode.traffic import NoLog, TrafficLog

log = Logger()

BACKLOG = 4096  # connections that wait to be accepted; Linux takes no more by default


def stop(why: str) -> NoReturn:
    """
    Do not start; say why in one line.
    """
    print(f"msgnode: {why}", file=sys.stderr)
    sys.exit(2)


class Options(BaseOptions):
    """
    The options of `twistd msgnode`; what they do not say comes from the file.
    """

    optParameters = [
        ["config", "c", None, "Configuration file (TOML); etc/msgnode.toml explains every key."],
        ["domain", None, None, "The domain this node serves. [default: localhost]"],
        [
            "admin",
            None,
            None,
            "Endpoint of /metrics and /live in full. [default: tcp:9092:interface=127.0.0.1]",
        ],
        ["traffic", None, None, "Directory of the traffic log, or none."],
        ["state", None, None, "Directory of sessions, addresses and what waits, or none."],
        ["policy", None, None, "File or directory of the policies."],
        ["sync", None, None, "normal, or full: what was promised survives power loss too."],
        ["registry", None, None, "The domain registry: embedded, none, or its URL. [default: embedded]"],
        [
            "global-registry",
            None,
            None,
            "The global registry: embedded, none, or its URL. [default: embedded]",
        ],
    ]

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[str, Any] = {}

    def opt_version(self) -> None:
        """
        Print the version and leave.
        """
        print(f"msgnode {__version__}")
        sys.exit(0)

    def opt_web(self, endpoint: str) -> None:
        """
        Endpoint for WebSocket and HTTP; may be repeated. [default: tcp:9090:interface=127.0.0.1]
        """
        self.given.setdefault("web", []).append(endpoint)

    def opt_line(self, endpoint: str) -> None:
        """
        Endpoint for TCP lines; may be repeated. [default: tcp:9091:interface=127.0.0.1]
        """
        self.given.setdefault("line", []).append(endpoint)

    def postOptions(self) -> None:
        for name in ("domain", "admin", "traffic", "state", "sync"):
            if self[name] is not None:
                self.given[name] = self[name]
        if self["policy"] is not None:
            self.given["policy"] = {"source": self["policy"]}
        for name in ("registry", "global-registry"):
            if self[name] is not None:
                self.given[name.replace("-", "_")] = {"url": self[name]}
        try:
            self.loaded = self.read()
        except ConfigError as why:
            # A UsageError would print every option first.
            stop(str(why))

    def read(self) -> Config:
        """
        The configuration as it is in the file now, with the options laid over it.
        """
        return load(self["config"], self.given)


class Listener(StreamServerEndpointService):
    """
    One listening port, which says where it is.
    """

    _raiseSynchronously = True

    def __init__(
        self, listen: Listen, endpoint: IStreamServerEndpoint, factory: Any, tls: TLSFactory | None
    ) -> None:
        super().__init__(endpoint, tls or factory)
        self.kind = listen.kind
        self.tls = tls
        self._listen = listen

    def privilegedStartService(self) -> None:
        try:
            super().privilegedStartService()
        except CannotListenError as why:
            stop(f"cannot listen on {self._listen.endpoint}: {why.socketError}")
        assert self._waitingForPort is not None
        self._waitingForPort.addCallback(self._say_where)

    def _say_where(self, port: IListeningPort) -> IListeningPort:
        kind, endpoint = self._listen.kind, self._listen.endpoint
        log.info(
            "{kind}: listening on {where}{hint}",
            kind=kind,
            where=_where(port),
            hint=_hint(kind, endpoint, self._listen.cert),
        )
        keep_alive(port.socket)  # type: ignore[attr-defined]
        return port


def _where(port: IListeningPort) -> str:
    host: Any = port.getHost()
    return f"{host.host}:{host.port}" if hasattr(host, "port") else f"unix:{os.fsdecode(host.name)}"


def _hint(kind: str, endpoint: str, cert: str) -> str:
    local = ":interface=127.0.0.1"
    if local not in endpoint:
        return ""
    if kind == "admin" or cert:
        return " (this machine only)"
    return f" (this machine only; --{kind} {endpoint.replace(local, '')} opens it to others)"


class Whole(MultiService):
    """
    Everything, started in order, or one line that says why not; what started last stops first.

    Each may take half of what is left of `drain_seconds`, so that clients who do not
    react leave time to write down what is theirs.
    """

    def __init__(self, config: Config, clock: IReactorTime) -> None:
        super().__init__()
        self._config = config
        self._clock = clock

    def startService(self) -> None:
        try:
            super().startService()
        except ConfigError as why:
            stop(str(why))

    def stopService(self) -> Deferred[None]:
        Service.stopService(self)  # MultiService's would stop all at once
        return self._stop_one_by_one()

    @inlineCallbacks
    def _stop_one_by_one(self) -> Generator[Deferred[Any], Any, None]:
        deadline = self._clock.seconds() + self._config.drain_seconds
        for service in reversed(list(self)):
            what = type(service).__name__
            stopped = maybeDeferred(service.stopService)
            stopped.addErrback(partial(log.failure, "stopping {what}", what=what))
            in_time = yield _at_most((deadline - self._clock.seconds()) / 2, stopped, self._clock)
            if not in_time:
                log.warn("{what} is stopped before it is done", what=what)


def _at_most(seconds: float, stopped: Deferred[Any], clock: IReactorTime) -> Deferred[bool]:
    """
    Fires when `stopped` does, with True, or after so many seconds, with False.
    """
    over: Deferred[bool] = Deferred()
    late = clock.callLater(seconds, over.callback, False)

    def done(result: Any) -> None:
        if late.active():
            late.cancel()
            over.callback(True)

    stopped.addCallback(done)
    return over


class Restart(Service):
    """
    What there was before is there again before anybody is heard; the spool is closed after the last word.
    """

    def __init__(self, node: Node, store: Store, spool: Spool) -> None:
        self._node = node
        self._store = store
        self._spool = spool

    def startService(self) -> None:
        super().startService()
        directory = self._node.config.state
        rows = self._store.open()
        try:
            owed = self._spool.open()
        except Damaged as why:
            raise ConfigError(f"state: {why}; 'msgnode state repair {directory}' moves it aside") from why
        except OSError as why:
            where = f"state: cannot write in {directory}"
            raise ConfigError(f"{where}: {why.strerror}; name another directory, or none") from why
        restore(self._node, rows, owed)
        log.info(
            "state in {directory}: {sessions} sessions, {addresses} addresses",
            directory=directory,
            sessions=len(self._node.sessions),
            addresses=len(self._node.routes),
        )

    def stopService(self) -> None:
        super().stopService()
        self._node.sessions.ledger.settle(now=True)
        if self._spool.failing is not None:
            log.error("what waits is not on disk: {why}", why=str(self._spool.failing))
        self._spool.close()


def makeService(options: Options, reactor: Any = None) -> MultiService:
    """
    The node with its connectors, ready to start.
    """
    if reactor is None:
        from twisted.internet import reactor
    _count_evenly(reactor)
    config: Config = options.loaded
    in_thread = partial(deferToThreadPool, reactor, reactor.getThreadPool())
    traffic = store = spool = None
    if config.traffic != "none":
        traffic = TrafficLog(config.traffic, config.node, reactor, run=in_thread)
    if config.state != "none":
        store = Store(Path(config.state), reactor, in_thread, full=config.sync == "full")
        spool = Spool(Path(config.state, "spool"), config.sync == "full")
    journal: Journal = traffic or NoLog()
    tokens = _started(tokens_of, config, reactor)
    node = Node(config, reactor, journal, store, spool, validator=tokens)
    try:
        back_ends = attach(node, reactor, in_thread)
        offer_identity(node, tokens)
        offer_qos(node, reactor)
    except ConfigError as why:
        stop(f"{options['config'] or 'options'}: {why}")
    lag = Lag(reactor)
    admins = AdminTokens(config.state)
    policies = policies_of(node, reactor, in_thread)
    served = factories(node, lag, lambda: traffic.lost if traffic else 0, reactor, policies, admins)
    where = options["config"] or "options"
    listening = [_prepared(listen, served[listen.kind], where, reactor) for listen in config.listeners()]
    certificates = [listener.tls for listener in listening if listener.tls is not None]
    apply = [
        node.apply,
        partial(offer_identity, node, tokens),
        *(factory.apply for factory in served.values()),
        policies.look,
    ]

    # A SIGHUP must not end the node, neither while it starts nor while it stops.
    renewed: list[Renewable] = [*certificates, tokens]
    services: list[Service] = [Reloading(config, options.read, renewed, apply, reactor.callFromThread)]
    if traffic is not None:
        services.append(traffic)
    if store is not None and spool is not None:
        services += [store, Restart(node, store, spool), Sweep(spool, node.sessions, reactor)]
    services += [lag, admins, *decision_logs(node, reactor, in_thread), policies, *back_ends]
    # Operators may look on while clients are told that the node stops.
    services += [listener for listener in listening if listener.kind == "admin"]
    services.append(node.sessions)
    services += [listener for listener in listening if listener.kind != "admin"]
    reactor.callWhenRunning(tokens.start)
    whole = Whole(config, reactor)
    for service in services:
        service.setServiceParent(whole)
    return whole


def _started(make: Callable[..., Any], *args: Any) -> Any:
    """
    What `make` makes, or one line that says why it cannot be.
    """
    try:
        return make(*args)
    except ConfigError as why:
        stop(str(why))


def _count_evenly(reactor: Any) -> None:
    """
    Let the reactor count with a clock that never jumps.

    With the wall clock all timers would fire at once when it is set, or none for days.
    """
    if isinstance(reactor, ReactorBase) and not reactor.getDelayedCalls():
        reactor.seconds = time.monotonic  # type: ignore[method-assign]


def policies_of(node: Node, reactor: Any, run: Callable[..., Deferred[Any]] = maybeDeferred) -> Policies:
    """
    The node's policies, from where the configuration says, and their door on the bus.
    """
    config, options = node.config, node.config.policy
    source: Source | None = None
    if "://" in options.source:
        agent = Agent(reactor, connectTimeout=options.deadline)
        source = RepositorySource(options.source, options, HTTPClient(agent), reactor)
    elif options.source not in ("", PUSH):
        source = FileSource(options.source, run)
    state = None if config.state == "none" else Path(config.state)
    policies = Policies(options, node.enforcement, source, state, reactor, run)
    responder = PolicyResponder(
        Domain(config.domain), node.enforcement.senders.manager, PolicyDesk(policies, node.enforcement)
    )
    node.responders[responder.address] = responder
    return policies


def decision_logs(node: Node, reactor: Any, run: Callable[..., Deferred[Any]]) -> list[Service]:
    """
    The log of decisions, where there are policies and it is wanted.
    """
    config, options = node.config, node.config.policy
    if not options.source or options.decision_log == "none":
        return []
    decisions = DecisionLog(options.decision_log, config.node, reactor, run)
    node.enforcement.decisions.log = decisions
    return [decisions]


def factories(
    node: Node,
    lag: Lag,
    lost_lines: Callable[[], int],
    reactor: Any,
    policies: Policies,
    admins: AdminTokens,
) -> dict[str, Any]:
    """
    What answers on each kind of listener; `upgraded` and `sockets` make the web listener's WebSockets.
    """
    config, cork = node.config, Cork(node.settle)
    upgraded = WebSocketFactory(node, cork, reactor)
    websocket = Upgrade(upgraded)
    poll = Poll(node, cork, reactor)
    sockets = SocketFactory(node, cork, reactor)
    paths: dict[str, IResource] = {
        "ws": websocket,
        "stub/connect": websocket,
        "poll": poll,
        "socket.io": SocketIO(sockets),
        "message": Messages(node, cork, reactor),
        "message/openapi.json": Document(),
        "live": Live(node),
        WHERE: ProtocolStub(config, Stubs(config)),
    }
    web = tree(paths, config.path_prefix)
    site = BoundedSite(web, config, reactor, node.arrivals)
    site.lane = PollLane(sockets)
    admin = tree(
        {
            "live": LiveInFull(node, reactor),
            "metrics": Metrics(node, lag, lost_lines, PolicyCollector(policies)),
            "policy": PolicyAdmin(PolicyDesk(policies, node.enforcement), admins),
        }
    )
    return {
        "web": site,
        "line": LineFactory(node, cork, reactor),
        "admin": BoundedSite(admin, config, reactor),
        "upgraded": upgraded,
        "sockets": sockets,
    }


def _with_backlog(endpoint: str) -> str:
    """
    Room for many who knock at once, as all do after a restart; others would wait a second or more.
    """
    if endpoint.startswith(("tcp:", "ssl:")) and "backlog=" not in endpoint:
        return f"{endpoint}:backlog={BACKLOG}"
    return endpoint


def _prepared(listen: Listen, factory: Any, where: str, reactor: Any) -> Listener:
    """
    The listener, over TLS if it has a certificate; `where` names the file in what is said of mistakes.
    """
    try:
        endpoint: Any = serverFromString(reactor, _with_backlog(listen.endpoint))
        tls = over_tls(listen, factory, reactor) if listen.cert else None
        return Listener(listen, endpoint, factory, tls)
    except ConfigError as why:
        stop(f"{where}: {listen.kind}: {why}")
    except Exception as why:  # each kind of endpoint complains in its own way
        found = f"expected an endpoint such as tcp:9090, found {listen.endpoint!r}: {why}"
        stop(f"{where}: {listen.kind}: {found}")
