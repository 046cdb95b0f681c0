"""
Foreign domains reached by stubs: the service that starts them, and the connectors that are stubs.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred

from msgnode.config.foreign import Connector
from msgnode.config.schema import Config, ConfigError
from msgnode.foreign.connector import ConnectorStub
from msgnode.foreign.fetch.code_store import CodeStore
from msgnode.foreign.fetch.fetcher import StubFetcher
from msgnode.foreign.lifecycle.stub_host import StubEvents, StubHost, StubStart
from msgnode.foreign.moved_senders import MovedSenders
from msgnode.foreign.proxy.guard import AddressGuard, leads_here
from msgnode.foreign.proxy.resolver import OTHERS, BoundedResolver
from msgnode.foreign.sandbox.hosts import DenoHosts, DenoMissing, find_deno
from msgnode.foreign.stubs import ForeignStubs, StubSurroundings
from msgnode.node import Node

DIRECTORY = "stubs"  # in the state directory


class GuardedHosts:
    """
    A starter of stubs in Deno. Each has a guard of its own, which permits what is listed for it.
    """

    def __init__(self, config: Config, reactor: Any, resolver: BoundedResolver) -> None:
        self._config = config
        self._reactor = reactor
        self._resolver = resolver

    def start(self, start: StubStart, events: StubEvents) -> StubHost:
        options = self._config.foreign
        stub = next((each for each in options.stub if each.domain == start.domain), None)
        listed = [*options.hosts, *(stub.hosts if stub is not None else ())]
        resolver = self._resolver.share(start.domain if stub is not None else OTHERS)
        guard = AddressGuard(resolver, self._reactor, listed, leads_here)
        hosts = DenoHosts(self._reactor, guard, options.deno or None, options.ca)
        return hosts.start(start, events)


class Foreign(Service):
    """
    The service of foreign stubs. It starts after the links: they decide about their domains.
    """

    def __init__(self, node: Node, stubs: ForeignStubs) -> None:
        self._node = node
        self.stubs = stubs

    def startService(self) -> None:
        super().startService()
        self.stubs.start(self._node.router.foreign)
        if self._node.member_requests is not None:
            MovedSenders(self._node.member_requests, self.stubs)

    def stopService(self) -> Deferred[Any]:
        super().stopService()
        return self.stubs.stop()

    def apply(self) -> None:
        """
        Puts the changed configuration into effect. ConfigError if there is no Deno for it.
        """
        check_deno(self._node.config)
        self.stubs.apply()


def make_foreign(
    node: Node, reactor: Any, run: Callable[..., Deferred[Any]], chance: Callable[[], float] = random.random
) -> Foreign:
    """
    Returns the service of foreign stubs, which does nothing while the configuration accepts none. ConfigError
    if there is no Deno for them.
    """
    config = node.config
    check_deno(config)
    resolver = BoundedResolver(reactor.nameResolver)

    def guard(listed: list[str], owner: str) -> AddressGuard:
        return AddressGuard(resolver.share(owner), reactor, listed, leads_here)

    fetcher = StubFetcher(config.foreign, lambda: config.stubs, guard, reactor, run)
    directory = None if config.state == "none" else Path(config.state, DIRECTORY)
    store = CodeStore(directory, lambda domain: any(each.domain == domain for each in config.foreign.stub))
    around = StubSurroundings(
        config, GuardedHosts(config, reactor, resolver), fetcher, store, reactor, chance
    )
    stubs = ForeignStubs(node, around, node.traffic)
    add_connector_stubs(node, stubs, reactor)
    node.components.stubs = stubs.to_builtins
    node.stubs = stubs
    return Foreign(node, stubs)


def check_deno(config: Config) -> None:
    """
    Raises ConfigError if stubs are to run, and nothing can run them.
    """
    if config.foreign.accept == "none":
        return
    if config.foreign.deno:
        if not Path(config.foreign.deno).is_file():
            raise ConfigError(f"foreign.deno: expected the program Deno, found {config.foreign.deno!r}")
        return
    try:
        find_deno()
    except DenoMissing as why:
        raise ConfigError(f"foreign.accept: {why}") from None


def addresses_of(connector: Connector, config: Config) -> tuple[str, ...]:
    """
    The addresses at which a connector answers.
    """
    domain = config.domain
    service = f"domain://msg-node.{domain}"
    own = {
        "registry": (f"domain://registry.{domain}",),
        "global_registry": ("global://registry",),
        "idm": (f"domain://idm.{domain}", f"{service}/idm"),
        "qos": (f"domain://qos-broker.{domain}", f"{service}/qos-broker"),
    }[connector]
    found = tuple(f"{address}{slash}" for address in own for slash in ("", "/"))
    providers = config.identity.providers if connector == "idm" else []
    return (*found, *(f"domain-idp://{provider.domain}" for provider in providers))


NAMES: dict[Connector, str] = {
    "registry": "domain registry",
    "global_registry": "global registry",
    "idm": "identity",
    "qos": "QoS broker",
}


def add_connector_stubs(node: Node, stubs: ForeignStubs, clock: Any) -> None:
    """
    Puts stubs into the places of the connectors that the configuration names.
    """
    for name, options in node.config.connectors.items():
        connector = ConnectorStub(
            addresses_of(name, node.config),
            options.stub,
            f"the {NAMES[name]}",
            clock,
            options.deadline_seconds,
            options.in_flight,
            node.publish if name in ("registry", "global_registry") else None,
        )
        node.offer(NAMES[name], connector)
        stubs.offer(connector)
