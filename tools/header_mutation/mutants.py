"""
Mutants: messages in several spellings, with a few bytes, values or keys changed, moved or repeated.
"""

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")

PLAIN = {"id": 1, "type": "update", "from": "a://b/c", "to": "d://e/f"}
TOKEN = "mns_" + "aA0_-" * 8 + "xyz"
_BODIES: tuple[dict[str, Any] | None, ...] = (
    {},
    None,
    {"value": "x" * 40},
    {"value": "x" * 600},
    {"a": [1, -2.5e-3, True, None, {"b": ["é", "\\", '"', ""]}], "body": {"to": "x"}},
    {"v": "\ud83d", "to": "\\ud83d"},
    {"auth": True, "via": "s://t/" + TOKEN, "assertedIdentity": {"userURL": "u"}},
)
_SPELLINGS = ((",", ":"), (", ", ": "), (" ,\n", " :\t"))


def _seeds() -> list[bytes]:
    found = []
    for comma, colon in _SPELLINGS:
        for body in _BODIES:
            for message in ({**PLAIN, "body": body}, {"body": body, **PLAIN}):
                found.append(json.dumps(message, separators=(comma, colon)))
        more = {"priority": 3, "ttl": 2.5, "receipt": True, "bulk": False, "log": False, "forward": True}
        found += [
            json.dumps({**fields, **PLAIN, **last}, separators=(comma, colon), ensure_ascii=False)
            for fields in ({}, more, {"x": {"body": {"to": "ü"}}, "transaction": "T"}, {"id": "7"})
            for last in ({"to": ["a:1", "b:2"]}, {"token": TOKEN}, {"transaction": 5, "body": {"é": 1}})
        ]
    found.append(
        '{"from":":","body":{":::::::":[],":\\"\\u00fc":[{"\\"":-10,"body":null}]},"id":-1,"type":"","to":""}'
    )
    found.append(
        '{"body":{"q":1,"q":1,"q":1,"q":1,"z":":::::","body":null},"id":1,"type":"","from":"f","to":""}'
    )
    return [text.encode() for text in found]


SEEDS = _seeds()
# Bytes that matter to a reader, as they are and spelt otherwise.
PIECES = [bytes([byte]) for byte in b'"\\{}[],: \n01-e.']
PIECES += [
    b"null",
    b"true",
    b"\\u0022",
    b"\\u005c",
    b"\\ud83d",
    b"\\ud83d\\ude00",
    b"\\\\",
    b'\\"',
    b"\xc3\xa9",
]
PIECES += [
    b"\x7f",
    b"\x00",
    b"01",
    b"1.",
    b"-0",
    b"1e5",
    b"{}",
    b"[]",
    b'""',
    b'"a"',
    b'"body":',
    b'","body":{}',
]
# Members: keys that stand there already, or look like one that does, and values that fit a key or none.
_TEXTS = (b'""', b'"a"', b'"\\""', b'":"', b'"\\\\ud83d"', b'"\\u0041\\u00e9"')
_FLAGS = (b"true", b"false")
_NUMBERS = (b"1", b"12", b"0", b"9")
_BODIES_SPELT = (
    b"{}",
    b'{"a":1}',
    b'{"to":"x","to":1}',
    b"null",
    b'{"v":"\\ud83d"}',
    b'{ "body" : {"a":1} }',
)
_STRANGE = (
    b"-1",
    b"0.5",
    b"1e400",
    b"[]",
    b'"\\ud83d"',
    b'"b","c"',
    b'[{"to":"a","to":"b"}]',
    b"12345678901234567890",
)
_FITTING: dict[bytes, Sequence[bytes]] = {
    b"id": _TEXTS + _NUMBERS,
    b"type": _TEXTS,
    b"from": _TEXTS,
    b"to": (*_TEXTS, b'["a","b"]', b'["\\""]'),
    b"body": _BODIES_SPELT,
    b"ttl": (*_NUMBERS, b"0.5"),
    b"priority": (b"0", b"9", b"null"),
    b"receipt": _FLAGS,
    b"log": _FLAGS,
    b"forward": _FLAGS,
    b"bulk": _FLAGS,
    b"token": _TEXTS + _BODIES_SPELT + _STRANGE,
    b"transaction": (*_TEXTS, *_NUMBERS, b"-1", b"null"),
}
_OTHERS = (b"x", b"", b"auth", b"via", b'x\\"body', b"\\\\", b"\\u00e9", b"\\ud83d", b":", b"bodys", b"To")
_KEYS = (*_FITTING, *_OTHERS)
_VALUES = _TEXTS + _FLAGS + _NUMBERS + _BODIES_SPELT + _STRANGE


def mutant(random: Random) -> bytes:
    """
    The next one; it is UTF-8, as connectors demand.
    """
    while True:
        data = _one(random, SEEDS)
        for _ in range(_one(random, (1, 1, 1, 2, 2, 3))):
            data = _one(random, CHANGES)(random, data)
        try:
            data.decode()
        except UnicodeDecodeError:
            continue
        return data


def _one(random: Random, many: Sequence[T]) -> T:
    return many[int(random.random() * len(many))]


def _at(random: Random, data: bytes) -> int:
    return int(random.random() * (len(data) + 1))


def _insert(random: Random, data: bytes) -> bytes:
    at = _at(random, data)
    return data[:at] + _one(random, PIECES) + data[at:]


def _replace(random: Random, data: bytes) -> bytes:
    at = _at(random, data)
    return data[:at] + _one(random, PIECES) + data[at + _one(random, (1, 1, 2, 5)) :]


def _delete(random: Random, data: bytes) -> bytes:
    at = _at(random, data)
    return data[:at] + data[at + _one(random, (1, 1, 2, 5)) :]


def _repeat(random: Random, data: bytes) -> bytes:
    at, start = _at(random, data), _at(random, data)
    return data[:at] + data[start : start + _one(random, (3, 10, 30))] + data[at:]


def _swap(random: Random, data: bytes) -> bytes:
    first, second, third = sorted(_at(random, data) for _ in range(3))
    return data[:first] + data[second:third] + data[first:second] + data[third:]


def _escape(random: Random, data: bytes) -> bytes:
    """
    Spell one character as an escape.
    """
    at = _at(random, data)
    return (
        data[:at] + b"".join(b"\\u%04x" % byte for byte in data[at : at + 1] if byte < 128) + data[at + 1 :]
    )


def _key(random: Random, key: bytes) -> bytes:
    if key.isalpha() and random.random() < 0.3:
        at = int(random.random() * len(key))
        key = key[:at] + b"\\u%04x" % key[at] + key[at + 1 :]
    return b'"%s"' % key


def _member(random: Random, data: bytes) -> bytes:
    """
    One member more: first, last, or behind a comma, of the header or not.
    """
    colon = _one(random, (b":", b":", b" :", b":\n"))
    key = _one(random, _KEYS)
    values = _FITTING[key] if key in _FITTING and random.random() < 0.8 else _VALUES
    member = _key(random, key) + colon + _one(random, values)
    where = random.random()
    if where < 0.4:
        return data[:-1] + _one(random, (b",", b", ", b" ,\t")) + member + data[-1:]
    if where < 0.6:
        return data[:1] + member + b"," + data[1:]
    at = data.find(b",", _at(random, data)) + 1
    return data[:at] + member + b"," + data[at:] if at else data


def _rename(random: Random, data: bytes) -> bytes:
    """
    Another key in the place of one.
    """
    at = data.find(b'"', _at(random, data))
    end = data.find(b'"', at + 1)
    return data[:at] + _key(random, _one(random, _KEYS)) + data[end + 1 :] if 0 <= at < end else data


CHANGES: tuple[Callable[[Random, bytes], bytes], ...] = (
    _member,
    _member,
    _member,
    _rename,
    _rename,
    _insert,
    _replace,
    _delete,
    _repeat,
    _swap,
    _escape,
)
