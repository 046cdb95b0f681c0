"""
The fields of a record, parsed like the JSON library of the reTHINK server does.

A number is accepted as a text, and a numeric text as a number, because JavaScript clients have sent both for
years.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

MAX_VALUES = 22_000  # values of a list; more never fit into an entry
INT32 = range(-(2**31), 2**31)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_members = msgspec.json.Decoder(dict[str, Raw]).decode
_text = msgspec.json.Decoder(str | None).decode
_values = msgspec.json.Decoder(list[Raw] | None).decode


class InvalidField(Exception):
    """
    A value that a record cannot have. The text says why.
    """


class Kind(NamedTuple):
    """
    A kind of record: its name, the key of its address, its required fields, and all its fields.
    """

    name: str
    key: str
    required: frozenset[str]
    fields: Mapping[str, Callable[[str, Raw], Any]]


def members(body: bytes) -> dict[str, Raw]:
    """
    The members of a JSON object. ValueError if it is not an object, Misfit if a key occurs twice.
    """
    found = _members(body)
    twice = json.loads(body, object_pairs_hook=_repeated)  # the outermost object is parsed last
    if twice is not None:
        raise InvalidField(f"the key {twice!r} occurs twice"[:200])
    return found


def _repeated(pairs: list[tuple[str, Any]]) -> str | None:
    """
    The first key that occurs twice.
    """
    keys: set[str] = set()
    for key, _ in pairs:
        if key in keys:
            return key
        keys.add(key)
    return None


def clean(kind: Kind, given: Mapping[str, Raw]) -> dict[str, Any]:
    """
    The fields that a record of that kind has, without nulls. ValueError or TypeError if a value is invalid.
    """
    known = {name: read(name, given[name]) for name, read in kind.fields.items() if name in given}
    return {name: value for name, value in known.items() if value is not None}


def text(name: str, raw: Raw) -> str | None:
    """
    A text. A number or a boolean becomes its JSON text.
    """
    written = bytes(raw)
    if written[0] in b"{[":
        raise TypeError(f"expected a text in {name!r}")
    return _text(raw) if written[0] in b'"n' else written.decode()


def texts(name: str, raw: Raw) -> list[str | None] | None:
    """
    A list of texts or nulls.
    """
    values = _values(raw)
    if values is None:
        return None
    if len(values) > MAX_VALUES:
        raise InvalidField(f"{name!r} has at most {MAX_VALUES} values, not {len(values)}")
    return [text(name, value) for value in values]


def whole(name: str, raw: Raw) -> int | None:
    """
    A whole number of 32 bits, which may be written as a fraction or as a text.
    """
    beyond = f"{name!r} is {INT32.start} to {INT32.stop - 1}"
    try:
        value = msgspec.json.decode(raw)
    except msgspec.ValidationError:  # 1e400 exceeds a float
        raise InvalidField(beyond) from None
    if value is None:
        return None
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()) and len(value) < 1000:
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"expected a number in {name!r}")
    if not INT32.start <= value < INT32.stop:
        raise InvalidField(beyond)
    if value != int(value):
        raise ValueError(f"expected a whole number in {name!r}")
    return int(value)


_BOTH = {
    "resources": texts,
    "dataSchemes": texts,
    "runtime": text,
    "p2pRequester": text,
    "status": text,
    "expires": whole,
}
_REQUIRED = {"expires", "dataSchemes", "resources", "runtime", "status"}
HYPERTY = Kind(
    "hyperty",
    "hypertyID",
    frozenset(_REQUIRED | {"descriptor"}),
    {**dict.fromkeys(("userID", "descriptor", "guid", "p2pHandler"), text), **_BOTH},
)
OBJECT = Kind(
    "dataobject",
    "url",
    frozenset(_REQUIRED | {"schema", "name", "reporter"}),
    {**dict.fromkeys(("schema", "name", "reporter"), text), **_BOTH},
)
KINDS = {kind.name: kind for kind in (HYPERTY, OBJECT)}
