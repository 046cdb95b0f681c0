"""
Close codes, and the reasons that clients read.
"""

from msgnode.protocol.close_codes import STOPPING


def test_reason_names_the_node_that_has_the_session() -> None:
    """
    The reason of a node that stops has the URL of the session's new node at its end, also when the delay is
    spread; without one it is as it was.
    """
    closing = STOPPING.at("wss://n2.example.org/ws").spread(0.5)

    assert closing.reason == "going away; retry_after=1.5; node=wss://n2.example.org/ws"
    assert (closing.code, closing.retry_after, closing.node) == (1001, 1.5, "wss://n2.example.org/ws")
    assert STOPPING.reason == "going away; retry_after=1"
