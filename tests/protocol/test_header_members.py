"""
Where the members of a header stand, and which key stands twice; beside a reader that looks at each key.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from header_mutation.compare import check
from header_mutation.reference import ACCEPTED, DUPLICATE
from hypothesis import example, given, settings
from hypothesis import strategies as st

from msgnode.protocol.header_members import DuplicateKey, check_keys, members

TWICE = (
    rb'{"from":":","body":{":::::::":[],":\"\u00fc":[{"\"":-10,"body":null}]},'
    rb'"id":-1,"type":"","to":"","to":""}'
)

_odd = st.text(alphabet='b"\\:,{} ü\ud83d', max_size=6) | st.sampled_from(
    ["body", "to", '"body":', '","body":{}', "\\ud83d", 'x"body']
)
_whole = _odd.map(lambda text: text.replace("\ud83d", "/"))


def _values(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | st.integers(-12, 12) | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=5,
    )


_by_key = {
    "id": st.integers(-9, 9) | _whole,
    "type": _whole,
    "from": _whole,
    "to": _whole | st.lists(_whole, min_size=1, max_size=2),
    "body": st.none() | st.dictionaries(_odd, _values(_odd), max_size=3),
    "ttl": st.none() | st.integers(0, 9),
    "log": st.booleans(),
    "transaction": st.none() | st.integers(-9, 9) | _whole,
    "token": _values(_whole),
}
_known = st.sampled_from(sorted(_by_key)).flatmap(lambda key: st.tuples(st.just(key), _by_key[key]))
_unknown = st.tuples(_whole.filter(lambda key: key not in _by_key), _values(_whole))
_required = st.tuples(*(st.tuples(st.just(key), _by_key[key]) for key in ("id", "type", "to")))
_spaces = st.text(alphabet=" \t\r\n", max_size=2)


def _spelt(key: str, every: int) -> str:
    """
    The key as JSON, every so many of its characters an escape; none with 0.
    """
    if not every:
        return json.dumps(key, ensure_ascii=False)
    pieces = [
        f"\\u{ord(each):04x}" if at % every == 0 else json.dumps(each, ensure_ascii=False)[1:-1]
        for at, each in enumerate(key)
    ]
    return f'"{"".join(pieces)}"'


@st.composite
def headers(draw: Callable[[Any], Any]) -> tuple[list[str], bytes]:
    """
    The keys of a message, some twice perhaps, and its bytes in any order and spelling.
    """
    pairs = draw(st.permutations([*draw(_required), *draw(st.lists(_known | _unknown, max_size=3))]))
    ascii = draw(st.booleans())
    spelt = []
    for key, value in pairs:
        before, after, comma = draw(_spaces), draw(_spaces), draw(st.sampled_from([",", ", "]))
        written = json.dumps(value, separators=(comma, ":" + after)).encode()
        if not ascii:
            written = written.replace(b"\\u00fc", "ü".encode())
        name = _spelt(key, draw(st.sampled_from([0, 0, 1, 2]))).encode()
        spelt.append(before.encode() + name + after.encode() + b":" + before.encode() + written)
    return [key for key, _ in pairs], b"{" + b",".join(spelt) + b"}"


@given(headers())
@example((["from", "body", "id", "type", "to", "to"], TWICE))
@settings(deadline=None, max_examples=150)
def test_beside_a_slow_reader(header: tuple[list[str], bytes]) -> None:
    """
    A key that stands twice is refused by its name, nothing else is, and all parts of the node read the same.
    """
    keys, data = header

    assert check(data) == (ACCEPTED if len(set(keys)) == len(keys) else DUPLICATE)


def test_places() -> None:
    """
    Each member with its name as it is meant, and its value as it is spelt.
    """
    data = b' {"a" : 1 ,\n"b\\u0022": [",", {"a":2}],"\xc3\xbc":"x"} '

    found = members(data)

    assert [member.name for member in found] == ["a", 'b"', "ü"]
    assert [data[each.start : each.end] for each in found] == [b"1", b'[",", {"a":2}]', b'"x"']
    assert [data[each.key : each.key + 2] for each in found] == [b'"a', b'"b', b'"\xc3']
    assert [data[each.after : each.key] for each in found] == [b" {", b" ,\n", b","]


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (b'{"a":1,"a":1}', "a"),
        (b'{"a":12,"a":1}', "a"),
        (b'{"a":1,"a":12}', "a"),
        (b'{"a":{"a":1},"b":2,"\\u0061":{"a":1}}', "a"),
        (b'{"a":[],"b":2,"b":3,"c":[]}', "b"),
        (b'{"a":"","b\\\\":"","b\\u005c":""}', "b\\"),
    ],
)
def test_twice(data: bytes, key: str) -> None:
    """
    The key is named, by either check.
    """
    for look in (members, check_keys):
        with pytest.raises(DuplicateKey) as twice:
            look(data)
        assert twice.value.key == key
