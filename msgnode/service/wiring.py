"""
The registries behind the node: their responders, and what must run for them.

An embedded registry is spoken to as any other, by HTTP; it listens on a UNIX
socket in the state directory.  Without one its records are in memory only.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from treq.client import HTTPClient
from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import UNIXServerEndpoint
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.web.client import Agent

from msgnode.backends.http_client import BackendClient
from msgnode.backends.identity.responder import IdentityResponder
from msgnode.backends.identity.token_validator import Tokens
from msgnode.backends.policy_repository import RepositorySource
from msgnode.backends.qos_broker import NAME as QOS_BROKER
from msgnode.backends.qos_broker import QoSBroker
from msgnode.backends.registry.disconnector import Disconnector
from msgnode.backends.registry.domain_registry import DomainRegistry
from msgnode.backends.registry.global_registry import ADDRESS, GlobalRegistry
from msgnode.backends.registry.status import RegistryPoller
from msgnode.config.schema import Config, ConfigError, IdentityProvider
from msgnode.config.sections import RegistryOptions
from msgnode.devregistry.database import NoRoom
from msgnode.devregistry.quota import Limits
from msgnode.devregistry.service import Registries, Rules
from msgnode.node import Node
from msgnode.policy.administration.commands import PolicyCommands
from msgnode.policy.administration.policy_store import PUSH, PolicyStore
from msgnode.policy.administration.responder import PolicyResponder
from msgnode.policy.administration.source import FileSource, Source
from msgnode.policy.enforcement.decision_log import DecisionLog
from msgnode.protocol.address import Domain
from msgnode.protocol.message import Message
from msgnode.protocol.peer_address import peer_host
from msgnode.sessions.limits.disk_watermark import Watching, Watermark
from msgnode.sessions.session import Session
from msgnode.transport.endpoints import Dial

log = Logger()

DOMAIN, GRAPH, FILE = "registry.sock", "global-registry.sock", "registry.sqlite"
MEMORY = ":memory:"  # in the place of the file, where nothing is to be kept
MAX_SOCKET_PATH_BYTES = 100  # bytes of a UNIX socket's path; the kernel takes a few more
BACKLOG = 1024
TRY_AGAIN = 5.0  # seconds until a disk that had no room for a new database is asked again


class Embedded(Registries):
    """
    The registries within the node, on the sockets of `directory`.
    """

    def __init__(
        self, place: "EmbeddedPaths", node: Node, reactor: Any, run: Callable[..., Deferred[Any]]
    ) -> None:
        config = node.config
        domain, graph = (
            UNIXServerEndpoint(reactor, place.socket(name), BACKLOG, 0o600, wantPID=True) if wanted else None
            for name, wanted in (
                (DOMAIN, config.registry.url == "embedded"),
                (GRAPH, config.global_registry.url == "embedded"),
            )
        )
        rules = Rules(config.registry.sweep_seconds, limits=limits_of(config.registry), named=True)
        super().__init__(place.file, reactor, domain, graph, run, rules=rules, counts=node.registry_counts)
        self._place = place
        self._again: IDelayedCall | None = None

    def startService(self) -> None:
        try:
            super().startService()
        except NoRoom as why:
            # The node starts all the same; until then who asks a registry is told that it does not answer.
            log.error("{why}; it is tried again", why=str(why))
            self._again = self._reactor.callLater(TRY_AGAIN, self.startService)
            return
        where = "memory" if self._place.file == MEMORY else str(self._place.file)
        log.info("registry: embedded, in {file}; for development and small domains", file=where)

    def stopService(self) -> Deferred[Any]:
        if self._again is not None and self._again.active():
            self._again.cancel()
        return super().stopService().addBoth(lambda done: self._place.clear())


def payer(node: Node, message: Message, session: Session) -> str:
    """
    Whose an entry is: a verified user's, else of the host it came from, as far as that is anybody.
    """
    if session.identity:
        return "user:" + quote(session.identity, safe=":/@")
    host = peer_host(message.origin.peer, node.config.trusted_proxies)
    return f"ip:{quote(host, safe=':/')}" if host else ""


def limits_of(options: RegistryOptions) -> Limits:
    return Limits(
        options.max_entry_bytes,
        options.max_entries_per_owner,
        options.max_bytes_per_owner,
        options.max_entries,
        options.max_bytes,
        options.retention_seconds,
    )


class EmbeddedPaths:
    """
    The directory of the embedded registries: their file and their sockets.

    For the sockets a private temporary directory takes the place of a state
    directory that is not there, or whose name is too long for them.
    """

    def __init__(self, state: str) -> None:
        self._state = Path(state).absolute() if state != "none" else None
        self._temporary: TemporaryDirectory[str] | None = None

    @property
    def file(self) -> Path | str:
        return self._state / FILE if self._state else MEMORY

    def socket(self, name: str) -> str:
        path = str((self._state or self._made()) / name)
        return path if len(path.encode()) <= MAX_SOCKET_PATH_BYTES else str(self._made() / name)

    def clear(self) -> None:
        """
        What was temporary goes.
        """
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def _made(self) -> Path:
        if self._temporary is None:
            self._temporary = TemporaryDirectory(prefix="msgnode-")
        return Path(self._temporary.name)


def attach(node: Node, reactor: Any, run: Callable[..., Deferred[Any]]) -> list[Service]:
    """
    Let the node answer for its registries; the services that this takes.  ConfigError if it cannot.
    """
    config = node.config
    services: list[Service] = []
    place = EmbeddedPaths(config.state)
    if "embedded" in (config.registry.url, config.global_registry.url):
        services.append(Embedded(place, node, reactor, run))

    def rest(options: Any, name: str, socket: str) -> BackendClient:
        url = f"unix:{place.socket(socket)}" if options.url == "embedded" else options.url
        try:
            made = BackendClient(url, options, reactor, name)
        except ConfigError as why:
            raise ConfigError(f"{name.replace('domain ', '').replace(' ', '_')}: {why}") from None
        node.components.call(made)
        return made

    if config.registry.url != "none":
        domain = rest(config.registry, "domain registry", DOMAIN)
        registry = attach_domain(node, domain)
        services.append(RegistryPoller(domain, registry.changed, config.registry.poll_seconds, reactor))
        if config.registry.disconnect:
            services.append(attach_farewell(node, registry, reactor))
    if config.global_registry.url != "none":
        attach_graph(node, rest(config.global_registry, "global registry", GRAPH), run)
    return services


def attach_domain(node: Node, rest: BackendClient) -> DomainRegistry:
    """
    Let the node answer for the domain registry that `rest` calls.
    """
    config = node.config
    registry = DomainRegistry(config.domain, rest, config.registry, node.publish, node.registered)
    if config.registry.url == "embedded":
        registry.payer = partial(payer, node)
    node.components.offer("domain registry", registry, (registry.address, f"{registry.address}/"))
    return registry


def attach_farewell(node: Node, registry: DomainRegistry, clock: IReactorTime) -> Disconnector:
    """
    Let the ends of sessions be told there.
    """
    after = node.config.registry.disconnect_after_seconds
    farewell = Disconnector(
        registry.disconnect, node.registered, node.sessions.get, after, clock, node.slices
    )
    node.sessions.farewell = farewell.ended
    registry.late = farewell.late
    return farewell


def attach_graph(node: Node, rest: BackendClient, run: Callable[..., Deferred[Any]]) -> None:
    """
    Let the node answer for the global registry that `rest` calls.
    """
    graph = GlobalRegistry(rest, node.config.global_registry, run)
    if node.config.global_registry.url == "embedded":
        graph.payer = partial(payer, node)
    node.components.offer("global registry", graph, (ADDRESS, f"{ADDRESS}/"))


def make_token_validator(
    config: Config, reactor: Any, dial: Dial | None = None, wall: Callable[[], float] = time.time
) -> Tokens:
    """
    Who looks at tokens.  `dial` is how its providers are reached, where not by the network.
    """

    def connect(host: str, options: IdentityProvider) -> BackendClient:
        return BackendClient(
            host, options, reactor, f"identity provider {options.domain}{_part(host, options)}", dial=dial
        )

    return Tokens(config.identity, reactor, connect, wall)


def _part(host: str, options: IdentityProvider) -> str:
    """
    Which part of the provider is at this host, where not all of it is.
    """
    if options.issuer.startswith(host):
        return ""
    asked = options.introspection
    only_asked = asked is not None and asked.url.startswith(host) and not options.jwks_uri.startswith(host)
    return " introspection" if only_asked else " keys"


def add_identity_responder(node: Node, tokens: Tokens) -> None:
    """
    Let messages ask too, also where there is nobody to ask; what is not believed any longer ends.
    """
    options = node.config.identity
    tokens.called = partial(list_client, node)
    tokens.apply()
    node.offer("identity", IdentityResponder(options, node.config.domain, tokens))
    node.identity_expiry.review(node.sessions)


def add_qos_responder(node: Node, reactor: Any, dial: Dial | None = None) -> None:
    """
    The QoS broker, where there is one.
    """
    options = node.config.qos
    if options.url:
        last_hop = options.connectivity
        connectivity = (
            BackendClient(last_hop, options, reactor, "connectivity service", dial=dial) if last_hop else None
        )
        broker = BackendClient(options.url, options, reactor, QOS_BROKER, dial=dial)
        for client in (broker, connectivity):
            if client is not None:
                list_client(node, client)
        node.offer("QoS broker", QoSBroker(options, node.config.domain, broker, connectivity))


def list_client(node: Node, client: BackendClient) -> None:
    """
    Show the client among the back ends, in the place of one of its name.
    """
    node.components.call(client)


def make_policy_store(
    node: Node, reactor: Any, run: Callable[..., Deferred[Any]] = maybeDeferred
) -> PolicyStore:
    """
    The node's policies, from where the configuration says, and their door on the bus.
    """
    config, options = node.config, node.config.policy
    source: Source | None = None
    if "://" in options.source:
        agent = Agent(reactor, connectTimeout=options.deadline_seconds)
        source = RepositorySource(options.source, options, HTTPClient(agent), reactor)
    elif options.source not in ("", PUSH):
        source = FileSource(options.source, run)
    state = None if config.state == "none" else Path(config.state)
    policies = PolicyStore(options, node.enforcement, source, state, reactor, run)
    responder = PolicyResponder(
        Domain(config.domain), node.enforcement.senders.manager, PolicyCommands(policies, node.enforcement)
    )
    node.components.offer("policies", responder, [responder.address])
    return policies


def decision_logs(node: Node, reactor: Any, run: Callable[..., Deferred[Any]]) -> list[Service]:
    """
    The log of decisions, where there are policies and it is wanted.
    """
    config, options = node.config, node.config.policy
    if not options.source or options.decision_log == "none":
        return []
    storage = config.storage
    decisions = DecisionLog(
        options.decision_log, config.node, reactor, run, lambda: storage.max_traffic_bytes_per_hour
    )
    decisions.watermark = Watermark(Path(options.decision_log), lambda: storage.reserve_bytes, times=2)
    node.enforcement.decisions.log = decisions
    return [decisions, Watching([decisions.watermark], reactor)]
