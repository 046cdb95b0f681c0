"""
The servers around a node, at the end of wires in memory: an OpenID provider, a QoS broker.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.web.server import Site

from msgnode.backends.http_client import BackendClient
from msgnode.backends.identity.token_validator import Tokens
from msgnode.backends.qos.coturn import RelaySession
from msgnode.backends.qos_broker import QoSBroker
from msgnode.config.schema import Config, IdentityProvider
from msgnode.config.sections import QoSOptions
from msgnode.node import Node
from msgnode.protocol.errors import Rejected
from msgnode.service.wiring import add_embedded_broker, add_identity_responder, make_logins
from tests.support.authorization_server import AuthorizationServer
from tests.support.back_ends import Memory
from tests.support.openid import ISSUER
from tests.support.qos_broker import Broker


class MemoryRelay:
    """
    A relay that has sessions, and cancels them unless it `refuses`. A listing waits for `slow`; `listings`
    counts them.
    """

    def __init__(self) -> None:
        self.held: list[RelaySession] = []
        self.refuses = False
        self.slow: Deferred[None] | None = None
        self.listings = 0

    async def sessions(self, *texts: str) -> list[RelaySession]:
        self.listings += 1
        if self.slow is not None:
            await self.slow
        if self.refuses:
            raise Rejected("Error contacting the TURN server", 504, "back-end")
        return [each for each in self.held if any(text in each.user for text in texts)]

    async def cancel(self, sessions: list[RelaySession]) -> None:
        self.held = [each for each in self.held if each not in sessions]


class World:
    """
    `provider_wires` and `broker_wires` may refuse or hang.
    """

    def __init__(self, config: Config, clock: Clock, wall: Callable[[], float]) -> None:
        providers = config.identity.providers
        self._clock = clock
        self.openid = AuthorizationServer(providers[0].issuer if providers else ISSUER, wall)
        self.broker = Broker()
        self.provider_wires = Memory(clock, lambda: Site(self.openid).buildProtocol(None))
        self.broker_wires = Memory(clock, lambda: Site(self.broker).buildProtocol(None))
        self.tokens = Tokens(config.identity, clock, self.connect, wall)

    def connect(self, host: str, options: IdentityProvider) -> BackendClient:
        # The wires know no TLS; whom they lead to is settled.
        plain = host.replace("https:", "http:")
        return BackendClient(
            plain, options, self._clock, "provider", dial=lambda host, port: self.provider_wires
        )

    def offer(self, node: Node) -> None:
        self.logins = make_logins(node, self.tokens, self._clock)
        add_identity_responder(node, self.tokens, self.logins)
        if node.config.qos.url == "embedded":
            self.relay = MemoryRelay()
            self.reservations = add_embedded_broker(node, self.relay, self._clock, wall=self.tokens.wall)
        elif node.config.qos.url:
            node.offer("QoS broker", self._qos(node.config.qos, node.config.domain))

    def _qos(self, options: QoSOptions, domain: str) -> QoSBroker:
        def rest(url: str) -> BackendClient:
            plain = url.replace("https:", "http:")
            return BackendClient(
                plain, options, self._clock, "QoS broker", dial=lambda host, port: self.broker_wires
            )

        last_hop = rest(options.connectivity) if options.connectivity else None
        return QoSBroker(options, domain, rest(options.url), last_hop)

    @property
    def links(self) -> list[Any]:
        return [*self.provider_wires.links, *self.broker_wires.links]

    def pump(self) -> None:
        self.provider_wires.pump()
        self.broker_wires.pump()
