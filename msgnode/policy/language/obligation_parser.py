"""
The parser of obligations: it converts names and values to obligations.
"""

import json
from collections.abc import Callable
from typing import Any

from msgnode.policy.decision import attributes
from msgnode.policy.decision.attribute import Attribute
from msgnode.policy.decision.conditions import Condition
from msgnode.policy.decision.obligations import (
    Advice,
    ConditionOfEntries,
    Log,
    MaxBytes,
    Notify,
    NumberOfEntries,
    Obligation,
    RateLimit,
    Redirect,
    RemoveField,
    SetField,
)
from msgnode.policy.decision.problems import InvalidValue, Place
from msgnode.policy.language.condition_parser import Reader
from msgnode.structures.error_words import near, shown


def read(name: str, value: Any, path: str, reader: Reader, place: Place) -> list[Obligation]:
    """
    The obligations of that name and value. InvalidValue if the value is invalid.
    """
    maker = KINDS.get(name)
    if maker is None:
        return [Advice(path, name, value)]
    return maker(value, path, reader, place)


def unknown(name: str) -> str:
    """
    The error text for an unknown obligation.
    """
    return f"unknown obligation '{name[:100]}'{near(name, KINDS)}"


def _rate_limit(value: Any, path: str, reader: Reader, place: Place) -> list[Obligation]:
    table = _table(
        value,
        ("key", "rate", "per", "burst", "onExceed", "shared"),
        '{"key": ["session"], "rate": 50, "per": 60}',
    )
    if "rate" not in table:
        raise InvalidValue("'rate' is missing: how many messages per 'per' seconds")
    keys = table.get("key", ["session"])
    if isinstance(keys, str):
        keys = [keys]
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise InvalidValue(f"expected a list of attributes, found {shown(keys)}", "key")
    found = []
    for i, key in enumerate(keys):
        try:
            found.append(attributes.find(key))
        except InvalidValue as why:
            raise InvalidValue(str(why), "key", i) from None
    rate = _amount(table["rate"], "rate")
    per = _amount(table.get("per", 1), "per")
    burst = _amount(table.get("burst", max(rate, 1)), "burst")
    if burst < 1:
        raise InvalidValue(
            f"expected a number from 1, found {shown(burst)}; below 1 no message passes", "burst"
        )
    exceeded = table.get("onExceed", "deny")
    choices = ("deny", "delay", "log")
    if exceeded not in choices:
        raise InvalidValue(
            f"expected deny, delay or log, found {shown(exceeded)}{near(exceeded, choices)}", "onExceed"
        )
    shared = table.get("shared", False)
    if not isinstance(shared, bool):
        raise InvalidValue(f"expected true or false, found {shown(shared)}", "shared")
    return [RateLimit(path, tuple(found), rate, per, burst, exceeded, shared)]


def _amount(value: Any, key: str) -> float:
    if not _is_number(value) or not 0 < value <= 1e12:
        raise InvalidValue(f"expected a number above 0, found {shown(value)}", key)
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _max_bytes(value: Any, path: str, reader: Reader, place: Place) -> list[Obligation]:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidValue(f"expected a number of bytes from 1, found {shown(value)}")
    return [MaxBytes(path, value)]


def _number_of_entries(value: Any, path: str, reader: Reader, place: Place) -> list[Obligation]:
    made: list[Obligation] = []
    for name, most in _table(value, (), '{"body.value": 10}').items():
        if not isinstance(most, int) or isinstance(most, bool) or most < 0:
            raise InvalidValue(f"expected a number of entries from 0, found {shown(most)}", name)
        made.append(NumberOfEntries(path, _steps(name, name), most))
    return made


def _condition_of_entries(value: Any, path: str, reader: Reader, place: Place) -> list[Obligation]:
    made: list[Obligation] = []
    example = '{"body.value": {"descriptor": {"like": "*/Connector"}}}'
    for name, fields in _table(value, (), example).items():
        steps = _steps(name, name)
        if not isinstance(fields, dict) or not fields:
            raise InvalidValue(
                f"expected tests of an entry's fields as in {example}, found {shown(fields)}", name
            )
        tests = []
        for field, tested in fields.items():
            # A field of an entry is tested like the same field of a body.
            under = (*place, name, field)
            condition = reader.condition_of_field(f"body.{field}", tested, under)
            tests.append(condition)
        made.append(ConditionOfEntries(path, steps, _fitting(tests)))
    return made


def _fitting(tests: list[Condition]) -> Callable[[Any], bool]:
    def fits(entry: Any) -> bool:
        context: Any = _Entry(entry)
        return all(each.test(context) for each in tests)

    return fits


class _Entry:
    """
    An entry of a list, with the interface of a context: tests read its fields as those of a body.
    """

    __slots__ = ("body",)

    def __init__(self, body: Any) -> None:
        self.body = body

    def get(self, attribute: Attribute) -> Any:
        return attribute.read(self)  # type: ignore[arg-type]


def _set(value: Any, path: str, reader: Reader, place: Place) -> list[Obligation]:
    table = _table(value, (), '{"body.value.priority": 3}')
    return [SetField(path, _steps(name, name), each) for name, each in table.items()]


def _remove(value: Any, path: str, reader: Reader, place: Place) -> list[Obligation]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise InvalidValue(
            f'expected a path or a list of them, such as ["body.identity"], found {shown(value)}'
        )
    return [RemoveField(path, _steps(name, *([i] if names is value else []))) for i, name in enumerate(names)]


def _redirect(value: Any, path: str, reader: Reader, place: Place) -> list[Obligation]:
    if not isinstance(value, str) or not value:
        raise InvalidValue(f"expected an address such as 'hyperty://example.org/desk', found {shown(value)}")
    return [Redirect(path, value)]


def _log(value: Any, path: str, reader: Reader, place: Place) -> list[Obligation]:
    return [Log(path, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))]


def _notify(value: Any, path: str, reader: Reader, place: Place) -> list[Obligation]:
    if isinstance(value, dict):
        table = _table(value, ("who", "text"), '{"who": "ops", "text": "..."}')
        who, text = table.get("who"), table.get("text", "")
        if isinstance(who, str) and who and isinstance(text, str):
            return [Notify(path, who, text)]
    elif isinstance(value, str) and value:
        return [Notify(path, value)]
    raise InvalidValue(f"expected whom to notify, as a text, found {shown(value)}")


def _table(value: Any, keys: tuple[str, ...], example: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        raise InvalidValue(f"expected an object such as {example}, found {shown(value)}")
    for key in value:
        if keys and key not in keys:
            raise InvalidValue(
                f"unknown key '{key[:100]}'{near(key, keys) or '; keys are ' + ', '.join(keys)}", key
            )
    return value


# Names from old papers about the language.
_OLD_NAMES = {"bodyValue": "body.value", "valueAllocated": "body.value.allocated"}


def _steps(name: str, *under: str | int) -> tuple[str, ...]:
    first, *steps = _OLD_NAMES.get(name, name).split(".")
    if first != "body" or not steps or "" in steps:
        raise InvalidValue(f"expected a path in the body such as body.value, found '{name[:100]}'", *under)
    return tuple(steps)


KINDS: dict[str, Callable[[Any, str, Reader, Place], list[Obligation]]] = {
    "rateLimit": _rate_limit,
    "maxBytes": _max_bytes,
    "limitByNumberOfEntries": _number_of_entries,
    "limitByConditionOfEntries": _condition_of_entries,
    "set": _set,
    "remove": _remove,
    "redirect": _redirect,
    "log": _log,
    "notify": _notify,
}
# These have an effect only on messages that are delivered.
ON_PERMIT = KINDS.keys() - {"log", "notify"}
