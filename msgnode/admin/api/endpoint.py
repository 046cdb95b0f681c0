"""
Endpoints of the admin API: a verb and a path, the role that it needs, and the types of what goes in and out.
"""

from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from msgnode.cluster.operator_requests import Operator
from msgnode.protocol.errors import Rejected

MAX_BODY_BYTES = 1024 * 1024
MAX_NUMBER = 2**53  # and infinite ones and NaN are none: comparisons with those are never true
HOLDER, EVERY_NODE = "holder", "every node"  # where an endpoint acts in a domain of several nodes
EXACTLY, AT_MOST = (
    "exactly",
    "at most",
)  # how many targets an operator confirms; one at most needs no confirmation
CONFIRMED = -1  # in the place of a number: the node that was asked has compared those of all nodes


class NoQuery(msgspec.Struct, forbid_unknown_fields=True):
    """
    No parameters.
    """


class Reason(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """
    The body of an action: the reason for it, which goes into the audit log.
    """

    reason: str


class Call(NamedTuple):
    """
    A request to an endpoint: its operator and peer, the parts of its path, its query and its body.

    `via` says by what the operator came, `cli` or `api`. `is_dry_run`: nothing is done; `confirm` is the
    number of things that a dry run has found, which the operator confirms.
    """

    operator: Operator
    peer: str
    via: str
    path: dict[str, str]
    query: Any
    body: Any
    is_dry_run: bool = False
    confirm: int | None = None


class Endpoint(NamedTuple):
    """
    An endpoint: `path` is below /api/v1 and may have parts in braces; `act` returns what becomes JSON, or a
    Deferred of it, and raises Rejected.

    `is_read`: it changes nothing, so that other nodes of the domain may be asked, too. `reach` says where it
    acts: at this node, "holder": at the node that has the session or address, or "every node". `confirms`:
    the operator confirms the number of its targets, exactly or as the most. `also` returns the path and the
    body of another endpoint that is asked when it is done, or None.
    """

    verb: str
    path: str
    role: str
    summary: str
    act: Callable[[Call], Any]
    answer: Any
    query: type[msgspec.Struct] = NoQuery
    body: type[msgspec.Struct] | None = None
    is_read: bool = False
    reach: str = ""
    confirms: str = ""
    also: Callable[[Call], tuple[str, Any] | None] = lambda call: None

    @property
    def names(self) -> list[str]:
        """
        The names of the parts of its path that vary.
        """
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]

    def matched(self, path: list[str]) -> dict[str, str] | None:
        """
        The varying parts of this path; None if it is another endpoint's.
        """
        pattern = self.path.split("/")
        if len(pattern) != len(path):
            return None
        found = {}
        for wanted, part in zip(pattern, path, strict=True):
            if wanted.startswith("{"):
                found[wanted[1:-1]] = part
            elif wanted != part:
                return None
        return found


def read_query(kind: type[msgspec.Struct], fields: dict[str, Any]) -> Any:
    """
    The parameters as this type. Raises Rejected (400) with the name of the one that is wrong.
    """
    try:
        return _in_range(msgspec.convert(fields, kind, strict=False), "parameter")
    except msgspec.ValidationError as why:
        raise Rejected(in_words(why, "parameter", kind)) from None


def read_body(kind: type[msgspec.Struct], data: bytes) -> Any:
    """
    The body as this type. Raises Rejected (400, 413).
    """
    if len(data) > MAX_BODY_BYTES:
        raise Rejected(f"a body has at most {MAX_BODY_BYTES} bytes", 413, "too-long")
    try:
        return _in_range(msgspec.json.decode(data or b"{}", type=kind), "field")
    except msgspec.ValidationError as why:
        raise Rejected(in_words(why, "field", kind)) from None
    except (msgspec.DecodeError, RecursionError) as why:
        raise Rejected(f"the body is not JSON: {why}"[:200]) from None


def _in_range(found: Any, what: str) -> Any:
    """
    Returns the struct, if each number in it is one to calculate with. Raises Rejected.
    """
    for field in msgspec.structs.fields(found):
        value = getattr(found, field.name)
        if isinstance(value, int | float) and not abs(value) < MAX_NUMBER:
            raise Rejected(f"{what} {field.encode_name}: the number is too large, or is none")
        if isinstance(value, msgspec.Struct):
            _in_range(value, what)
    return found


def in_words(why: msgspec.ValidationError, what: str, kind: type[msgspec.Struct]) -> str:
    """
    An error of msgspec, for a person: the name of the parameter, and what is wrong about it.
    """
    text, _, place = str(why).partition(" - at `$")
    place = place.rstrip("`").lstrip(".")
    within = f" in {place}" if place else ""
    if "unknown field" in text:
        known = ", ".join(field.encode_name for field in msgspec.structs.fields(_struct_at(place, kind)))
        return f"unknown {what} {text.partition('`')[2].rstrip('`')!r}{within}; known are {known or 'none'}"[
            :300
        ]
    if "missing required" in text:
        return f"the {what} {text.partition('`')[2].rstrip('`')}{within} is missing"
    return f"{what} {place}: {text[:1].lower()}{text[1:]}".replace("`", "")[:300] if place else text[:300]


def _struct_at(place: str, kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """
    The type of the object at this place, such as `filter`, in one of this type.
    """
    for name in filter(None, place.split(".")):
        types = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        inner = types.get(name)
        if not (isinstance(inner, type) and issubclass(inner, msgspec.Struct)):
            break
        kind = inner
    return kind


def parameters(query: str) -> dict[str, str]:
    """
    The parameters in the query of a URL. Raises Rejected (400) if one is given twice.
    """
    found: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in found:
            raise Rejected(f"the parameter {name[:80]!r} is given twice")
        found[name] = value
    return found
