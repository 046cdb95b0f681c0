"""
Attributes of definitions: reading them from nodes, in both forms that they may be written in.
"""

import re
from collections.abc import Iterable
from typing import Any

from msgnode.records.definition import MAX_NAME_CHARS
from msgnode.records.json_scanner import Node, Position
from msgnode.records.problems import Place, Problem
from msgnode.structures.error_words import near, shown

NAME = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*")
ENUM_VALUE = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*")
MAX_TEXT_CHARS = 10_000  # of a description
# XML 1.0 has no other characters, and a lone surrogate is none at all.
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,30})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,310})(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,3})?")
_EXACT = 2**53
_SPACES = re.compile(r"[ \t\r\n]+")


class Attributes:
    """
    The attributes of one object of a definition. Methods return a value, or note a problem and return None.

    `what` names the object in problems, for instance "slot".
    """

    def __init__(self, node: Node, what: str, where: str, problems: list[Problem]) -> None:
        self.node = node
        self.what = what
        self.where = where
        self.problems = problems
        for key, at in node.repeated:
            self.refuse(f"'{key}' occurs again in this {what}", at)

    def refuse(self, text: str, at: Position | None = None) -> None:
        line, column = at or self.node.at
        self.problems.append(Problem(Place(self.where, line, column), text))

    def place(self) -> Place:
        return Place(self.where, *self.node.at)

    def only(self, known: Iterable[str]) -> None:
        """
        Note attributes that are not among the known ones.
        """
        known = tuple(known)
        for key in self.node.value:
            if key not in known:
                self.refuse(
                    f"a {self.what} has no attribute {key[:80]!r}{near(key, known)}", self.node.keys[key]
                )

    def at(self, key: str) -> Position:
        found = self.node.value.get(key)
        return found.at if found is not None else self.node.at

    def get(self, key: str, needed: bool = False) -> Node | None:
        found: Node | None = self.node.value.get(key)
        if found is None and needed:
            self.refuse(f"this {self.what} has no '{key}'")
        return found

    def expected(self, key: str, expected: str, node: Node | None = None) -> None:
        node = node or self.node.value[key]
        value = node.value
        found = shown({} if value == {} else value)
        self.refuse(f"expected {expected} as '{key}', found {found}", node.at)

    def text(self, key: str, needed: bool = False) -> str | None:
        node = self.get(key, needed)
        if node is None:
            return None
        if not isinstance(node.value, str):
            self.expected(key, "a text", node)
            return None
        if (wrong := _UNWRITABLE.search(node.value)) is not None:
            self.refuse(f"'{key}' has the character U+{ord(wrong[0]):04X}, which XML cannot contain", node.at)
            return None
        if len(node.value) > MAX_TEXT_CHARS:
            self.refuse(f"'{key}' has {len(node.value)} characters, more than {MAX_TEXT_CHARS}", node.at)
            return None
        return node.value

    def description(self) -> str:
        """
        The description with one space in the place of white space, and a line break in the place of `^`.
        """
        text = _SPACES.sub(" ", self.text("description") or "")
        return "\n".join(line.strip(" ") for line in text.split("^")).strip("\n")

    def name(self, key: str, needed: bool = True) -> str | None:
        text = self.text(key, needed)
        if text is not None and (not NAME.fullmatch(text) or len(text) > MAX_NAME_CHARS):
            suggested = re.sub(r"_+", "_", re.sub(r"[^A-Z0-9]+", "_", _split(text).upper())).strip("_")
            hint = f", for instance '{suggested}'" if NAME.fullmatch(suggested) else ""
            self.expected(key, f"a name in UPPER_SNAKE of at most {MAX_NAME_CHARS} characters{hint}")
            return None
        return text

    def flag(self, key: str) -> bool | None:
        node = self.get(key)
        if node is None:
            return None
        value = (
            {"true": True, "false": False}.get(node.value, node.value)
            if isinstance(node.value, str)
            else node.value
        )
        if not isinstance(value, bool):
            self.expected(key, 'true or false, or "true" or "false"', node)
            return None
        return value

    def whole(self, key: str, low: int, high: int, needed: bool = False) -> int | None:
        node = self.get(key, needed)
        if node is None:
            return None
        value = whole(node.value)
        if value is None or not low <= value <= high:
            self.expected(key, f"a whole number from {low} to {high}", node)
            return None
        return value

    def number(self, key: str) -> int | float | None:
        node = self.get(key)
        if node is None:
            return None
        value = number(node.value)
        if value is None:
            self.expected(key, "a finite number", node)
        return value

    def one_of(self, key: str, known: Iterable[str], text: str) -> str | None:
        if text in known:
            return text
        known = tuple(known)
        self.refuse(
            f"unknown {key} {text[:80]!r}{near(text, known) or ', expected ' + ', '.join(known)}",
            self.at(key),
        )
        return None

    def words(self, key: str) -> list[tuple[str, Position]]:
        """
        The texts of a list, or the words of a text, with positions.
        """
        node = self.get(key)
        if node is None:
            return []
        if isinstance(node.value, list):
            for each in node.value:
                if isinstance(each.value, bool) or not isinstance(each.value, (str, int)):
                    self.expected(key, "a list of texts", each)
            return [(str(each.value), each.at) for each in node.value if isinstance(each.value, (str, int))]
        text = str(node.value) if type(node.value) is int else self.text(key)
        return [(word, node.at) for word in re.split(r"[\s,]+", text or "") if word]


def whole(value: Any) -> int | None:
    """
    A whole number, or the text of one.
    """
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = int(value)
    return value if type(value) is int else None


def number(value: Any) -> int | float | None:
    """
    A finite number, or the text of one; a float if a float does not have all its digits.
    """
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = int(value) if _WHOLE.fullmatch(value) else float(value)
    if type(value) is int and abs(value) < 10**308:
        return value if abs(value) <= _EXACT else float(value)
    return value if type(value) is float and abs(value) < float("inf") else None


def _split(text: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text[:200])
