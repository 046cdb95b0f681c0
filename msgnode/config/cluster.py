"""
The section about the other nodes of this domain, which are reached over NATS, and its validation.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta

from msgnode.config.sections import Bytes, Count, Section

_NODE = re.compile(r"[A-Za-z0-9._~-]{1,128}")
_CLIENT_URL = re.compile(r"(?=.{1,80}\Z)[a-z]+://[!-~]+")
_DOMAIN = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class ClusterOptions(Section):
    """
    Options of a cluster: the NATS servers, how this node proves itself to them, and its limits.

    Without `url` the node is alone in its domain. `credentials` is a `.creds` file, or has the seed of an
    nkey. `members` are the names of nodes that may belong to the cluster; all, if it is empty.
    `client_url` is where clients reach this very node, not one that a balancer chooses. A node that stops
    hands its sessions over for `handover_seconds` at most, in addition to `drain_seconds`. At most
    `moving_sessions` are asked for, arrive, or wait for what comes late, each; for all of them together
    `moving_copies` ids of publications are remembered.
    """

    url: list[str] = []
    user: str = ""
    password: str = ""
    token: str = ""
    credentials: str = ""
    tls: bool = False
    tls_first: bool = False
    ca: str = ""
    cert: str = ""
    key: str = ""
    members: list[str] = []
    client_url: str = ""
    handover_seconds: Annotated[float, Meta(ge=0)] = 30.0
    link_queue_bytes: Annotated[int, Meta(ge=65_536)] = 8 * 1024 * 1024
    relayed_requests: Count = 10_000
    moving_sessions: Count = 10_000
    moving_copies: Count = 500_000
    directory_lease_seconds: Annotated[float, Meta(ge=30)] = 3600.0
    directory_addresses: Count = 8_000_000
    directory_bytes: Bytes = 2 * 1024 * 1024 * 1024


def cluster_mistakes(
    options: ClusterOptions, domain: str, node: str, pools: Iterable[str], kept: Iterable[str] = ()
) -> Iterator[tuple[str, str]]:
    """
    The mistakes of the section, each with its key; `domain`, `node`, `pools` and `kept` objects are those of
    this node.
    """
    for url in options.url:
        if not _is_url(url):
            shown = url.rpartition("@")[2]  # without the password
            yield "cluster.url", f"expected nats://HOST:PORT or tls://HOST:PORT, found {shown!r}"
    if bool(options.user) != bool(options.password):
        yield "cluster.user", "expected 'user' and 'password' together"
    if sum(map(bool, (options.user, options.token, options.credentials))) > 1:
        yield "cluster", "expected one of 'user', 'token' and 'credentials'"
    if options.key and not options.cert:
        yield "cluster.key", "expected 'cert' with 'key'"
    for name in options.members:
        if not _NODE.fullmatch(name):
            yield "cluster.members", f"expected names of nodes such as n1, found {name[:80]!r}"
    if options.client_url and not _CLIENT_URL.fullmatch(options.client_url):
        yield "cluster.client_url", f"expected a URL of at most 80 characters, found {options.client_url!r}"
    if not options.url:
        return
    if not _DOMAIN.fullmatch(domain):
        expected = "expected a domain name in lower case without a port, for a cluster"
        yield "domain", f"{expected}, found {domain!r}"
    if not _NODE.fullmatch(node):
        expected = "expected at most 128 letters, digits, '.', '_', '~' and '-', for a cluster"
        yield "node", f"{expected}, found {node!r}"
    elif any(pools) and not options.members:
        expected = "expected the names of all nodes, one of which leases the addresses of a pool"
        yield "cluster.members", f"{expected}; found none, and a table [pools]"
    elif any(kept) and not options.members:
        expected = "expected the names of all nodes, each of which keeps some of the objects"
        yield "cluster.members", f"{expected}; found none, and objects.keep"
    elif options.members and node not in options.members:
        yield "cluster.members", f"expected this node, {node!r}, among them"


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url if "://" in url else f"nats://{url}")
        usable = parts.scheme in ("nats", "tls") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return usable and parts.path in ("", "/") and not re.search(r"\s", url)
