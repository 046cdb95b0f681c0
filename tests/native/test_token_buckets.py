"""
The plane's token buckets are those of the node's rate limits, number for number.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.sessions.limits.rate_limits import TokenBuckets

native = pytest.importorskip("msgnode_native", reason="msgnode_native is not built")


@given(
    messages=st.integers(0, 20),
    size=st.integers(0, 5000),
    steps=st.lists(st.tuples(st.floats(-0.5, 3), st.integers(1, 10_000)), max_size=60),
)
def test_a_bucket_has_room_when_the_nodes_has(messages: int, size: int, steps: list[tuple[float, int]]):
    """
    Whatever comes and whenever, both let the same messages pass and say the same wait.
    """
    now = 1_700_000_000.0
    buckets = TokenBuckets()
    buckets.set(messages, size)
    plane = native.Plane(None, None, None)
    plane.stop_clock(now)
    bucket = plane.add_bucket(messages, size)
    buckets.find("x", now)
    for passed, bytes_ in steps:
        now += passed
        plane.stop_clock(now)
        found = buckets.find("x", now)
        assert plane.draw([bucket], bytes_) == (found is not None)
        if found is not None:
            found.messages -= 1
            found.size -= bytes_
        assert plane.wait(bucket) == buckets.wait("x", now)
