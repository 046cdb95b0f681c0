"""
Addresses: who hears one, and why; and those that begin with a text.
"""

from itertools import islice
from typing import Any, ClassVar

import msgspec
from twisted.internet.defer import Deferred

from msgnode.admin.lookups.policy_words import effect_at
from msgnode.admin.reads.inspector import Inspector, checked_limit
from msgnode.admin.reads.session_report import reasons
from msgnode.admin.reads.session_rows import state_of
from msgnode.admin.survey import in_slices
from msgnode.policy.enforcement.points import SUBSCRIBE
from msgnode.protocol.errors import Rejected

MAX_HEARERS = 200
MAX_JUDGED = 20  # hearers for which the policies are asked
MAX_LOOKED_AT = 5000  # addresses in one request for a prefix


class Hearer(msgspec.Struct):
    """
    A session that hears an address, and why: `allocated`, `subscribed`, `learned`, `owned`, or `runtime` if
    the address is its runtimeURL or below.

    `since` is when its connection opened or was lost, in seconds since 1970: a binding itself has no time.
    `subscribe` is the effect of the policies if it subscribed the address now, "" without policies and
    for all but the first 20.
    """

    runtime: str
    state: str
    connector: str
    peer: str
    user: str
    since: float
    why: list[str]
    subscribe: str


class AddressReport(msgspec.Struct):
    """
    An address: the sessions that hear it, at most 200; the owner; the runtime it lies below; whether it is an
    address of the node itself, or one of a pool; and the other nodes of the domain that hold it.

    `registry` is its entry in the domain registry, null if there is none; `registry_error` says why it could
    not be read.
    """

    address: str
    hearers: list[Hearer]
    number: int
    owner: str
    below: str
    is_of_node: bool
    pool: str
    is_leased: bool
    held_by: list[str]
    registry: Any = None
    registry_error: str = ""


class PrefixQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """
    The text with which addresses begin; `cursor` is `next` of the answer before.
    """

    prefix: str = ""
    limit: int = 50
    cursor: int = 0


class AddressRow(msgspec.Struct):
    """
    An address and the number of sessions that are bound to it.
    """

    address: str
    sessions: int


class AddressList(msgspec.Struct):
    """
    Addresses of the node that begin with the text, of those `looked_at`; `next`: there are more to look at.
    """

    rows_in: ClassVar[str] = "addresses"

    total: int
    looked_at: int
    addresses: list[AddressRow]
    next: int | None = None


def report_address(inspector: Inspector, address: str) -> AddressReport:
    """
    The report on one address.
    """
    node = inspector.node
    found = node.routes.resolve(address)
    below = node.routes.runtime(address)
    owner = node.routes.owners.get(address)
    scheme = address.partition(":")[0]
    pool = scheme if node.allocation.has(scheme, address) else ""
    hearers = []
    for number, session in enumerate(islice(found, MAX_HEARERS)):
        connection = session.connection
        hearers.append(
            Hearer(
                session.runtime,
                state_of(session, inspector),
                connection.connector if connection is not None else "",
                connection.peer if connection is not None else "",
                session.identity,
                round(inspector.wall_of(session.since), 3),
                reasons(session.bindings.get(address, 0)) or (["runtime"] if session is below else []),
                effect_at(SUBSCRIBE, address, session, node.enforcement) if number < MAX_JUDGED else "",
            )
        )
    cluster = node.router.cluster
    return AddressReport(
        address,
        hearers,
        len(found),
        owner.runtime if owner is not None else "",
        below.runtime if below is not None else "",
        address in node.responders or node.is_reserved(address),
        pool,
        bool(pool) and node.allocation.is_leased(address),
        list(cluster.holders(address, bool(found))) if cluster is not None else [],
    )


def list_addresses(inspector: Inspector, query: PrefixQuery) -> Deferred[AddressList]:
    """
    Addresses with a prefix. Raises Rejected if the query is wrong, or too many lists are being made.
    """
    if not query.prefix:
        raise Rejected("the parameter prefix is missing: the text with which addresses begin")
    limit, first = checked_limit(query.limit), max(0, query.cursor)
    routes = inspector.node.routes
    rows: list[AddressRow] = []
    looked = 0

    def look(address: str) -> None:
        nonlocal looked
        if len(rows) < limit:
            looked += 1
            if address.startswith(query.prefix):
                rows.append(AddressRow(address, len(routes.resolve(address))))

    steps = in_slices(look(each) for each in routes.some(first, MAX_LOOKED_AT))  # type: ignore[func-returns-value]

    def result() -> AddressList:
        following = first + looked
        return AddressList(len(routes), looked, rows, following if following < len(routes) else None)

    return inspector.walk(steps, result)
