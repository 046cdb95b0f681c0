"""
The importer of PoliTHINK policies, the language of runtime-core and of the Vert.x node.

A part without an equivalent here is an error with its place.
"""

import json
from typing import Any

from msgnode.policy.decision.attribute import WEEKDAYS
from msgnode.policy.decision.problems import Place, PolicyRefused
from msgnode.policy.language.document import Document
from msgnode.structures.error_words import near, shown

_ATTRIBUTES = {
    "source": "srcUsername",
    "domain": "srcIDPDomain",
    "scheme": "srcScheme",
    "type": "body.value.resourceType",
    "resourceType": "body.value.resourceType",
    "time": "time",
    "date": "date",
    "weekday": "weekday",
}
_OPERATORS = {
    "in": "in",
    "equals": "equals",
    "like": "like",
    "between": "between",
    "greaterThan": "moreThan",
    "moreThan": "moreThan",
    "lessThan": "lessThan",
    "contains": "contains",
}
_ALGORITHMS = ("blockOverrides", "allowOverrides", "firstApplicable")
# In PoliTHINK, `scheme` exists only for data objects.
_NO_OBJECTS = ["domain", "global", "hyperty", "runtime", "user", "mn"]


def convert(data: bytes, where: str = "") -> str:
    """
    The equivalent JACPoL document. PolicyRefused lists what has no equivalent.
    """
    document = Document(data, where, is_ours=False)
    sets = _Converter(document).document(document.value)
    if document.problems:
        raise PolicyRefused(document.problems)
    return json.dumps(sets)


class _Converter:
    def __init__(self, document: Document) -> None:
        self._refuse = document.refuse

    def document(self, value: Any) -> list[Any]:
        """
        Convert one policy, a list of policies, or an object with a policy for each key.
        """
        if isinstance(value, dict) and "rules" in value:
            policies = [self._policy(value, (), 0)]
        elif isinstance(value, dict):
            policies = [self._policy(each, (key,), i) for i, (key, each) in enumerate(value.items())]
        else:
            policies = [self._policy(each, (i,), i) for i, each in enumerate(value)]
        return [
            {
                "id": "imported",
                "version": 1,
                "update": "",
                "target": {},
                "policyCombiningAlgorithm": "blockOverrides",
                "obligations": {},
                "priority": 0,
                "policies": policies,
            }
        ]

    def _policy(self, value: Any, place: Place, position: int) -> dict[str, Any]:
        if not isinstance(value, dict) or not isinstance(value.get("rules"), list):
            self._refuse(place, f"expected a policy with 'key' and 'rules', found {shown(value)}")
            return {}
        algorithm = value.get("combiningAlgorithm") or "blockOverrides"
        if algorithm not in _ALGORITHMS:
            hint = near(algorithm, _ALGORITHMS)
            self._refuse((*place, "combiningAlgorithm"), f"unknown algorithm {shown(algorithm)}{hint}")
        if value.get("actions"):
            text = "actions never ran in a messaging node; remove them, or write an obligation by hand"
            self._refuse((*place, "actions"), text)
        rules = [self._rule(rule, (*place, "rules", i), i) for i, rule in enumerate(value["rules"])]
        return {
            "id": value.get("key", position),
            "target": {},
            "ruleCombiningAlgorithm": algorithm,
            "obligations": {},
            "priority": position,
            "rules": rules,
        }

    def _rule(self, value: Any, place: Place, position: int) -> dict[str, Any]:
        if not isinstance(value, dict) or "condition" not in value:
            self._refuse(place, f"expected a rule with 'condition' and 'decision', found {shown(value)}")
            return {}
        scope = value.get("scope", "global")
        if scope != "global":
            text = f"a rule of scope {shown(scope)} belongs to a runtime; a node knows only global ones"
            self._refuse((*place, "scope"), text)
        decision = value.get("decision")
        if not isinstance(decision, bool):
            self._refuse((*place, "decision"), f"expected true or false, found {shown(decision)}")
        return {
            "id": position,
            "target": {},
            "condition": self._condition(value["condition"], (*place, "condition")),
            "effect": "permit" if decision else "deny",
            "obligations": {},
            "priority": position,  # in PoliTHINK, the order of the list counts
        }

    def _condition(self, value: Any, place: Place) -> Any:
        if isinstance(value, dict):
            return self._test(value, place)
        if not isinstance(value, list) or not value:
            self._refuse(place, f'expected a test or a list such as ["and", ..., ...], found {shown(value)}')
            return {}
        word, parts = value[0], value[1:]
        made = [self._condition(part, (*place, i)) for i, part in enumerate(parts, 1)]
        if word in ("and", "or") and len(made) == 2:
            return {"allOf" if word == "and" else "anyOf": made}
        if word == "not" and len(made) == 1:
            return {"not": made[0]}
        self._refuse(
            place, f'expected ["and", a, b], ["or", a, b] or ["not", a], found {shown(word)} with {len(made)}'
        )
        return {}

    def _test(self, value: dict[str, Any], place: Place) -> Any:
        name, operator = value.get("attribute"), value.get("operator")
        if name == "subscription":
            self._refuse(
                (*place, "attribute"),
                "'subscription' asks the runtime's registry, which a node does not have",
            )
            return {}
        if not isinstance(name, str) or name not in _ATTRIBUTES:
            known = [*_ATTRIBUTES]
            hint = near(name, known) or "; attributes are " + ", ".join(known)
            self._refuse((*place, "attribute"), f"unknown attribute {shown(name)}{hint}")
            return {}
        if not isinstance(operator, str) or operator not in _OPERATORS:
            hint = near(operator, _OPERATORS) or "; operators are " + ", ".join(_OPERATORS)
            self._refuse((*place, "operator"), f"unknown operator {shown(operator)}{hint}")
            return {}
        parameter = self._parameter(name, operator, value.get("params"), (*place, "params"))
        made = {_ATTRIBUTES[name]: {_OPERATORS[operator]: parameter}}
        if name == "scheme":
            return {"allOf": [made, {"srcScheme": {"not": {"in": _NO_OBJECTS}}}]}
        return made

    def _parameter(self, name: str, operator: str, value: Any, place: Place) -> Any:
        items = value if isinstance(value, list) else [value]
        written = [self._value(name, item, place) for item in items]
        if operator == "between":
            if len(written) != 2:
                self._refuse(place, f"expected start and end, found {shown(value)}")
            return " ".join(map(str, written))
        return written if isinstance(value, list) else written[0]

    def _value(self, name: str, item: Any, place: Place) -> Any:
        """
        A time, date or weekday in the format of JACPoL; other values are unchanged.
        """
        text = str(item)
        if name == "time" and text.isdigit() and len(text) <= 4:
            text = text.zfill(4)
            return f"{text[:2]}:{text[2:]}"
        if name == "date" and len(parts := text.split("/")) == 3:
            day, month, year = parts
            return f"{year:0>4}-{month:0>2}-{day:0>2}"
        if name == "weekday" and text in "0123456" and len(text) == 1:
            return WEEKDAYS[int(text) - 1].capitalize()  # in PoliTHINK, 0 is Sunday
        if name in ("time", "date", "weekday"):
            expected = {"time": "HHmm", "date": "DD/MM/YYYY", "weekday": "a number from 0 (Sunday) to 6"}[
                name
            ]
            self._refuse(place, f"expected {expected}, found {shown(item)}")
        return item
