"""
Policy documents: their JSON, with all errors and their places.

A document is a list of policy sets, as in JACPoL, or an object with `policySets`, and optionally `name`,
`version`, `groups` and `tests`.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from msgnode.policy.decision.context import Context
from msgnode.policy.decision.problems import InvalidValue, Place, PolicyRefused, Problem, pointer
from msgnode.policy.language import test_vectors
from msgnode.policy.language.positions import first_repeated, lines_and_columns
from msgnode.structures.error_words import near, shown

DOCUMENT = ("name", "version", "description", "groups", "policySets", "tests")
SET = (
    "id",
    "version",
    "update",
    "target",
    "policies",
    "policyCombiningAlgorithm",
    "obligations",
    "priority",
)
POLICY = ("id", "target", "rules", "ruleCombiningAlgorithm", "obligations", "priority")
RULE = ("id", "target", "condition", "effect", "obligations", "priority")
OURS = ("enforce", "description")


class Document:
    """
    A policy document: its text, its JSON value, and the errors and warnings found so far.
    """

    def __init__(self, data: bytes, where: str, is_ours: bool = True) -> None:
        self.where = where
        self.text = _text(data, where)
        self.value = _value(self.text, where)
        self._problems: list[tuple[Place, str]] = []
        self._lints: list[tuple[Place, str]] = []
        if not isinstance(self.value, list | dict):
            self.refuse((), f"expected a list of policy sets, found {shown(self.value)}")
            self.value = []
        if is_ours and isinstance(self.value, dict):
            self._check_top(self.value)

    def refuse(self, place: Place, text: str) -> None:
        self._problems.append((place, text))

    def advise(self, place: Place, text: str) -> None:
        self._lints.append((place, text))

    @property
    def problems(self) -> list[Problem]:
        return self._placed(self._problems)

    @property
    def lints(self) -> list[Problem]:
        return self._placed(self._lints)

    def _placed(self, said: list[tuple[Place, str]]) -> list[Problem]:
        """
        Errors or warnings with line and column, in the order of the text, without duplicates.
        """
        if not said:
            return []
        found = lines_and_columns(self.text, {place for place, _ in said})
        made = {Problem(pointer(place), *found[place], text, self.where): None for place, text in said}
        return sorted(made, key=lambda problem: (problem.line, problem.column))

    # -- keys other than the sets -------------------------------------------------

    def _check_top(self, top: dict[str, Any]) -> None:
        for key in top:
            if key not in DOCUMENT:
                looks_like_set = "policies" in top or "rules" in top
                hint = "; policy sets stand in a list: [{...}]" if looks_like_set else near(key, DOCUMENT)
                self.refuse((key,), f"unknown key '{key[:100]}'{hint or '; keys are ' + ', '.join(DOCUMENT)}")
        if not isinstance(top.get("policySets", []), list):
            self.refuse(("policySets",), f"expected a list of policy sets, found {shown(top['policySets'])}")
        if "name" in top and not isinstance(top["name"], str):
            self.refuse(("name",), f"expected a text, found {shown(top['name'])}")
        version = top.get("version", 0)
        if not isinstance(version, int) or isinstance(version, bool) or version < 0:
            self.refuse(
                ("version",), f"expected a number that grows with each change, found {shown(version)}"
            )
        if not isinstance(top.get("tests", []), list):
            self.refuse(("tests",), f"expected a list, found {shown(top['tests'])}")

    def check_tests(self, decide: Callable[[Context], Any]) -> None:
        """
        Report each test of the document that does not decide as it expects.
        """
        for number, vector in enumerate(self.of_top("tests", [])):
            try:
                why = test_vectors.fails(decide, vector)
            except InvalidValue as wrong:
                self.refuse(("tests", number, *wrong.under), str(wrong))
            else:
                if why:
                    self.refuse(("tests", number), f"this test fails: {why}")

    @property
    def sets(self) -> tuple[Place, list[Any]]:
        if isinstance(self.value, list):
            return (), self.value
        sets = self.value.get("policySets", [])
        return ("policySets",), sets if isinstance(sets, list) else []

    def of_top(self, key: str, default: Any) -> Any:
        """
        The value of a key at the top of the document.
        """
        return self.value.get(key, default) if isinstance(self.value, dict) else default

    def groups(self) -> dict[str, frozenset[str]]:
        """
        The groups that the document defines.
        """
        groups = self.of_top("groups", {})
        if not isinstance(groups, dict):
            self.refuse(("groups",), f'expected an object such as {{"family": [...]}}, found {shown(groups)}')
            return {}
        found = {}
        for name, members in groups.items():
            if not isinstance(members, list) or not all(isinstance(each, str) for each in members):
                self.refuse(("groups", name), f"expected a list of texts, found {shown(members)}")
                members = []
            found[name] = frozenset(members)
        return found


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as why:
        before = data[: why.start]
        line, column = before.count(b"\n") + 1, why.start - before.rfind(b"\n")
        raise PolicyRefused([Problem("", line, column, "is not UTF-8 here", where)]) from None


def _value(text: str, where: str) -> Any:
    """
    The JSON value of a text. PolicyRefused if it is not JSON, or an object has a key twice.
    """
    twice: list[str] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(found)
        if len(made) < len(found):
            keys = [key for key, _ in found]
            twice.extend(key for key in made if keys.count(key) > 1)
        return made

    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=_refuse_constant)
    except json.JSONDecodeError as why:
        raise PolicyRefused([Problem("", why.lineno, why.colno, _not_json(why, text), where)]) from None
    except RecursionError:
        raise PolicyRefused([Problem("", 1, 1, "nested too deeply", where)]) from None
    except ValueError as why:
        raise PolicyRefused([Problem("", 1, 1, f"not JSON: {why}"[:200], where)]) from None
    if twice:
        raise PolicyRefused([_said_twice(text, key, where) for key in dict.fromkeys(twice)])
    return value


def _not_json(why: json.JSONDecodeError, text: str) -> str:
    if not text.strip():
        return "the file is empty; a policy without rules is []"
    if why.pos >= len(text.rstrip()) or why.msg.startswith("Unterminated string"):
        return f"not JSON: the file ends in the middle; {why.msg[0].lower()}{why.msg[1:]}"
    if text.lstrip().startswith("<"):
        return "not JSON: this looks like HTML"
    return f"not JSON: {why.msg[0].lower()}{why.msg[1:]}"


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


def _said_twice(text: str, key: str, where: str) -> Problem:
    place, line, column = first_repeated(text, key)
    return Problem(pointer(place), line, column, f"'{key[:100]}' occurs twice in one object", where)


def all_groups(documents: list[Document], given: Mapping[str, Any] | None) -> dict[str, frozenset[str]]:
    """
    The groups of all documents, and those that are managed separately.
    """
    groups = {name: frozenset(members) for name, members in (given or {}).items()}
    for document in documents:
        for name, members in document.groups().items():
            if name in groups and groups[name] != members:
                document.refuse(
                    ("groups", name), f"group '{name[:100]}' is defined elsewhere with other members"
                )
            groups[name] = members
    return groups
