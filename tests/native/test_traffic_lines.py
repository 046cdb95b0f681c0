"""
The lines that the plane adds to the traffic log are those that the node itself writes.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from msgnode.protocol.message import Message
from msgnode.storage.traffic_log import TrafficLog

native = pytest.importorskip("msgnode_native", reason="msgnode_native is not built")

texts = st.text(max_size=30) | st.text(alphabet='a"\\\n\x00é', min_size=500, max_size=530)
plain = st.text(
    alphabet=st.characters(exclude_characters='"\\', exclude_categories=("Cc", "Cs")), max_size=30
)


class Origin:
    """
    A connection, as far as a line names it.
    """

    def __init__(self, connector: str, peer: str) -> None:
        self.connector, self.peer = connector, peer


class Sender:
    """
    A session, as far as a line names it.
    """

    def __init__(self, runtime: str) -> None:
        self.runtime = runtime


def written(message: Message, session: Any, node: str, directory: Any) -> bytes:
    """
    The line that the node writes about the message.
    """
    log = TrafficLog(str(directory), node, Clock())
    log.startService()
    log.message(message, session)
    log.stopService()
    (path,) = directory.glob("*.jsonl")
    line = path.read_bytes()
    path.unlink()
    return line


@given(
    node=st.text(max_size=30),  # the name of a file, too
    session=texts,
    connector=st.sampled_from(["websocket", "line"]),
    peer=st.text(max_size=10),
    kind=texts,
    from_=texts,
    to=texts | st.integers(490, 1100).map(lambda size: "é" * size + " more"),
    id=st.integers(-(10**18) + 1, 10**18 - 1) | plain,
    recipients=st.integers(1, 1000),
    time=st.integers(1, 2**63),
    more=st.integers(0, 600),
    micros=st.integers(0, 2**40),
    transaction=st.none() | st.integers(-(10**18) + 1, 10**18 - 1) | plain,
)
def test_a_line_is_the_same(tmp_path_factory: pytest.TempPathFactory, **given: Any):
    """
    Whatever the texts of a line are, escaped or shortened, the bytes are the same.
    """
    names = ("node", "session", "connector", "peer", "kind", "from_", "to", "recipients", "time", "micros")
    node, session, connector, peer, kind, from_, to, recipients, time, micros = (
        given[name] for name in names
    )
    id = given["id"]
    header = {"id": id, "type": kind, "from": from_, "to": to}
    size = len(json.dumps(header, ensure_ascii=False).encode()) + given["more"]
    message = Message(
        id,
        kind,
        to,
        from_,
        transaction=given["transaction"],
        data=b"x" * size,
        origin=Origin(connector, peer),
        received_at=time,
    )
    message.outcome, message.recipients, message.waiting, message.handling_us = (
        "delivered",
        recipients,
        0,
        micros,
    )

    expected = written(message, Sender(session), node, tmp_path_factory.getbasetemp())

    token = json.dumps(id, ensure_ascii=False)
    transaction = ""
    if message.transaction is not None:
        transaction = json.dumps(message.transaction, ensure_ascii=False)
    line = native.traffic_line(
        node, session, connector, peer, kind, from_, to, recipients, time, token, size, micros, transaction
    )
    assert expected == line
