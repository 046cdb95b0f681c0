"""
A scanner of JSON (RFC 8259) that knows the position of each key and value.
"""

import re
from typing import Any, NamedTuple

from msgspec import Struct

from msgnode.records.problems import SyntaxRefused

MAX_NESTED = 64  # objects and lists within each other
MAX_DIGITS = 400  # of a number
_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS = {"true": True, "false": False, "null": None}


class Position(NamedTuple):
    """
    A line and a column, from 1.
    """

    line: int
    column: int


class Node(Struct):
    """
    A value and its position; of an object also the positions of its keys, and the keys that occur again.
    """

    value: Any
    at: Position
    keys: dict[str, Position] = {}
    repeated: list[tuple[str, Position]] = []


def scan(text: str) -> Node:
    """
    The value of a JSON text as nodes: dicts and lists have nodes in them. SyntaxRefused if it is not JSON.
    """
    scanner = _Scanner(text)
    node = scanner.value(0)
    scanner.space()
    if scanner.offset < len(text):
        raise scanner.refused(f"expected the end of the file, found {scanner.found()}")
    return node


class _Scanner:
    """
    The state of one scan: the offset of the next character, and where its line begins.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.offset = 0
        self._line = 1
        self._line_start = 0

    def at(self) -> Position:
        return Position(self._line, self.offset - self._line_start + 1)

    def found(self) -> str:
        if self.offset >= len(self.text):
            return "the end of the file"
        return repr(self.text[self.offset])

    def refused(self, text: str) -> SyntaxRefused:
        return SyntaxRefused(text, *self.at())

    def space(self) -> None:
        match = _SPACE.match(self.text, self.offset)
        assert match is not None
        end = match.end()
        lines = self.text.count("\n", self.offset, end)
        if lines:
            self._line += lines
            self._line_start = self.text.rindex("\n", self.offset, end) + 1
        self.offset = end

    def skip(self, character: str) -> bool:
        self.space()
        if self.text.startswith(character, self.offset):
            self.offset += 1
            return True
        return False

    def value(self, depth: int) -> Node:
        self.space()
        at = self.at()
        character = self.text[self.offset : self.offset + 1]
        if character in "{[" and character:
            if depth >= MAX_NESTED:
                raise self.refused(f"more than {MAX_NESTED} objects and lists within each other")
            self.offset += 1
            return self._object(at, depth + 1) if character == "{" else self._list(at, depth + 1)
        if character == '"':
            return Node(self._string(), at)
        for word, value in _WORDS.items():
            if self.text.startswith(word, self.offset):
                self.offset += len(word)
                return Node(value, at)
        return Node(self._number(), at)

    def _object(self, at: Position, depth: int) -> Node:
        made = Node({}, at, {}, [])
        if self.skip("}"):
            return made
        while True:
            self.space()
            key_at = self.at()
            if not self.text.startswith('"', self.offset):
                raise self.refused(f"expected a key in quotes, found {self.found()}")
            key = self._string()
            if not self.skip(":"):
                raise self.refused(f"expected ':' after the key, found {self.found()}")
            value = self.value(depth)
            if key in made.value:
                made.repeated.append((key, key_at))
            else:
                made.value[key] = value
                made.keys[key] = key_at
            if self.skip("}"):
                return made
            if not self.skip(","):
                raise self.refused(f"expected ',' or '}}', found {self.found()}")

    def _list(self, at: Position, depth: int) -> Node:
        made = Node([], at)
        if self.skip("]"):
            return made
        while True:
            made.value.append(self.value(depth))
            if self.skip("]"):
                return made
            if not self.skip(","):
                raise self.refused(f"expected ',' or ']', found {self.found()}")

    def _number(self) -> int | float:
        match = _NUMBER.match(self.text, self.offset)
        if match is None:
            raise self.refused(f"expected a value, found {self.found()}")
        text = match[0]
        if len(text) > MAX_DIGITS:
            raise self.refused(f"a number of more than {MAX_DIGITS} characters")
        self.offset = match.end()
        return float(text) if set(text) & set(".eE") else int(text)

    def _string(self) -> str:
        self.offset += 1
        parts = []
        while True:
            match = _PLAIN.match(self.text, self.offset)
            assert match is not None
            parts.append(match[0])
            self.offset = match.end()
            character = self.text[self.offset : self.offset + 1]
            if character == '"':
                self.offset += 1
                return "".join(parts)
            if character != "\\":
                raise self.refused(f"expected the end of the text, found {self.found()}")
            parts.append(self._escape())

    def _escape(self) -> str:
        letter = self.text[self.offset + 1 : self.offset + 2]
        if letter != "u":
            if letter not in _ESCAPES:
                raise self.refused(f"'\\{letter}' is not an escape of JSON")
            self.offset += 2
            return _ESCAPES[letter]
        code = self._code()
        if 0xD800 <= code < 0xDC00 and self.text.startswith("\\u", self.offset + 6):
            first = self.offset
            self.offset += 6
            low = self._code()
            if 0xDC00 <= low < 0xE000:
                self.offset += 6
                return chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00))
            self.offset = first
        self.offset += 6
        return chr(code)  # a lone surrogate is refused with the text that it is in

    def _code(self) -> int:
        match = _HEX.match(self.text, self.offset + 2)
        if match is None:
            raise self.refused("expected four hexadecimal digits after '\\u'")
        return int(match[0], 16)
