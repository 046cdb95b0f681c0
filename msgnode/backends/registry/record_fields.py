"""
The fields of a record at the domain registry, and the types of their values.

The registry accepts numbers for texts and texts for numbers, and so does the node. Over any other type the
registry fails without naming the field, so the node refuses it first.
"""

import re
from collections.abc import Mapping
from typing import Any

from msgnode.protocol.errors import Rejected

LISTS = ("resources", "dataSchemes")
UPDATABLE = ("descriptor", "expires", *LISTS, "status", "runtime", "p2pRequester", "p2pHandler")
OBJECT_UPDATABLE = ("name", "schema", "reporter", "expires", *LISTS, "status", "runtime", "p2pRequester")
MAX_LISTED = 1000  # values of each list in a request
MAX_EXPIRES_SECONDS = 2**31 - 1  # the registry stores seconds in 32 bits

_WHOLE = re.compile(r"[+-]?[0-9]{1,10}(\.0*)?")


def fields(value: Mapping[str, Any], known: tuple[str, ...], place: str = "value.") -> dict[str, Any]:
    """
    The `known` fields in `value`, with the types of the registry. Rejected names a field with a wrong type.

    `place` is the path of the fields in the body, for that error.
    """
    return {name: _field(name, value[name], place) for name in known if value.get(name) is not None}


def texts(value: Any) -> list[str]:
    """
    The texts in a list, or a single text as a list.
    """
    if isinstance(value, str):
        return [value] if value else []
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def bounded(values: list[str], name: str) -> list[str]:
    """
    The values themselves. Rejected (413) if they are more than a request may have.
    """
    if len(values) > MAX_LISTED:
        raise Rejected(f"'{name}' may list {MAX_LISTED} values, not {len(values)}", 413, "limit")
    return values


def _field(name: str, given: Any, place: str) -> Any:
    called = f"{place}{name}"
    if name == "expires":
        return _seconds(given, called)
    if name not in LISTS:
        return _text(given, called, "a text")
    wanted = "a list of texts"
    if not isinstance(given, list):
        raise _wrong(called, wanted, given)
    bounded(given, called)
    return [_text(each, called, wanted) for each in given if each is not None]


def _seconds(given: Any, called: str) -> int:
    found: int | None = None
    if isinstance(given, str) and _WHOLE.fullmatch(given):
        found = int(given.partition(".")[0])
    elif isinstance(given, int) and not isinstance(given, bool):
        found = given
    elif isinstance(given, float) and given.is_integer():
        found = int(given)
    if found is None or not -MAX_EXPIRES_SECONDS - 1 <= found <= MAX_EXPIRES_SECONDS:
        raise _wrong(called, f"a whole number of seconds, at most {MAX_EXPIRES_SECONDS}", given)
    return found


def _text(given: Any, called: str, wanted: str) -> str:
    if isinstance(given, str):
        return given
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, int | float):
        return str(given)
    raise _wrong(called, wanted, given)


def _wrong(called: str, wanted: str, given: Any) -> Rejected:
    """
    The error for a value. A long or nested value is not printed.
    """
    kinds: dict[type, str] = {dict: "an object", list: "a list"}
    came = kinds.get(type(given)) or repr(given[:100] if isinstance(given, str) else given)
    return Rejected(f"'{called}' must be {wanted}, not {came}"[:300])
