"""
What the node offers with the help of other servers: identity and QoS, as far as they are configured.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from msgnode.config.schema import Config, IdentityProvider
from msgnode.connectors.idm import Identity
from msgnode.connectors.qos import NAME as QOS_BROKER
from msgnode.connectors.qos import QoSBroker
from msgnode.connectors.rest import Rest
from msgnode.connectors.tokens import Tokens
from msgnode.node import Node
from msgnode.transport.endpoints import Dial


def tokens_of(
    config: Config, reactor: Any, dial: Dial | None = None, wall: Callable[[], float] = time.time
) -> Tokens:
    """
    Who looks at tokens.  `dial` is how its providers are reached, where not by the network.
    """

    def connect(host: str, options: IdentityProvider) -> Rest:
        return Rest(
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


def offer_identity(node: Node, tokens: Tokens) -> None:
    """
    Let messages ask too, also where there is nobody to ask; what is not believed any longer ends.
    """
    options = node.config.identity
    tokens.called = partial(list_client, node)
    tokens.apply()
    node.offer("identity", Identity(options, node.config.domain, tokens))
    node.identities.review(node.sessions)


def offer_qos(node: Node, reactor: Any, dial: Dial | None = None) -> None:
    """
    The QoS broker, where there is one.
    """
    options = node.config.qos
    if options.url:
        last_hop = options.connectivity
        connectivity = (
            Rest(last_hop, options, reactor, "connectivity service", dial=dial) if last_hop else None
        )
        broker = Rest(options.url, options, reactor, QOS_BROKER, dial=dial)
        for client in (broker, connectivity):
            if client is not None:
                list_client(node, client)
        node.offer("QoS broker", QoSBroker(options, node.config.domain, broker, connectivity))


def list_client(node: Node, client: Rest) -> None:
    """
    Show the client among the back ends, in the place of one of its name.
    """
    node.components.call(client)
