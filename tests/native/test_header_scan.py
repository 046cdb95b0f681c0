"""
The native scan of headers takes what the decoder takes, with the same values, or leaves it to Python.
"""

import json
from itertools import product
from typing import Any

import pytest
from header_mutation.command import Chunk, compared
from header_mutation.compare import Disagreement, check
from header_mutation.native_scan import check_scan
from header_mutation.reference import ACCEPTED
from hypothesis import given
from hypothesis import strategies as st

native = pytest.importorskip("msgnode_native", reason="msgnode_native is not built")

MUTANTS = 8000  # tools/mutate-headers --native tries millions
BODIES: tuple[Any, ...] = (
    {},
    None,
    {"value": "x" * 40},
    {"a": [1, -2.5e-3, True, None, {"b": ["é", "\\", '"', "\n", "😀"]}]},
    {"auth": True, "identity": {"assertion": "a.b.c"}, "assertedIdentity": None},
)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
texts = st.text(max_size=20)


def test_takes_every_plain_message():
    """
    Messages without anything unusual are not left to Python, with spaces or without.
    """
    plain = [
        json.dumps(
            {"id": 1, "type": "update", "from": "a://b/c", "to": "d://e/f", "body": body},
            separators=separators,
            ensure_ascii=ascii_only,
        ).encode()
        for body, separators, ascii_only in product(BODIES, ((",", ":"), (", ", ": ")), (True, False))
    ]

    assert [data for data in plain if not check_scan(data, ACCEPTED, native.scan)] == []


def test_agrees_with_the_decoder_on_mutants():
    """
    What the scan takes of messages with a few bytes changed, the decoder takes with the same values.
    """
    found = compared(Chunk(seed=16, number=0, size=MUTANTS, every=MUTANTS, native=True))

    assert found.disagreements == []
    assert found.taken_natively > MUTANTS // 30, "most mutants say nothing"


def test_scan_that_takes_too_much_is_found_out():
    """
    A scan that takes what is no message, or reads another value, is a disagreement.
    """
    data = b'{"id":1,"type":"x","from":"a","to":"b"}'
    found = native.scan(data)

    with pytest.raises(Disagreement, match="only the native scan takes it"):
        check_scan(data[:-1], "refused", lambda data: found)
    with pytest.raises(Disagreement, match="type, natively: 'y', not 'x'"):
        check_scan(data.replace(b"x", b"y"), ACCEPTED, lambda data: found)


@given(
    id=st.integers() | texts,
    type=texts,
    from_=texts,
    to=texts,
    body=st.none() | st.dictionaries(st.text(), values, max_size=4),
    separators=st.sampled_from([(",", ":"), (", ", ": ")]),
    ascii_only=st.booleans(),
    order=st.permutations(["id", "type", "from", "to", "body"]),
)
def test_agrees_with_the_decoder_on_any_message(
    id: Any,
    type: str,
    from_: str,
    to: str,
    body: Any,
    separators: tuple[str, str],
    ascii_only: bool,
    order: list[str],
):
    """
    Whatever a message says, and however it is spelt, the scan reads what the decoder reads.
    """
    fields = {"id": id, "type": type, "from": from_, "to": to, "body": body}
    fields = {name: fields[name] for name in order}
    text = json.dumps(fields, separators=separators, ensure_ascii=ascii_only)
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return  # half a character, and no reader gets to see it

    check_scan(data, check(data, readings=False), native.scan)
