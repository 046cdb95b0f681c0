"""
Obligations: what a permit or deny obliges the node to do, and the edits that need only the message.

language/obligation_parser.py parses them. rates.py has the buckets of `rateLimit`.
"""

from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

from msgspec import Struct

from msgnode.policy.decision.attribute import Attribute
from msgnode.policy.decision.attributes import step_down
from msgnode.protocol import lossless_json
from msgnode.protocol.errors import Malformed
from msgnode.protocol.message import Message


class Obligation(Struct, frozen=True):
    """
    The base class of obligations. `path` is the rule, policy or set that it belongs to.

    A decision with any obligation is made for each message by itself, and never repeated by the data plane.
    """

    path: str


class RateLimit(Obligation, frozen=True):
    """
    A rate limit: `rate` messages per `per` seconds, up to `burst` at once, for each value of the attributes
    in `key`; `shared` with the other nodes of the domain.
    """

    key: tuple[Attribute, ...]
    rate: float
    per: float
    burst: float
    on_exceed: str = "deny"  # or delay, or log
    shared: bool = False


class MaxBytes(Obligation, frozen=True):
    """
    A limit of the message's size in bytes.
    """

    most: int


class NumberOfEntries(Obligation, frozen=True):
    """
    An obligation that shortens a list or object.

    Of the list or object at `at` in the body, only the first `most` entries are passed on.
    """

    at: tuple[str, ...]
    most: int


class ConditionOfEntries(Obligation, frozen=True):
    """
    An obligation that filters a list or object.

    Of the list or object at `at` in the body, only entries for which `fits` is true are passed on.
    """

    at: tuple[str, ...]
    fits: Callable[[Any], bool]


class SetField(Obligation, frozen=True):
    """
    Sets a field of the body.
    """

    at: tuple[str, ...]
    value: Any


class RemoveField(Obligation, frozen=True):
    """
    Removes a field of the body.
    """

    at: tuple[str, ...]


class Redirect(Obligation, frozen=True):
    """
    Redirects the message to another address, where it is decided again, once.
    """

    to: str


class Log(Obligation, frozen=True):
    """
    Writes a line to the node's log.
    """

    text: str


class Notify(Obligation, frozen=True):
    """
    Writes to the node's log that `who` should be notified.
    """

    who: str
    text: str = ""


class Advice(Obligation, frozen=True):
    """
    An obligation with a name that the node does not know, such as `emailto`. It is only logged.
    """

    name: str
    value: Any


# -- applying ------------------------------------------------------------------


def too_large(obligations: Iterable[Obligation], size: int) -> MaxBytes | None:
    """
    The size limit that a message exceeds, or None.
    """
    for each in obligations:
        if each.__class__ is MaxBytes and size > each.most:  # type: ignore[attr-defined]
            return each  # type: ignore[return-value]
    return None


def edited(obligations: Iterable[Obligation], message: Message) -> bytes | None:
    """
    The message with its body edited in the given order; None if nothing changes.

    Malformed if the body cannot be decoded; the message must not be delivered then.
    """
    edits = [each for each in obligations if each.__class__ in _EDITS]
    if not edits:
        return None
    whole = _loads(message)
    before = whole.get("body")
    body: dict[str, Any] = _loads(message)["body"] if isinstance(before, dict) else {}
    for each in edits:
        _EDITS[each.__class__](body, each)
    if body == (before or {}):
        return None
    whole["body"] = body
    try:
        return lossless_json.dumps(whole)
    except RecursionError:
        raise Malformed("nested too deeply", message.id, message.from_) from None


def _loads(message: Message) -> dict[str, Any]:
    try:
        whole = lossless_json.loads(message.data)
    except (ValueError, RecursionError):
        raise Malformed("'body' has a part that cannot be decoded", message.id, message.from_) from None
    return whole  # type: ignore[no-any-return]


def _apply_number(body: dict[str, Any], limit: NumberOfEntries) -> None:
    _replace(body, limit.at, lambda entries: _few(entries, limit.most))


def _few(entries: Any, most: int) -> Any:
    if isinstance(entries, dict):
        return dict(list(entries.items())[:most])
    return entries[:most] if isinstance(entries, list) else entries


def _apply_condition(body: dict[str, Any], limit: ConditionOfEntries) -> None:
    _replace(body, limit.at, lambda entries: _fit(entries, limit.fits))


def _fit(entries: Any, fits: Callable[[Any], bool]) -> Any:
    if isinstance(entries, dict):
        return {name: entry for name, entry in entries.items() if fits(entry)}
    return [entry for entry in entries if fits(entry)] if isinstance(entries, list) else entries


def _apply_set(body: dict[str, Any], change: SetField) -> None:
    *way, last = change.at
    here: Any = body
    for step in way:
        if isinstance(here, list):
            here = step_down(here, [step])
        else:
            inner = here.get(step)
            here[step] = inner if isinstance(inner, dict | list) else {}
            here = here[step]
        if not isinstance(here, dict | list):
            return  # an index beyond the end of a list
    if isinstance(here, dict):
        here[last] = deepcopy(change.value)
    elif step_down(here, [last]) is not None:
        here[int(last)] = change.value


def _apply_remove(body: dict[str, Any], change: RemoveField) -> None:
    *way, last = change.at
    here = step_down(body, list(way))
    if isinstance(here, dict):
        here.pop(last, None)
    elif isinstance(here, list) and step_down(here, [last]) is not None:
        del here[int(last)]


def _replace(body: dict[str, Any], at: tuple[str, ...], by: Callable[[Any], Any]) -> None:
    found = step_down(body, list(at))
    if found is not None:
        _apply_set(body, SetField("", at, by(found)))


_EDITS: dict[type, Callable[[dict[str, Any], Any], None]] = {
    NumberOfEntries: _apply_number,
    ConditionOfEntries: _apply_condition,
    SetField: _apply_set,
    RemoveField: _apply_remove,
}
