"""
Compiled targets and conditions.

A condition has a test; `needs`, the values a message must have for it to be true, for the index; and an
explanation.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgnode.policy.decision import operators
from msgnode.policy.decision.attribute import UNTRACKED, Attribute
from msgnode.policy.decision.context import Context
from msgnode.policy.decision.operators import MAX_KEYS

# For each attribute, the only texts with which a condition can be true.
Needs = Mapping[str, frozenset[str]]
Explained = dict[str, Any]


class Condition:
    """
    The base class of conditions: `test`, `needs`, `explain`.

    `is_tracked`: does it read messages by Context.get alone, which notes what a decision depends on? A
    decision that tests another condition is made for each message by itself.
    """

    __slots__ = ("needs", "test")

    test: Callable[[Context], bool]
    needs: Needs

    def explain(self, context: Context) -> Explained:
        raise NotImplementedError

    @property
    def is_tracked(self) -> bool:
        return False

    @property
    def is_negative(self) -> bool:
        """
        Is the condition true for a message without any attributes?
        """
        return False


class Always(Condition):
    """
    The condition `{}`: always true.
    """

    __slots__ = ()

    def __init__(self) -> None:
        self.test = lambda context: True
        self.needs = {}

    @property
    def is_tracked(self) -> bool:
        return True

    def explain(self, context: Context) -> Explained:
        return {"test": "always", "result": True}


class AttributeTest(Condition):
    """
    A condition on one attribute with one operator.
    """

    __slots__ = ("attribute", "operator", "parameter")

    def __init__(self, attribute: Attribute, operator: str, parameter: Any, made: operators.Test) -> None:
        self.attribute = attribute
        self.operator = operator
        self.parameter = parameter
        check, missing = made.check, made.missing

        def test(context: Context) -> bool:
            value = context.get(attribute)
            return missing if value is None else check(value)

        self.test = test
        self.needs = {}
        if not missing and made.keys is not None:
            self.needs = {attribute.name: made.keys}
        if made.hosts is not None:
            host = "srcSPDomain" if attribute.name == "msgFrom" else "dstSPDomain"
            self.needs = {**self.needs, host: made.hosts}

    @property
    def is_tracked(self) -> bool:
        return True

    def explain(self, context: Context) -> Explained:
        value = context.get(self.attribute)
        found = sorted(value) if isinstance(value, frozenset) else value
        return {
            "attribute": self.attribute.name,
            "operator": self.operator,
            "parameter": self.parameter,
            "value": found,
            "result": self.test(context),
        }

    @property
    def is_negative(self) -> bool:
        return self.operator == "exists" and not self.parameter


class AllOf(Condition):
    """
    A condition that is true if all its parts are.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: list[Condition]) -> None:
        self.parts = parts
        self.test = _all([part.test for part in parts])
        needs: dict[str, frozenset[str]] = {}
        for part in parts:
            for name, keys in part.needs.items():
                if name not in needs or len(keys) < len(needs[name]):
                    needs[name] = keys
        self.needs = needs

    @property
    def is_tracked(self) -> bool:
        return all(part.is_tracked for part in self.parts)

    def explain(self, context: Context) -> Explained:
        return {"all": [part.explain(context) for part in self.parts], "result": self.test(context)}

    @property
    def is_negative(self) -> bool:
        return all(part.is_negative for part in self.parts)


class AnyOf(Condition):
    """
    A condition that is true if any of its parts is.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: list[Condition]) -> None:
        self.parts = parts
        self.test = _any([part.test for part in parts])
        self.needs = either([part.needs for part in parts])

    @property
    def is_tracked(self) -> bool:
        return all(part.is_tracked for part in self.parts)

    def explain(self, context: Context) -> Explained:
        return {"any": [part.explain(context) for part in self.parts], "result": self.test(context)}

    @property
    def is_negative(self) -> bool:
        return any(part.is_negative for part in self.parts)


class Not(Condition):
    """
    The negation of a condition.
    """

    __slots__ = ("part",)

    def __init__(self, part: Condition) -> None:
        self.part = part
        inner = part.test
        self.test = lambda context: not inner(context)
        self.needs = {}

    @property
    def is_tracked(self) -> bool:
        return self.part.is_tracked

    def explain(self, context: Context) -> Explained:
        return {"not": self.part.explain(context), "result": self.test(context)}

    @property
    def is_negative(self) -> bool:
        return not self.part.is_negative


ALWAYS = Always()


def noted(condition: Condition) -> Callable[[Context], bool]:
    """
    The test of a condition, which notes in the context if it may depend on anything.
    """
    if condition.is_tracked:
        return condition.test

    def test(context: Context) -> bool:
        context.consulted |= UNTRACKED
        return condition.test(context)

    return test


def either(several: list[Needs]) -> Needs:
    """
    The needs that all of several have in common, with the union of their values.
    """
    if not several:
        return {}
    needs: dict[str, frozenset[str]] = {}
    for name in several[0]:
        if all(name in each for each in several):
            keys = frozenset[str]().union(*(each[name] for each in several))
            if len(keys) <= MAX_KEYS:
                needs[name] = keys
    return needs


def both(parts: list[Condition]) -> Condition:
    """
    The conjunction of conditions, in its simplest form.
    """
    parts = [part for part in parts if part is not ALWAYS]
    if len(parts) < 2:
        return parts[0] if parts else ALWAYS
    return AllOf(parts)


def _all(tests: list[Callable[[Context], bool]]) -> Callable[[Context], bool]:
    if len(tests) == 2:
        first, second = tests
        return lambda context: first(context) and second(context)

    def test(context: Context) -> bool:
        for each in tests:  # noqa: SIM110  a generator would double the cost
            if not each(context):
                return False
        return True

    return test


def _any(tests: list[Callable[[Context], bool]]) -> Callable[[Context], bool]:
    def test(context: Context) -> bool:
        for each in tests:  # noqa: SIM110
            if each(context):
                return True
        return False

    return test


def holds(condition: Condition, test: Callable[[AttributeTest], bool | None]) -> bool | None:
    """
    The value of a condition if some tests are unknown (None). None if it depends on them.
    """
    if isinstance(condition, AttributeTest):
        return test(condition)
    if isinstance(condition, Not):
        inner = holds(condition.part, test)
        return None if inner is None else not inner
    if isinstance(condition, AllOf | AnyOf):
        decisive = isinstance(condition, AnyOf)
        found = set()
        for part in condition.parts:
            found.add(holds(part, test))
            if decisive in found:
                return decisive
        return None if None in found else not decisive
    return True
