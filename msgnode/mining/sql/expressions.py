"""
Expressions of SQL that several analyses share: histograms, addresses, types, sums.

The bins of histograms are fixed, so that sums of different hours can be added in any order. There are sixteen
for each doubling: a percentile is the upper edge of its bin, at most 4.5 % above the exact value.
"""

from collections.abc import Sequence

from msgnode.mining.analyses.columns import PER_DOUBLING
from msgnode.mining.sql.dialect import Dialect, in_lower_case

# The logarithms of engines differ in the last digit: of a power of two, none may be below the edge.
_LAST_DIGIT = "1e-11"

# The types for which a response is expected.
REQUESTS = ("create", "read", "delete", "subscribe", "unsubscribe", "execute")
TYPES = (*REQUESTS, "response", "update", "forward", "open", "re-open", "close", "ping", "message")
FAILED = ("refused", "no-route")
ERRORS = (*FAILED, "dropped")  # outcomes; an answer of the node with an error is `refused` too
PUBLISHED = ("delivered", "waiting", "dropped", "no-route")  # outcomes of publications that the node carried

# The addresses of publications have these inside, or at their end.
_MULTICAST_INSIDE = ("/children/",)
_MULTICAST_ENDS = ("/changes", "/registration", "/status")
_SERVICE = "(?:msg-node|registry|idm|qos-broker)[.]"
# The group is the domain, without a service of the node before it.
_AUTHORITY = f"^[A-Za-z][A-Za-z0-9+.-]*://(?:{_SERVICE})?([^/?#]*)"
_AT_NODE = f"^(domain://{_SERVICE}[^/]+|mn:|global:)"
_DESTINATION = "^([A-Za-z][A-Za-z0-9+.-]*:(?://[^/?#]+)?)"

FAILURE = f"outcome IN {FAILED}"


def kind(type: str = "type") -> str:
    """
    The type in lower case, or `other`.
    """
    lower = in_lower_case(type)
    # Most are in lower case already, and to find that out costs less than to write them so.
    return f"CASE WHEN {type} IN {TYPES} THEN {type} WHEN {lower} IN {TYPES} THEN {lower} ELSE 'other' END"


def domain(address: str) -> str:
    """
    The domain of an address: `node` for addresses of the node without a domain, `none` for others.
    """
    other = f"CASE WHEN {address} LIKE 'mn:%' THEN '' ELSE {address} END"
    return _found(f"regexp_extract({other}, '{_AUTHORITY}', 1)", f"WHEN {address} LIKE 'mn:%' THEN 'node'")


def destination(address: str) -> str:
    """
    The destination of a request, by scheme and domain: `hyperty://example.org`, `mn:`.
    """
    return _found(f"regexp_extract({address}, '{_DESTINATION}', 1)")


def _found(text: str, otherwise: str = "") -> str:
    """
    A text in lower case, or `none` if it is empty or null.

    Both parts are always computed, so that Spark searches once: in a branch it would search again.
    """
    rest = f"CASE WHEN {text} != '' THEN '' {otherwise} ELSE 'none' END"
    return f"coalesce({in_lower_case(text)} || {rest}, 'none')"


def is_multicast(address: str) -> str:
    """
    Is this a publication address, from which no reply is expected?

    Without a regular expression, for this is asked about every message.
    """
    found = [f"contains({address}, '{text}')" for text in _MULTICAST_INSIDE]
    found += [f"{address} LIKE '%{text}'" for text in _MULTICAST_ENDS]
    return f"({' OR '.join(found)})"


def is_service(address: str) -> str:
    """
    Is this an address at which a node itself answers?
    """
    return f"regexp_extract({address}, '{_AT_NODE}', 1) != ''"


def bin_of(value: str) -> str:
    """
    The bin of a number; -1 for zero and below.
    """
    exponent = f"floor(log2(CAST({value} AS DOUBLE)) * {PER_DOUBLING} + {_LAST_DIGIT})"
    return f"CASE WHEN {value} > 0 THEN CAST({exponent} AS INT) ELSE -1 END"


def number_where(condition: str) -> str:
    """
    The number of rows for which the condition is true; unknown counts as false.
    """
    return f"count(*) FILTER (WHERE {condition})"


def total(value: str) -> str:
    """
    The sum of a column; 0, not null, if it has no values.
    """
    return f"CAST(coalesce(sum({value}), 0) AS BIGINT)"


def example(sql: Dialect, fields: Sequence[str]) -> str:
    """
    The fields of a row as a struct, in an order that makes a minimum and maximum of them deterministic.
    Engines differ in whether null is the least or the largest: what is null comes first, by a field of its
    own. `shown` leaves these out.
    """
    found = {}
    for name in fields:
        found[f"has_{name}"] = f"{sql.named(name)} IS NOT NULL"
        found[name] = sql.named(name)
    return sql.struct_of(found)


def shown(sql: Dialect, found: str, fields: Sequence[str]) -> str:
    """
    An example, or an aggregate of examples, with these fields only.
    """
    struct = sql.struct_of({name: f"({found}).{sql.named(name)}" for name in fields})
    return f"CASE WHEN {found} IS NOT NULL THEN {struct} END"
