"""
The trace context in the header of a message.
"""

import json
from typing import Any

import pytest

from msgnode.protocol.trace_context import trace_context

CONTEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def message(**fields: Any) -> bytes:
    return json.dumps({"id": 1, "type": "read", "from": "a://b/c", "to": "d://e/f", **fields}).encode()


def test_is_read_from_the_header() -> None:
    """
    Wherever it stands there.
    """
    assert CONTEXT == trace_context(message(traceparent=CONTEXT))
    assert CONTEXT == trace_context(message(body={"traceparent": "x"}, traceparent=CONTEXT))


def test_of_the_body_is_not_read() -> None:
    """
    The body is the clients' own.
    """
    assert "" == trace_context(message(body={"traceparent": CONTEXT}))


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "x",
        7,
        None,
        [],
        CONTEXT.upper(),
        f"ff{CONTEXT[2:]}",
        f"{CONTEXT}\n",
        "00-" + "0" * 32 + CONTEXT[35:],
        "00-é",
    ],
    ids=repr,
)
def test_that_is_invalid_counts_for_none(wrong: object) -> None:
    """
    It reaches the recipient, but no log.
    """
    assert "" == trace_context(message(traceparent=wrong))


def test_of_a_long_message_is_not_decoded() -> None:
    """
    That would hold the node for a log.
    """
    assert "" == trace_context(message(traceparent=CONTEXT, body={"value": "x" * 65536}))
