"""
The wiring of the back ends and the policies: their responders, and the services that these need.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from treq.client import HTTPClient
from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.web.client import Agent

from msgnode.backends.http_client import BackendClient
from msgnode.backends.identity.introspection import read_secret
from msgnode.backends.identity.logins import Logins
from msgnode.backends.identity.responder import IdentityResponder
from msgnode.backends.identity.token_requests import TokenRequests
from msgnode.backends.identity.token_validator import Tokens
from msgnode.backends.policy_repository import RepositorySource
from msgnode.backends.qos.coturn import Coturn
from msgnode.backends.qos.embedded_broker import EmbeddedBroker
from msgnode.backends.qos.relay_sessions import Relay
from msgnode.backends.qos.reservations import Reservations
from msgnode.backends.qos_broker import NAME as QOS_BROKER
from msgnode.backends.qos_broker import QoSBroker
from msgnode.backends.registry.disconnector import Disconnector
from msgnode.backends.registry.domain_registry import DomainRegistry
from msgnode.backends.registry.global_registry import ADDRESS, GlobalRegistry
from msgnode.backends.registry.status import RegistryPoller
from msgnode.config.schema import Config, ConfigError, IdentityProvider
from msgnode.config.sections import QoSOptions
from msgnode.links.node_notifications import NodeNotifications, NodesResponder
from msgnode.links.operations import LinkOperations
from msgnode.node import Node
from msgnode.policy.administration.commands import PolicyCommands
from msgnode.policy.administration.policy_store import PUSH, PolicyStore
from msgnode.policy.administration.responder import PolicyResponder
from msgnode.policy.administration.source import FileSource, Source
from msgnode.policy.enforcement.decision_log import DecisionLog
from msgnode.protocol.address import Domain
from msgnode.service.embedded_registry import DOMAIN_SOCKET, GLOBAL_SOCKET, Embedded, EmbeddedPaths, payer
from msgnode.sessions.limits.disk_watermark import Watching, Watermark
from msgnode.sessions.session import Session
from msgnode.transport.endpoints import Dial


def add_registries(node: Node, reactor: Any, run: Callable[..., Deferred[Any]]) -> list[Service]:
    """
    Add the responders of the registries, and return the services that they need.  ConfigError if that fails.
    """
    config = node.config
    services: list[Service] = []
    place = EmbeddedPaths(config.state)
    urls = {"registry": config.registry.url, "global_registry": config.global_registry.url}
    if "embedded" in {url for name, url in urls.items() if name not in config.connectors}:
        services.append(Embedded(place, node, reactor, run))

    def rest(options: Any, name: str, socket: str) -> BackendClient:
        url = f"unix:{place.socket(socket)}" if options.url == "embedded" else options.url
        try:
            made = BackendClient(url, options, reactor, name)
        except ConfigError as why:
            raise ConfigError(f"{name.replace('domain ', '').replace(' ', '_')}: {why}") from None
        node.components.call(made)
        return made

    if config.registry.url != "none" and "registry" not in config.connectors:
        domain = rest(config.registry, "domain registry", DOMAIN_SOCKET)
        registry = add_domain_registry(node, domain)
        services.append(RegistryPoller(domain, registry.changed, config.registry.poll_seconds, reactor))
        if config.registry.disconnect:
            services.append(add_disconnector(node, registry, reactor))
    if config.global_registry.url != "none" and "global_registry" not in config.connectors:
        add_global_registry(node, rest(config.global_registry, "global registry", GLOBAL_SOCKET), run)
    return services


def add_domain_registry(node: Node, rest: BackendClient) -> DomainRegistry:
    """
    Add the responder of the domain registry, which `rest` calls.
    """
    config = node.config
    registry = DomainRegistry(config.domain, rest, config.registry, node.publish, node.registered)
    if config.registry.url == "embedded":
        registry.payer = partial(payer, node)
    node.registry = registry
    node.components.offer("domain registry", registry, (registry.address, f"{registry.address}/"))
    return registry


def add_disconnector(node: Node, registry: DomainRegistry, clock: IReactorTime) -> Disconnector:
    """
    Notify the domain registry when a session ends.
    """
    after = node.config.registry.disconnect_after_seconds
    farewell = Disconnector(
        registry.disconnect, node.registered, node.sessions.get, after, clock, node.slices
    )
    node.sessions.on_end = farewell.ended
    registry.late = farewell.late
    return farewell


def add_global_registry(node: Node, rest: BackendClient, run: Callable[..., Deferred[Any]]) -> None:
    """
    Add the responder of the global registry, which `rest` calls.
    """
    graph = GlobalRegistry(rest, node.config.global_registry, run)
    if node.config.global_registry.url == "embedded":
        graph.payer = partial(payer, node)
    node.components.offer("global registry", graph, (ADDRESS, f"{ADDRESS}/"))


def make_token_validator(
    config: Config, reactor: Any, dial: Dial | None = None, wall: Callable[[], float] = time.time
) -> Tokens:
    """
    Returns the validator of tokens.  `dial` replaces the network connection to its providers.
    """

    def connect(host: str, options: IdentityProvider) -> BackendClient:
        return BackendClient(
            host, options, reactor, f"identity provider {options.domain}{_part(host, options)}", dial=dial
        )

    return Tokens(config.identity, reactor, connect, wall)


def _part(host: str, options: IdentityProvider) -> str:
    """
    Returns the part of the provider that this host serves, or "" if it serves all parts.
    """
    if options.issuer.startswith(host):
        return ""
    asked = options.introspection
    only_asked = asked is not None and asked.url.startswith(host) and not options.jwks_uri.startswith(host)
    return " introspection" if only_asked else " keys"


def make_logins(
    node: Node, tokens: Tokens, clock: IReactorTime, run: Callable[..., Deferred[Any]] = maybeDeferred
) -> Logins:
    """
    Returns the service that keeps what sessions are logged in with at their providers.
    """
    config, sessions = node.config, node.sessions
    state = None if config.state == "none" else Path(config.state)
    logins = node.logins = Logins(
        config.identity,
        tokens,
        node.answer_late,
        sessions.get,
        sessions,
        node.slices,
        clock,
        state,
        run,
        tokens.wall,
        lambda: config.trusted_proxies,
    )
    before = sessions.on_event

    def on_event(event: str, session: Session) -> None:
        before(event, session)
        if session.ended or event == "moved":
            logins.ended(session)

    sessions.on_event = on_event
    return logins


def add_identity_responder(node: Node, tokens: Tokens, logins: Logins) -> None:
    """
    Add the responder that says whose token a token is, also without a configured provider.

    Sessions lose an identity that the configuration no longer accepts.
    """
    options = node.config.identity
    tokens.called = partial(add_back_end, node)
    tokens.apply()
    logins.apply()
    if "idm" not in node.config.connectors:
        requests = TokenRequests(tokens, logins)
        node.offer("identity", IdentityResponder(options, node.config.domain, tokens, requests))
    node.identity_expiry.review(node.sessions)


def add_embedded_broker(
    node: Node,
    relay: Relay,
    clock: IReactorTime,
    run: Callable[..., Deferred[Any]] = maybeDeferred,
    wall: Callable[[], float] = time.time,
) -> Reservations:
    """
    Add the embedded QoS broker; returns the service that keeps its reservations. ConfigError without its
    secret.
    """
    config, sessions = node.config, node.sessions
    secret = config.qos.turn_secret or read_secret(config.qos.turn_secret_file, "qos.turn_secret_file")
    state = None if config.state == "none" else Path(config.state)
    reservations = Reservations(config.qos, relay, sessions.get, clock, wall, state, run)
    node.reservations = reservations
    before = sessions.on_event

    def on_event(event: str, session: Session) -> None:
        before(event, session)
        if session.ended or event == "moved":
            reservations.ended(session)
        elif event == "opened" and session.names:
            reservations.renamed(session)

    sessions.on_event = on_event
    node.offer("QoS broker", EmbeddedBroker(config.qos, config.domain, reservations, secret))
    return reservations


def make_coturn(options: QoSOptions, reactor: Any) -> Coturn:
    """
    Returns coturn's command line. ConfigError if its password cannot be read.
    """

    def password() -> str:
        file = options.cli_password_file
        return read_secret(file, "qos.cli_password_file") if file else ""

    password()
    return Coturn(options.cli, password, reactor)


def add_qos_responder(
    node: Node,
    reactor: Any,
    dial: Dial | None = None,
    run: Callable[..., Deferred[Any]] = maybeDeferred,
) -> list[Service]:
    """
    Add the responder of the QoS broker, if one is configured; returns the services that it needs.
    """
    options = node.config.qos
    if "qos" in node.config.connectors:
        return []
    if options.url == "embedded":
        return [add_embedded_broker(node, make_coturn(options, reactor), reactor, run)]
    if options.url:
        last_hop = options.connectivity
        connectivity = (
            BackendClient(last_hop, options, reactor, "connectivity service", dial=dial) if last_hop else None
        )
        broker = BackendClient(options.url, options, reactor, QOS_BROKER, dial=dial)
        for client in (broker, connectivity):
            if client is not None:
                add_back_end(node, client)
        node.offer("QoS broker", QoSBroker(options, node.config.domain, broker, connectivity))
    return []


def add_link_operations(node: Node, operations: LinkOperations, clock: IReactorTime) -> NodeNotifications:
    """
    Let operators and subscribers of `mn:/nodes` see the links; returns the service that notifies the latter.
    """
    node.link_operations = operations
    node.offer("nodes", NodesResponder(operations.map, node.may_read_topic))
    return NodeNotifications(operations.map, node.publish, clock)


def add_back_end(node: Node, client: BackendClient) -> None:
    """
    List the client among the back ends; it replaces one of the same name.
    """
    node.components.call(client)


def make_policy_store(
    node: Node, reactor: Any, run: Callable[..., Deferred[Any]] = maybeDeferred
) -> PolicyStore:
    """
    Returns the policies from the configured source, and adds their responder to the bus.
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
        Domain(config.domain), node.enforcement.contexts.manager, PolicyCommands(policies, node.enforcement)
    )
    node.components.offer("policies", responder, [responder.address])
    return policies


def decision_logs(node: Node, reactor: Any, run: Callable[..., Deferred[Any]]) -> list[Service]:
    """
    Returns the services of the decision log, if there are policies and a directory for it.
    """
    config, options = node.config, node.config.policy
    if not options.source or options.decision_log == "none":
        return []
    storage = config.storage
    decisions = DecisionLog(
        options.decision_log,
        config.node,
        reactor,
        run,
        lambda: storage.max_traffic_bytes_per_hour,
        node.data_plane,
    )
    decisions.watermark = Watermark(Path(options.decision_log), lambda: storage.reserve_bytes, times=2)
    node.enforcement.decisions.log = decisions
    return [decisions, Watching([decisions.watermark], reactor)]
