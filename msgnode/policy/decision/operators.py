"""
The operators: each converts its parameter to a test of a value.

A test never raises: a value of the wrong type does not match. Errors in a parameter are raised when the
policy is loaded.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from msgnode.policy.decision.addresses import split
from msgnode.policy.decision.attribute import WEEKDAYS, Attribute
from msgnode.policy.decision.attributes import ALIASES, TABLE
from msgnode.policy.decision.problems import InvalidValue
from msgnode.policy.decision.values import glob, number_of, scalars, text_of, to_text, under_of
from msgnode.structures.error_words import near, shown

Check = Callable[[Any], bool]
Groups = Mapping[str, frozenset[str]]
MAX_KEYS = 10_000  # of one test in the index


class Test(Struct, frozen=True):
    """
    A compiled test: an operator with its parameter.

    `missing` is the result if there is no value. `keys` are the only texts for which it can be true, if they
    are known; `hosts` the only hosts of an address.
    """

    check: Check
    missing: bool = False
    keys: frozenset[str] | None = None
    hosts: frozenset[str] | None = None
    lint: str = ""


# -- the operators -----------------------------------------------------------


def _equals(attribute: Attribute, parameter: Any, groups: Groups) -> Test:
    items = scalars(parameter, "a text, a number, true or false")
    if "*" in items:
        return Test(lambda value: True, missing=True)
    return _one_of(
        attribute,
        frozenset(to_text(attribute, item, *under_of(parameter, i)) for i, item in enumerate(items)),
    )


def _in(attribute: Attribute, parameter: Any, groups: Groups) -> Test:
    if isinstance(parameter, str):
        if parameter not in groups:
            hint = near(parameter, groups) or (
                "; groups are " + ", ".join(sorted(groups)[:10]) if groups else "; no groups are defined"
            )
            example = json.dumps([parameter], ensure_ascii=False)[:80]
            raise InvalidValue(f"unknown group {shown(parameter)}{hint}; for a value write a list: {example}")
        return _one_of(attribute, frozenset(map(attribute.fold, groups[parameter])))
    if not isinstance(parameter, list):
        raise InvalidValue(f"expected a list or the name of a group, found {shown(parameter)}")
    if not parameter:
        return Test(lambda value: False, keys=frozenset(), lint="is never true: the list is empty")
    items = scalars(parameter, "a text, a number, true or false")
    return _one_of(attribute, frozenset(to_text(attribute, item, i) for i, item in enumerate(items)))


def _one_of(attribute: Attribute, wanted: frozenset[str]) -> Test:
    keys = wanted if len(wanted) <= MAX_KEYS else None
    if attribute.is_text:
        return Test(wanted.__contains__, keys=keys, hosts=_hosts(attribute, wanted))
    if attribute.kind == "names":
        return Test(lambda value: not wanted.isdisjoint(value), keys=keys)
    return Test(lambda value: text_of(value) in wanted, keys=keys)


def _hosts(attribute: Attribute, addresses: frozenset[str]) -> frozenset[str] | None:
    """
    The hosts of these addresses, if each has one; else None.
    """
    if attribute.kind != "address" or len(addresses) > MAX_KEYS:
        return None
    hosts = frozenset(split(address)[1] for address in addresses)
    return None if "" in hosts else hosts


def _exists(attribute: Attribute, parameter: Any, groups: Groups) -> Test:
    if not isinstance(parameter, bool):
        raise InvalidValue(f"expected true or false, found {shown(parameter)}")
    if attribute.kind == "names":
        return Test(lambda value: bool(value) is parameter, missing=not parameter)
    return Test(lambda value: parameter, missing=not parameter)


def _compared(above: bool) -> Callable[[Attribute, Any, Groups], Test]:
    def make(attribute: Attribute, parameter: Any, groups: Groups) -> Test:
        if attribute.kind == "weekday":
            raise InvalidValue('days have no order; write {"between": "Monday Friday"}')
        if attribute.kind in ("time", "date"):
            items = scalars(parameter, f"a {attribute.kind}")
            bounds = [to_text(attribute, item, *under_of(parameter, i)) for i, item in enumerate(items)]
            # With several bounds, the easiest one decides.
            bound = min(bounds) if above else max(bounds)
            return Test((lambda value: value > bound) if above else (lambda value: value < bound))
        numbers = [
            _number(item, *under_of(parameter, i)) for i, item in enumerate(scalars(parameter, "a number"))
        ]
        limit = min(numbers) if above else max(numbers)

        def check(value: Any) -> bool:
            number = number_of(value)
            return number is not None and (number > limit if above else number < limit)

        return Test(check)

    return make


def _number(item: Any, *under: str | int) -> float:
    number = number_of(item)
    if number is None or math.isinf(number):
        raise InvalidValue(f"expected a number, found {shown(item)}", *under)
    return number


def _between(attribute: Attribute, parameter: Any, groups: Groups) -> Test:
    example = {"time": "08:00 18:00", "date": "2026-11-01 2026-11-30", "weekday": "Monday Friday"}.get(
        attribute.kind, "1 5"
    )
    what = f"start and end as one text, such as '{example}'"
    items = parameter if isinstance(parameter, list) else [parameter]
    if isinstance(parameter, list) and len(items) == 2 and not any(_is_range(item) for item in items):
        raise InvalidValue(f'expected {what}; found a list: write "{text_of(items[0])} {text_of(items[1])}"')
    if not items:
        raise InvalidValue(f"expected {what}, or a list of those, found []")
    checks, lint = [], ""
    for position, item in enumerate(items):
        under = under_of(parameter, position)
        if not _is_range(item):
            raise InvalidValue(f"expected {what}, found {shown(item)}", *under)
        check, empty = _range(attribute, *item.split(), *under)
        lint = lint or empty
        checks.append(check)
    if len(checks) == 1:
        return Test(checks[0], lint=lint)
    return Test(lambda value: any(check(value) for check in checks), lint=lint)


def _is_range(item: Any) -> bool:
    return isinstance(item, str) and len(item.split()) == 2


def _range(attribute: Attribute, start: str, end: str, *under: str | int) -> tuple[Check, str]:
    """
    The test for one range, and a warning about it.
    """
    if attribute.kind == "weekday":
        first, last = (WEEKDAYS.index(to_text(attribute, day, *under)) for day in (start, end))
        days = {WEEKDAYS[(first + step) % 7] for step in range((last - first) % 7 + 1)}
        return days.__contains__, ""
    if attribute.kind in ("time", "date"):
        low, high = to_text(attribute, start, *under), to_text(attribute, end, *under)
        if attribute.kind == "time" and low > high:
            return (lambda value: value > low or value < high), ""
        empty = "" if low < high else "is never true: nothing lies between its bounds"
        return (lambda value: low < value < high), empty
    least, most = _number(start, *under), _number(end, *under)

    def check(value: Any) -> bool:
        number = number_of(value)
        return number is not None and least < number < most

    return check, "" if least < most else "is never true: nothing lies between its bounds"


def _contains(attribute: Attribute, parameter: Any, groups: Groups) -> Test:
    items = scalars(parameter, "a text or a number")
    wanted = [attribute.fold(text_of(item) or "") for item in items]
    known = frozenset(wanted)

    def check(value: Any) -> bool:
        if value.__class__ is str:
            return any(part in value for part in wanted)
        if value.__class__ is frozenset:
            return not known.isdisjoint(value)
        return value.__class__ is list and any(text_of(item) in known for item in value)

    return Test(check)


def _like(attribute: Attribute, parameter: Any, groups: Groups) -> Test:
    items = scalars(parameter, "a pattern such as 'hyperty://example.org/*'")
    patterns = [attribute.fold(text_of(item) or "") for item in items]
    matches = [glob(pattern) for pattern in patterns]

    def check(value: Any) -> bool:
        if value.__class__ is list or value.__class__ is frozenset:
            return any(check(item) for item in value if item.__class__ is not list)
        text = text_of(value)
        return text is not None and any(match(text) for match in matches)

    plain = [pattern for pattern in patterns if "*" not in pattern]
    lint = (
        f"{plain[0]!r} has no '*', so it must be the whole text; write equals, or '*{plain[0]}*'"
        if plain
        else ""
    )
    return Test(check, hosts=_pattern_hosts(attribute, patterns), lint=lint)


def _pattern_hosts(attribute: Attribute, patterns: list[str]) -> frozenset[str] | None:
    if attribute.kind != "address":
        return None
    hosts = set()
    for pattern in patterns:
        beginning, star, _ = pattern.partition("*")
        if star and beginning.count("/") < 3:
            return None  # the host may continue after the star
        hosts.add(split(beginning)[1])
    return None if "" in hosts else frozenset(hosts)


OPERATORS: dict[str, Callable[[Attribute, Any, Groups], Test]] = {
    "equals": _equals,
    "in": _in,
    "moreThan": _compared(above=True),
    "lessThan": _compared(above=False),
    "between": _between,
    "contains": _contains,
    "like": _like,
    "exists": _exists,
}
_OLD_NAMES = {"greaterThan": "moreThan", "sumOf": ""}


def make(name: str, attribute: Attribute, parameter: Any, groups: Groups) -> Test:
    """
    The test for an operator and its parameter. InvalidValue if either is invalid.
    """
    operator = OPERATORS.get(name)
    if operator is not None:
        return operator(attribute, parameter, groups)
    if name in TABLE or name in ALIASES:
        raise InvalidValue(f"'{name}' is an attribute; an operator such as equals was expected")
    hint = f", did you mean '{_OLD_NAMES[name]}'?" if _OLD_NAMES.get(name) else near(name, OPERATORS)
    raise InvalidValue(f"unknown operator '{name[:100]}'{hint or '; operators are ' + ', '.join(OPERATORS)}")
