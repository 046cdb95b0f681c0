"""
The request context of a line of the traffic log, for each enforcement point of the message.
"""

from collections.abc import Iterator, Mapping
from copy import copy
from datetime import datetime
from typing import Any

from msgnode.policy.decision.attribute import CLOCK, HEADER, ID, LINK, SIZE, Attribute
from msgnode.policy.decision.context import Context
from msgnode.protocol.address import MAX_ADDRESS_CHARS
from msgnode.protocol.message import Message
from msgnode.structures.log_limits import MAX_LOGGED_ADDRESSES

LOGGED = HEADER | ID | SIZE | CLOCK | LINK
_IN_LINE = {"connector", "peer", "session"}  # attributes of the connection that are in a line
# The attributes that are unknown if an address in the line is truncated.
_FROM = {"msgFrom", "srcScheme", "srcSPDomain", "srcDomain", "msgType", "interDomain"}
_TO = {"msgTo", "dstScheme", "dstSPDomain", "dstDomain", "msgType", "interDomain"}
_OWN = "node"  # the connector of messages that the node publishes; they have no `in` point
_SESSION = "mn:/session"
_NODE = ("mn:", "domain://", "global:")
_LATEST_NANOSECONDS = 1 << 63


class NotLogged(Exception):
    """
    A test needs an attribute that the log does not have.
    """


class LogContext(Context):
    """
    A line of the log, at one enforcement point.
    """

    __slots__ = ("not_logged", "size")

    not_logged: frozenset[str]
    size: int

    def get(self, attribute: Attribute) -> Any:
        name = attribute.name
        if name in self.not_logged or (attribute.source & ~LOGGED and name not in _IN_LINE):
            raise NotLogged(name)
        return self.size if name == "msgSize" else super().get(attribute)

    def at(self, direction: str, to: str | None = None, lost: frozenset[str] = frozenset()) -> "LogContext":
        """
        The same line at another enforcement point, where the attributes in `lost` are not logged.
        """
        other = copy(self)
        other.direction, other.to = direction, self.to if to is None else to
        other.values = {}
        other.unenforced = []
        other.not_logged = self.not_logged | lost
        return other


def places(line: Mapping[str, Any], domain: str, outward: bool) -> list[LogContext] | None:
    """
    The contexts of a line, one for each enforcement point; None if the line is not one of a message.

    `outward`: `out` is evaluated too.
    """
    inward = _inward(line, domain)
    return None if inward is None else list(_places(inward, line, outward))


def _places(inward: LogContext, line: Mapping[str, Any], outward: bool) -> Iterator[LogContext]:
    kind, to = inward.message.type.casefold(), inward.to
    if to == _SESSION:
        if kind in ("open", "re-open"):  # the runtime has no session yet
            yield inward.at("connect", lost=frozenset({"session"}))
        return
    if line.get("connector") != _OWN:
        yield inward
        if kind == "subscribe" and to.startswith("domain://") and to.endswith("/sm"):
            yield from _topics(inward, line.get("resources"), line.get("resources_count") is not None)
    elif not outward:
        return
    if outward and not to.startswith(_NODE) and line.get("outcome") != "no-route":
        yield inward.at("out", lost=frozenset(_IN_LINE))  # the recipients are not logged


def _topics(inward: LogContext, resources: Any, more: bool) -> Iterator[LogContext]:
    """
    A subscription is decided for each address.
    """
    addresses = resources if isinstance(resources, list) else []
    for address in addresses:
        known = isinstance(address, str) and len(address) < MAX_ADDRESS_CHARS and not address.endswith("…")
        yield inward.at("subscribe", str(address), frozenset() if known else frozenset(_TO))
    if not addresses or len(addresses) >= MAX_LOGGED_ADDRESSES or more:  # some are not in the line
        yield inward.at("subscribe", "", frozenset(_TO))


def _inward(line: Mapping[str, Any], domain: str) -> LogContext | None:
    type_, from_, to, id = (line.get(key) for key in ("type", "from", "to", "id"))
    if line.get("kind") != "message" or not isinstance(type_, str) or not isinstance(to, str):
        return None
    if not isinstance(from_, str) or not isinstance(id, int | str):
        return None
    moment, size = moment_of(line), line.get("bytes")
    context = LogContext(
        Message(id, type_, to, from_),
        "in",
        domain=domain,
        now=lambda: datetime.fromtimestamp((moment or 0) / 1e9),
        connector=str(line.get("connector") or ""),
        peer=str(line.get("peer") or ""),
        session=str(line.get("session") or ""),
    )
    context.size = size if isinstance(size, int) else 0
    lost = set() if domain else {"interDomain"}
    if moment is None:
        lost |= {"time", "date", "weekday"}
    if not isinstance(size, int):
        lost.add("msgSize")
    if from_.endswith("…") or to == _SESSION:
        lost |= _FROM  # truncated, or without the token
    if to.endswith(("…", " more")):
        lost |= _TO
    if type_.endswith("…"):
        lost.add("actionType")
    if context.session.endswith("…"):
        lost.add("session")
    if isinstance(id, str) and id.endswith("…"):
        lost.add("msgId")
    context.not_logged = frozenset(lost)
    return context


def moment_of(line: Mapping[str, Any]) -> int | None:
    """
    The time of a message in nanoseconds since 1970; None if the line has none.
    """
    moment = line.get("time")
    return moment if isinstance(moment, int) and 0 <= moment < _LATEST_NANOSECONDS else None
