"""
The seam between links and operators: what is seen of links, routes and streams, and what may be done to them.

The admin listener, the metrics and `mn:/nodes` know nothing else of links.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec
from twisted.internet.defer import Deferred

from msgnode.links.peer_counts import PeerCounts
from msgnode.links.wire.node_name import domain_of, parse
from msgnode.protocol.errors import Rejected

MAX_LINK_COST = 1_000_000

# The states of a link: `refused` ends when the configuration or the administrative state changes.
LinkState = Literal[
    "configured", "connecting", "authenticating", "synchronising", "up", "lost", "waiting", "refused"
]
# The operator's order about a domain. `draining`: nothing new is accepted for it, what is undelivered goes.
# `paused`: no links with it; what is undelivered waits. `banned`: as paused, it appears in no route, and
# nothing of it is accepted, through other domains either.
AdminState = Literal["enabled", "draining", "paused", "banned"]


class LinkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """
    The status of one link to a neighbour, or of the attempt to have one.

    `node` is empty until the neighbour has proved its name. `dialled_by` is empty while there is no
    connection. `state_seconds` is for how long the link has been up or down. `round_trip` is in seconds,
    the least of the last pings; None before the first pong. `cost` is None while the link is not up. `queue`
    has the number of datagrams that wait by priority, 0 first. Bytes are those of this connection.
    `certificate_days` are left until the neighbour's certificate ends, negative if it has ended; None while
    none was presented.
    """

    domain: str
    node: str = ""
    state: LinkState = "configured"
    state_seconds: float | None = None
    url: str = ""
    dialled_by: Literal["", "us", "them"] = ""
    round_trip: float | None = None
    cost: int | None = None
    is_cost_fixed: bool = False
    transit: bool = False
    queue: tuple[int, ...] = ()
    queue_bytes: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    certificate_days: float | None = None
    last_error: str = ""
    last_error_seconds: float | None = None  # ago


class OwnCertificates(msgspec.Struct, frozen=True, kw_only=True):
    """
    The days until the certificate of this node ends, and until the first revocation list does; negative
    afterwards. `list_days` is None without a list.
    """

    certificate_days: float
    list_days: float | None = None


class StreamStatus(msgspec.Struct, frozen=True, kw_only=True):
    """
    The status of the stream to one node. The last four fields count since the stream began.

    `undelivered` are messages that the node has not acknowledged, `oldest_seconds` is the age of the oldest;
    `window` is how many may be under way; `refused` counts by reason what was not accepted or was dropped.
    """

    destination: str
    undelivered: int = 0
    undelivered_bytes: int = 0
    oldest_seconds: float = 0.0
    window: int = 0
    sent_again: int = 0
    in_doubt: int = 0
    bytes_saved: int = 0  # by compression
    refused: dict[str, int] = {}


class DomainStatus(msgspec.Struct, frozen=True, kw_only=True):
    """
    The status of another domain, with all links and streams to its nodes. `cost` is that of the route to the
    nearest of them; None: there is no route. `grants` are the subscriptions of its clients here, `upstream`
    those of clients here there.
    """

    domain: str
    is_configured: bool
    admin_state: AdminState = "enabled"
    cost: int | None = None
    links: tuple[LinkStatus, ...] = ()
    streams: tuple[StreamStatus, ...] = ()
    grants: int = 0
    upstream: int = 0


class MapNode(msgspec.Struct, frozen=True, kw_only=True):
    """
    A node of the map. `age_seconds` is the time since its newest advertisement came, `cost` that of the route
    to it, which begins with `first_hop`; None: there is no route.
    """

    node: str
    kind: Literal["SERVER", "CLIENT"]
    age_seconds: float
    cost: int | None
    hops: int = 0
    first_hop: str = ""


class MapLink(msgspec.Struct, frozen=True, kw_only=True):
    """
    A link of the map between `one` and `other`, whose name is the greater. `costs` are as each of them
    advertises it, None if it does not. `cost` is the greater, and None unless both do: the link is not used.
    """

    one: str
    other: str
    costs: tuple[int | None, int | None]
    cost: int | None
    age_seconds: float


class NetworkMap(msgspec.Struct, frozen=True, kw_only=True):
    """
    The map of this node: itself first, then the other nodes by name, and their links.
    """

    node: str
    nodes: tuple[MapNode, ...]
    links: tuple[MapLink, ...]


class Hop(msgspec.Struct, frozen=True):
    """
    A hop of a path: the next node, and the cost of the link to it.
    """

    node: str
    cost: int


class Path(msgspec.Struct, frozen=True):
    """
    A path from this node: its hops, the last to the destination, and the sum of their costs.
    """

    hops: tuple[Hop, ...]
    cost: int


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """
    The explanation of how messages to an address go, as `node` sees it, which is this one.

    `kind` is `here` (this node or a node of its domain decides), `remote` (there is a path), `no-path` (the
    domain is known, and out of reach) or `unknown` (no such domain is configured or reachable). `text` is a
    sentence about it. `alternatives` are the cheapest paths by other first hops, the cheapest first.
    `supposed` is the path with the changes that the operator supposed, None if there would be none;
    `is_supposed` is False if there were no such changes.
    """

    node: str
    address: str
    domain: str
    kind: Literal["here", "remote", "no-path", "unknown"]
    text: str
    destination: str = ""
    path: Path | None = None
    alternatives: tuple[Path, ...] = ()
    is_supposed: bool = False
    supposed: Path | None = None


class Check(msgspec.Struct, frozen=True):
    """
    The result of one check of a link: `dns`, `tcp`, `certificate`, `pin`, `policy`, `clock`, `outgoing` or
    `incoming`, in this order.
    """

    name: str
    result: Literal["ok", "failed", "skipped"]
    text: str


class LinkName(NamedTuple):
    """
    The name of a link by its two ends; each is a node, or a domain, which means all nodes of it.
    """

    one: str
    other: str

    def is_between(self, one: str, other: str) -> bool:
        """
        Is it the name of the link between these two nodes?
        """
        return (is_end(self.one, one) and is_end(self.other, other)) or (
            is_end(self.one, other) and is_end(self.other, one)
        )


def parse_link(text: str, own_node: str) -> LinkName:
    """
    The link in `END` (of this node) or `END,END`; an END is a node or a domain. ValueError in words if it is
    none.
    """
    ends = [end.strip() for end in text.split(",")]
    if len(ends) == 1:
        ends.insert(0, own_node)
    if len(ends) != 2 or not all(ends):
        raise ValueError(f"expected a link as DOMAIN, or as two ends DOMAIN,DOMAIN, found {text[:80]!r}")
    return LinkName(*map(_end, ends))


def _end(text: str) -> str:
    try:
        return str(parse(text)) if "/" in text else domain_of(str(parse(f"mn://{text}/x")))
    except ValueError:
        expected = "expected the end of a link as mn://<domain>/<node>, or as a domain"
        raise ValueError(f"{expected}, found {text[:80]!r}") from None


def is_end(end: str, node: str) -> bool:
    """
    Does the end of a link's name mean this node?
    """
    return end == node or ("/" not in end and end == domain_of(node))


class NotAPeer(Rejected):
    """
    The refusal of an order about a domain with which this node has nothing to do.
    """

    def __init__(self, domain: str, known: Collection[str]) -> None:
        names = ", ".join(sorted(known)[:10]) or "none"
        super().__init__(
            f"{domain[:253]!r} is neither configured as a peer nor linked; peers: {names}", 404, "not-found"
        )


class LinkOperations(Protocol):
    """
    The view of links that operators have, and their orders. All answers are for this moment, and cheap: only
    `check` and `explain` may take longer.

    The methods that take a domain raise Rejected: 404 (NotAPeer) for a domain that is neither configured nor
    has a link or a stream, 400 for a text that is no domain. Administrative states are kept over restarts.
    """

    @property
    def peers(self) -> Collection[str]:
        """
        The configured domains.
        """

    def domains(self) -> Sequence[DomainStatus]:
        """
        All configured domains, and the others with a link or a stream; by name.
        """

    def domain(self, domain: str) -> DomainStatus: ...

    def spool(self) -> tuple[int, int]:
        """
        The bytes of all messages for other nodes, and `federation.spool_bytes`.
        """

    def own_certificates(self) -> OwnCertificates: ...

    def counts(self) -> Mapping[str, PeerCounts]:
        """
        Counts since the node started, by configured domain, and those of all others as `other`.
        """

    def map(self) -> NetworkMap: ...

    def explain(
        self, address: str, without: Collection[LinkName], costs: Mapping[LinkName, int]
    ) -> Route | Deferred[Route]:
        """
        How messages to an address, a domain or a node go; and how they would go without these links and with
        these costs. Raises Rejected (400) for a name that is no link of the map. A Deferred, if the map is
        looked at in a thread.
        """

    def check(self, domain: str) -> Deferred[Sequence[Check]]:
        """
        Try out a link to the domain, without using it. The Deferred fires within 20 s, and may be cancelled.
        """

    def ban(self, domain: str) -> None:
        """
        Any domain may be banned, also one that is not known yet.
        """

    def pause(self, domain: str) -> None: ...

    def resume(self, domain: str) -> None:
        """
        The administrative state is `enabled` again, whatever it was.
        """

    def drain(self, domain: str) -> None: ...

    def forget(self, domain: str) -> int:
        """
        Drop what is undelivered to the domain's nodes, each with an Outcome 502 `no-path`; returns how many.
        """
