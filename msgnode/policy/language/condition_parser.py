"""
The parser of targets and conditions: JSON becomes conditions; errors are reported with their places.
"""

import json
from collections.abc import Callable
from typing import Any

from msgnode.policy.decision import attributes, operators
from msgnode.policy.decision.attribute import Attribute
from msgnode.policy.decision.conditions import ALWAYS, AnyOf, AttributeTest, Condition, Not, both
from msgnode.policy.decision.operators import OPERATORS, Groups
from msgnode.policy.decision.problems import InvalidValue, Place
from msgnode.policy.language.compile_cache import Diagnostics
from msgnode.structures.error_words import near, shown

DEEPEST = 100  # steps from the top of the document
WORDS = ("not", "allOf", "anyOf")


class Reader:
    """
    Parses conditions, and collects errors and warnings with their places.
    """

    def __init__(
        self,
        groups: Groups,
        refuse: Callable[[Place, str], None],
        notes: Diagnostics,
    ) -> None:
        self.notes = notes
        self._groups = groups
        self._refuse = refuse

    def condition(self, value: Any, place: Place) -> Condition:
        """
        Parse a target or a condition.
        """
        if len(place) > DEEPEST:
            self._refuse(place, "nested too deeply")
            return ALWAYS
        if isinstance(value, list):
            return _any_of([self.condition(item, (*place, i)) for i, item in enumerate(value)])
        if not isinstance(value, dict):
            self._refuse(place, f"expected a condition as an object or a list, found {shown(value)}")
            return ALWAYS
        return both([self._entry(str(key), value[key], (*place, str(key))) for key in value])

    def condition_of_field(self, name: str, value: Any, place: Place) -> Condition:
        """
        Parse a test of one attribute.
        """
        return self._entry(name, value, place)

    def _entry(self, key: str, value: Any, place: Place) -> Condition:
        if key in WORDS:
            return self._word(key, value, place, self.condition, "a condition")
        if key in OPERATORS:
            example = f'{{"actionType": {{"{key}": ...}}}}'
            self._refuse(place, f"'{key}' is an operator; an attribute was expected, as in {example}")
            return ALWAYS
        try:
            attribute = attributes.find(key)
        except InvalidValue as why:
            text, word = str(why), near(key, WORDS)
            self._refuse(
                place, f"unknown attribute '{key}'{word}" if word and "did you" not in text else text
            )
            return ALWAYS
        self.notes.attributes.add(attribute.name)
        return self._expression(attribute, value, place)

    def _expression(self, attribute: Attribute, value: Any, place: Place) -> Condition:
        if len(place) > DEEPEST:
            self._refuse(place, "nested too deeply")
            return ALWAYS
        if isinstance(value, list):
            if not value:
                self._refuse(place, "expected at least one test, found []")
            return _any_of([self._expression(attribute, each, (*place, i)) for i, each in enumerate(value)])
        if not isinstance(value, dict):
            hint = "" if value is None else f'; write {{"equals": {_json(value)}}}'
            self._refuse(place, f'expected a test such as {{"equals": ...}}, found {shown(value)}{hint}')
            return ALWAYS
        parts = []
        for key, parameter in value.items():
            under = (*place, str(key))
            if key in WORDS:
                what = f"a test of {attribute.name}"
                parts.append(
                    self._word(key, parameter, under, lambda v, p: self._expression(attribute, v, p), what)
                )
            else:
                parts.append(self._test(attribute, str(key), parameter, under))
        return both(parts)

    def _word(
        self, word: str, value: Any, place: Place, read: Callable[[Any, Place], Condition], what: str
    ) -> Condition:
        """
        Parse `not`, `allOf` or `anyOf` of conditions, or of tests of one attribute.
        """
        if value == [] or not isinstance(value, dict | list):
            self._refuse(place, f"'{word}' needs {what} or a list of them, found {shown(value)}")
            return ALWAYS
        several = isinstance(value, list)
        parts = [read(each, (*place, i)) for i, each in enumerate(value)] if several else [read(value, place)]
        if word == "allOf":
            return both(parts)
        return Not(_any_of(parts)) if word == "not" else _any_of(parts)

    def _test(self, attribute: Attribute, operator: str, parameter: Any, place: Place) -> Condition:
        try:
            made = operators.make(operator, attribute, parameter, self._groups)
        except InvalidValue as why:
            text = str(why)
            hint = (
                near(operator, WORDS) if text.startswith("unknown operator") and "did you" not in text else ""
            )
            self._refuse((*place, *why.under), text.replace("; operators are", f"{hint}; operators are"))
            return ALWAYS
        if isinstance(parameter, str) and parameter in self._groups:
            self.notes.groups.add(parameter)
        if made.lint:
            self.notes.advise(place, made.lint)
        return AttributeTest(attribute, operator, parameter, made)


def _any_of(parts: list[Condition]) -> Condition:
    if len(parts) < 2:
        return parts[0] if parts else ALWAYS
    # If one part is always true, so is the whole.
    return ALWAYS if ALWAYS in parts else AnyOf(parts)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:80]
