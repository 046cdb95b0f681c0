"""
The wiring diagram: what `twistd msgnode` starts, and its options.
"""

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from twisted.application.internet import StreamServerEndpointService
from twisted.application.service import MultiService
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort, IStreamServerEndpoint
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.usage import Options as BaseOptions

from msgnode import __version__
from msgnode.config import Config, ConfigError, Listen
from msgnode.configfile import load
from msgnode.connectors.cork import Cork
from msgnode.connectors.health import Lag, Live, LiveInFull, Metrics
from msgnode.connectors.poll import Poll
from msgnode.connectors.tcp import LineFactory
from msgnode.connectors.tls import over_tls
from msgnode.connectors.web import BoundedSite, Upgrade, tree
from msgnode.connectors.websocket import WebSocketFactory
from msgnode.node import Node
from msgnode.sessions import Journal
from msgnode.traffic import NoLog, TrafficLog

log = Logger()


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
        for name in ("domain", "admin", "traffic"):
            if self[name] is not None:
                self.given[name] = self[name]
        try:
            self.loaded = load(self["config"], self.given)
        except ConfigError as why:
            # A UsageError would print every option first.
            stop(str(why))


class Listener(StreamServerEndpointService):
    """
    One listening port, which says where it is.
    """

    _raiseSynchronously = True

    def __init__(self, listen: Listen, endpoint: IStreamServerEndpoint, factory: Any) -> None:
        super().__init__(endpoint, factory)
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
    Everything, started, or one line that says why not.  The traffic log starts first and stops last.
    """

    def __init__(self, traffic: TrafficLog | None) -> None:
        super().__init__()
        self._traffic = traffic

    def startService(self) -> None:
        try:
            if self._traffic is not None:
                self._traffic.startService()
            super().startService()
        except ConfigError as why:
            stop(str(why))

    def stopService(self) -> Any:
        stopped = super().stopService()
        if self._traffic is not None:
            stopped.addBoth(lambda done: self._traffic.stopService())
        return stopped


def makeService(options: Options, reactor: Any = None) -> MultiService:
    """
    The node with its connectors, ready to start.
    """
    if reactor is None:
        from twisted.internet import reactor
    config: Config = options.loaded
    traffic = None
    if config.traffic != "none":
        in_thread = partial(deferToThreadPool, reactor, reactor.getThreadPool())
        traffic = TrafficLog(config.traffic, config.node, reactor, run=in_thread)
    whole = Whole(traffic)
    journal: Journal = traffic or NoLog()
    node = Node(config, reactor, journal)
    node.sessions.setServiceParent(whole)
    lag = Lag(reactor)
    lag.setServiceParent(whole)

    served = factories(node, lag, lambda: traffic.lost if traffic else 0, reactor)
    for listen in config.listeners():
        endpoint, factory = _prepared(listen, served[listen.kind], reactor)
        Listener(listen, endpoint, factory).setServiceParent(whole)
    return whole


def factories(node: Node, lag: Lag, lost_lines: Callable[[], int], reactor: Any) -> dict[str, Any]:
    """
    What answers on each kind of listener.
    """
    config, cork = node.config, Cork()
    websocket = Upgrade(WebSocketFactory(node, cork, reactor))
    poll = Poll(node, cork, reactor)
    web = tree({"ws": websocket, "stub/connect": websocket, "poll": poll, "live": Live()}, config.path_prefix)
    admin = tree({"live": LiveInFull(node, reactor), "metrics": Metrics(node, lag, lost_lines)})
    return {
        "web": BoundedSite(web, config, reactor),
        "line": LineFactory(node, cork, reactor),
        "admin": BoundedSite(admin, config, reactor),
    }


def _prepared(listen: Listen, factory: Any, reactor: Any) -> tuple[IStreamServerEndpoint, Any]:
    """
    Where to listen, and the factory, over TLS if the listener has a certificate.
    """
    try:
        endpoint: Any = serverFromString(reactor, listen.endpoint)
        return endpoint, over_tls(listen, factory, reactor) if listen.cert else factory
    except ConfigError as why:
        stop(str(why))
    except Exception as why:  # each kind of endpoint complains in its own way
        stop(f"{listen.kind}: expected an endpoint such as tcp:9090, found {listen.endpoint!r}: {why}")
