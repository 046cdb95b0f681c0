"""
The sections about foreign domains that are reached by their protostubs, and their validation.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from msgnode.config.federation import Peer, pin_hash
from msgnode.config.sections import Bytes, Count, OrOff, Positive, Seconds, Section, Share

AcceptStubs = Literal["none", "listed", "any"]
Connector = Literal["registry", "global_registry", "idm", "qos"]
MIN_STUB_BYTES = 96 * 1024 * 1024  # Deno alone uses about 40 MB
StubMemory = Annotated[int, Meta(ge=MIN_STUB_BYTES)]
LOOPBACK = ("localhost", "127.0.0.1", "::1")

_DOMAIN = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*"
)
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})")


class ForeignStub(Section):
    """
    A foreign domain whose stub this node runs, what its code must be, and the places that it may connect to.

    A limit that is None is that of [foreign]. `triangle`: may local clients hold addresses of that domain?
    """

    domain: str
    digest: str = ""
    url: str = ""
    hosts: list[str] = []
    triangle: bool = False
    memory_bytes: StubMemory | None = None
    message_bytes: Bytes | None = None
    rate_messages: Count | None = None
    rate_bytes: Count | None = None
    idle_seconds: Seconds | None = None


class ForeignOptions(Section):
    """
    Options of foreign stubs: of which domains they are run, what they may use, and how long they may wait.

    `hosts` are places, `host:port`, that every stub may connect to, also those that have no public address.
    `deno` is the program that runs them, `ca` has the authorities of the servers that they connect to.
    """

    accept: AcceptStubs = "none"
    stub: list[ForeignStub] = []
    hosts: list[str] = []
    ca: str = ""
    deno: str = ""
    live_seconds: Positive = 30.0
    idle_seconds: Seconds = 600.0
    restarts: Count = 5
    failed_seconds: Positive = 600.0
    memory_bytes: StubMemory = 128 * 1024 * 1024
    message_bytes: Bytes = 1024 * 1024
    rate_messages: Count = 1000
    rate_bytes: Count = 1024 * 1024
    hang_seconds: Positive = 10.0
    cpu_share: Share = 0.8
    max_sockets: Count = 8
    max_requests: Count = 8
    connections_per_second: Count = 1
    requests_per_second: Count = 20
    statuses_per_second: Count = 5
    log_lines_per_second: Count = 5
    queue_messages: Count = 1000
    queue_bytes: Bytes = 8 * 1024 * 1024
    max_wait_seconds: Positive = 300.0
    max_addresses: Count = 10_000
    max_stubs: Count = 20
    max_domains: Count = 1000
    max_code_bytes: Bytes = 2 * 1024 * 1024
    fetch_seconds: Positive = 10.0
    fetches_per_minute: OrOff = 30
    refresh_seconds: Positive = 86_400.0


class ConnectorOptions(Section):
    """
    Options of a stub in the place of a connector to a back end: the domain whose stub it is, and how long
    its answers may take.
    """

    stub: str
    deadline_seconds: Positive = 5.0
    in_flight: Count = 1000


def domain_name(text: str) -> bool:
    """
    Is it the name of a domain, in lower case and without a port?
    """
    return _DOMAIN.fullmatch(text) is not None


def foreign_mistakes(
    options: ForeignOptions, connectors: dict[Connector, ConnectorOptions], peers: Sequence[Peer], own: str
) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    linked = {peer.domain for peer in peers}
    yield from _hosts("foreign.hosts", options.hosts)
    for number, stub in enumerate(options.stub):
        key = f"foreign.stub[{number}]"
        yield from _stub(key, stub, own)
        if stub.domain in seen:
            yield f"{key}.domain", f"expected each domain once, found {stub.domain!r} again"
        if stub.domain in linked:
            yield f"{key}.domain", f"expected a domain without a [[peer]], found {stub.domain!r}"
        seen.add(stub.domain)
    if options.accept == "listed" and not options.stub:
        yield "foreign.accept", "expected [[foreign.stub]] tables with 'listed', found none"
    if options.queue_bytes < options.message_bytes:
        least = f"expected at least foreign.message_bytes ({options.message_bytes})"
        yield "foreign.queue_bytes", f"{least}, found {options.queue_bytes}"
    for name, connector in connectors.items():
        if connector.stub not in seen:
            expected = "expected the domain of a [[foreign.stub]]"
            yield f"connectors.{name}.stub", f"{expected}, found {connector.stub!r}"


def _stub(key: str, stub: ForeignStub, own: str) -> Iterator[tuple[str, str]]:
    if not domain_name(stub.domain):
        expected = "expected a domain name such as b.example, in lower case"
        yield f"{key}.domain", f"{expected}, found {stub.domain!r}"
    if stub.domain == own.casefold():
        yield f"{key}.domain", f"expected another domain, found {own!r}, which is this node's own"
    if stub.digest:
        try:
            pin_hash(stub.digest)
        except ValueError as why:
            yield f"{key}.digest", str(why)
    if stub.url and not is_stub_url(stub.url):
        expected = "expected an https URL that ends .ps.js (http on this machine only)"
        yield f"{key}.url", f"{expected}, found {stub.url!r}"
    yield from _hosts(f"{key}.hosts", stub.hosts)


def _hosts(key: str, hosts: list[str]) -> Iterator[tuple[str, str]]:
    for host in hosts:
        found = _HOST.fullmatch(host)
        if found is None or not 0 < int(found[2]) < 65536:
            yield key, f"expected places such as mn.example.org:443, found {host!r}"


def is_stub_url(url: str) -> bool:
    """
    Is it the URL of a stub's code, over https, or over http on this machine?
    """
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0 and not re.search(r"[^!-~]", url)
    except ValueError:
        return False
    if not usable or parts.query or parts.fragment or parts.username is not None:
        return False
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
    return is_safe and parts.path.endswith(".ps.js")
