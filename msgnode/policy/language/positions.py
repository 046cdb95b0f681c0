"""
Line and column of the parts of a JSON text, computed only for error messages.
"""

import json
import re
from collections.abc import Iterator

from msgnode.policy.decision.problems import Place

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def lines_and_columns(text: str, places: set[Place]) -> dict[Place, tuple[int, int]]:
    """
    Line and column, from 1, of each place: of its key in an object, else of its value.

    For a place that is not in the text, the position of the nearest part around it.
    """
    wanted = {place[:length] for place in places for length in range(len(place) + 1)}
    found: dict[Place, int] = {}
    for _, place, offset in _walk(text):
        if place in wanted:
            found[place] = offset  # of a key that occurs twice, the last one counts
            if len(found) == len(wanted):
                break
    return {place: _position(text, _nearest(place, found)) for place in places}


def first_repeated(text: str, key: str) -> tuple[Place, int, int]:
    """
    The place, line and column of the first key of that name that occurs a second time in its object.
    """
    seen: set[tuple[int, Place]] = set()
    for opened, place, offset in _walk(text):
        if place and place[-1] == key and isinstance(place[-1], str):
            if (opened, place) in seen:
                return place, *_position(text, offset)
            seen.add((opened, place))
    return (), 1, 1


def _nearest(place: Place, found: dict[Place, int]) -> int:
    while place and place not in found:
        place = place[:-1]
    return found.get(place, 0)


def _position(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _walk(text: str) -> Iterator[tuple[int, Place, int]]:
    """
    The places in a JSON text: the offset of the object, the path, and the offset of the part.
    """
    opened: list[int] = []
    path: list[str | int] = []
    kinds: list[str] = []
    is_key = False
    for match in _TOKEN.finditer(text):
        token, offset = match[0], match.start()
        if token in "}]":
            kinds.pop()
            opened.pop()
            path.pop()
            is_key = False
        elif token == ",":
            if kinds[-1] == "[":
                path[-1] = int(path[-1]) + 1
            is_key = kinds[-1] == "{"
        elif token == ":":
            is_key = False
        elif is_key:
            path[-1] = _text(token)
            yield opened[-1], tuple(path), offset
        else:
            if not kinds or kinds[-1] == "[":
                yield (opened[-1] if opened else 0), tuple(path), offset
            if token in "{[":
                kinds.append(token)
                opened.append(offset)
                path.append("" if token == "{" else 0)
                is_key = token == "{"


def _text(token: str) -> str:
    return str(json.loads(token)) if "\\" in token else token[1:-1]
