"""
Validation of the sections about links to other nodes.
"""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from msgnode.config.federation import Peer, pin_hash
from msgnode.config.schema import Config

Mistakes = Iterator[tuple[str, str]]

_DOMAIN = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")  # as it may stand in the name of a node
_NODE = re.compile(r"[A-Za-z0-9._~-]{1,128}")


def federation_mistakes(config: Config) -> Mistakes:
    yield from _own(config)
    yield from _node_listeners(config)
    seen: dict[str, int] = {}
    for number, peer in enumerate(config.peer):
        key = f"peer[{number}]"
        yield from _peer(key, peer, config.domain)
        if peer.domain in seen:
            yield (
                f"{key}.domain",
                f"expected each domain once, found {peer.domain!r} as in peer[{seen[peer.domain]}]",
            )
        seen[peer.domain] = number


def _own(config: Config) -> Mistakes:
    options = config.federation
    if options.key and not options.cert:
        yield "federation.key", "expected 'cert' with 'key'"
    if not config.node_listeners() and not config.peer:
        return
    if not options.cert:
        yield (
            "federation.cert",
            f"expected the certificate of this node, for msg-node.{config.domain}, with 'listen' or [[peer]]",
        )
    if not _DOMAIN.fullmatch(config.domain):
        expected = "expected a domain name in lower case without a port, for links to other nodes"
        yield "domain", f"{expected}, found {config.domain!r}"
    if not _NODE.fullmatch(config.node):
        expected = "expected at most 128 letters, digits, '.', '_', '~' and '-', for links to other nodes"
        yield "node", f"{expected}, found {config.node!r}"
    if len(options.contact) > 128:
        yield "federation.contact", f"expected at most 128 characters, found {len(options.contact)}"


def _node_listeners(config: Config) -> Mistakes:
    for number, listen in enumerate(config.listen):
        if listen.kind == "node" and (listen.cert or listen.key or listen.client_ca):
            expected = "expected 'cert', 'key' and 'ca' in [federation] for a listener of kind 'node'"
            yield f"listen[{number}]", expected
    for listen in config.node_listeners():
        if listen.endpoint.startswith("ssl:"):
            expected = "expected an endpoint such as tcp:9093, with 'cert' in [federation]"
            key = "federation.listen" if listen.endpoint == config.federation.listen else "listen"
            yield key, f"{expected}, found {listen.endpoint!r}"


def _peer(key: str, peer: Peer, own: str) -> Mistakes:
    if not _DOMAIN.fullmatch(peer.domain):
        yield (
            f"{key}.domain",
            f"expected a domain name such as b.example, in lower case, found {peer.domain!r}",
        )
    if peer.domain == own:
        yield (
            f"{key}.domain",
            f"expected the domain of another owner, found {own!r}, which is this node's own",
        )
    if peer.url and not _is_url(peer.url):
        yield f"{key}.url", f"expected a URL such as wss://msg-node.b.example:9093/link, found {peer.url!r}"
    if peer.url and peer.link in ("listen", "none"):
        yield f"{key}.url", f"expected no 'url' with link = {peer.link!r}: this node does not dial it"
    for pin in peer.pins:
        try:
            pin_hash(pin)
        except ValueError as why:
            yield f"{key}.pins", str(why)


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        usable = parts.scheme == "wss" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return usable and not (parts.query or parts.fragment or parts.username or re.search(r"\s", url))
