"""
Requests for the history of an object, and the texts of their errors.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec

from msgnode.protocol.errors import NotOffered, Rejected
from msgnode.protocol.message import Message

DEFAULT_CHANGES, MAX_CHANGES = 100, 1000  # in one answer
MAX_PAGE_BYTES = 512 * 1024  # of messages in one answer; a larger one is alone in it

Point = int | datetime


class HistoryRequest(msgspec.Struct, frozen=True):
    """
    A request for the object as it was `at` a version or a time, or for the changes `from_` one.
    """

    at: Point | None = None
    from_: Point | None = None
    limit: int = DEFAULT_CHANGES


def read_request(message: Message) -> HistoryRequest:
    """
    The request. Raises Rejected if it is none.
    """
    if message.type.lower() != "read":
        raise NotOffered(f"the history of an object understands read, not {message.type!r}"[:200])
    body = message.fields()
    at, from_ = _point(body, "at"), _point(body, "from")
    limit = _number(body.get("limit"))
    if limit is None:
        limit = DEFAULT_CHANGES
    elif isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_CHANGES:
        raise Rejected(f"'limit' is 1 to {MAX_CHANGES}, not {limit!r}"[:200])
    if at is not None and (from_ is not None or body.get("limit") is not None):
        raise Rejected("name 'at' for the object as it was, or 'from' and 'limit' for its changes, not both")
    return HistoryRequest(at, from_, limit)


def _point(body: dict[str, Any], name: str) -> Point | None:
    value = _number(body.get(name))
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53:
        return value
    if isinstance(value, str) and len(value) <= 64:
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            pass
        else:
            return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    raise Rejected(f'{name!r} is a version, or a time such as "2026-01-31T12:00:00Z", not {value!r}'[:300])


def _number(value: Any) -> Any:
    """
    The number that a text of digits is: the query of an HTTP request has texts only.
    """
    is_number = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 16
    return int(value) if is_number else value


def micros_of(point: datetime) -> int:
    """
    The time in microseconds since 1970, before which nothing was.
    """
    return max(int(point.timestamp() * 1_000_000), 0)


def time_text(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1_000_000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


class Change(msgspec.Struct, frozen=True):
    """
    One message of an object, as an answer has it.
    """

    version: int
    time: str
    message: msgspec.Raw


class Missing(msgspec.Struct, frozen=True, rename={"first": "from", "last": "to"}):
    """
    Versions that the journal does not have, and why.
    """

    first: int
    last: int
    why: str


def _no_changes() -> list[Change]:
    return []  # with `list` itself an empty one would be left out of the answer


class Page(msgspec.Struct, omit_defaults=True):
    """
    The changes of an object: `next` is where to go on, `version` the last one of the object, `oldest` the
    first one that is kept. `hidden` counts those that the policies do not show.
    """

    version: int
    oldest: int
    changes: list[Change] = msgspec.field(default_factory=_no_changes)
    next: int = 0
    missing: list[Missing] = []
    hidden: int = 0


class AsItWas(msgspec.Struct):
    """
    An object as it was, as an answer has it.
    """

    version: int
    time: str
    exists: bool
    value: Any
    children: dict[str, Any]
    missing: list[Missing]
    skipped: list[int]
    complete: bool
