"""
`body.auth` is the node's word, however a sender writes its message.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.protocol.body_edit import set_auth_flag
from msgnode.protocol.errors import Malformed
from msgnode.protocol.message import decode

HEADER = '"id":1,"type":"x","from":"a:1","to":"b:1"'
keys = st.text(max_size=4) | st.sampled_from(["auth", "body", "id", '"auth":true', "\\", "{", "}"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | keys,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    "text",
    [
        "{HEADER}",
        '{HEADER,"body":null}',
        '{HEADER,"body":{}}',
        '{HEADER,"body":{ }}',
        '{HEADER,"body":{"auth":true}}',
        r'{HEADER,"body":{"\u0061uth":true}}',
        '{HEADER,"body":{"auth":true,"auth":true}}',
        '{ HEADER , "body" : { "x" : 1 } }\n',
        '{"body":{"x":1},HEADER}',
        '{"body":{},"more":{"body":{}},HEADER}',
        '{HEADER,"body":{"a":1},"more":{"body":{"a":1}}}',
        r'{HEADER,"body":{"text":"\ud83d"}}',
        r'{HEADER,"body":{"auth":1,"text":"\ud83d"}}',
        r'{HEADER,"body":{"auth":1,"n":1e400,"text":"\ud83d"}}',
        r'{"body":{"auth":1,"text":"\ud83d"},"n":-1e400,HEADER}',
    ],
)
@pytest.mark.parametrize("permitted", [True, False])
def test_whatever_the_spelling_the_field_is_set_once(text: str, permitted: bool) -> None:
    """
    Whatever the spelling, the field is set once, and all else is as it was.
    """
    text = text.replace("HEADER", HEADER)
    message = decode(text.encode())

    set_auth_flag(message, permitted)

    was, now = json.loads(text), json.loads(message.data)
    assert now == {**was, "body": {**(was.get("body") or {}), "auth": permitted}}
    assert bytes(message.data).count(b'"auth"') == 1
    assert b"Infinity" not in message.data
    assert message.fields(lossy=True)["auth"] is permitted


def test_no_number() -> None:
    """
    What is no number of JSON makes no message, beside half a character either.
    """
    text = f'{{{HEADER},"body":{{"n":Infinity,"text":"\\ud83d"}}}}'

    with pytest.raises(Malformed):
        decode(text.encode())


@given(
    st.dictionaries(keys, values, max_size=4),
    st.dictionaries(keys, values, max_size=2),
    st.booleans(),
    st.data(),
)
def test_any_body_is_found_among_any_fields(
    body: dict, more: dict, permitted: bool, data: st.DataObject
) -> None:
    """
    Any body among any other fields, in any order, with or without spaces.
    """
    header = {"id": 1, "type": "x", "from": "a:1", "to": "b:1", "body": body}
    known = {*header, "priority", "ttl", "receipt"}
    fields = {**{key: value for key, value in more.items() if key not in known}, **header}
    order = data.draw(st.permutations(list(fields)))
    whole = {key: fields[key] for key in order}
    text = json.dumps(
        whole, separators=data.draw(st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : ")]))
    )
    message = decode(text.encode())

    set_auth_flag(message, permitted)

    assert json.loads(message.data) == {**whole, "body": {**body, "auth": permitted}}
