"""
Acknowledged delivery of messages that the data plane carries: numbered, kept and recovered as Python's own.
"""

from pathlib import Path
from typing import Any

import pytest

from msgnode.sessions.queue import FOREVER
from msgnode.storage.spool_records import KEEP_HERE
from tests.support.durable import Counting, DurableNode

BOB, CARL = "runtime://example.org/bob", "runtime://example.org/carl"


@pytest.fixture
def node(tmp_path: Path) -> DurableNode:
    limits = {"message_bytes": 1000}
    return DurableNode(tmp_path, limits=limits, session={"queue_messages": 10, "queue_bytes": 1000})


def carry(node: Any, client: Counting, *messages: bytes) -> tuple[int, int]:
    """
    Give the node's parts the messages to this client, as the data plane does; returns the room.
    """
    journal, outbox = node.sessions.journal, node.sessions.get(client.runtime).mailbox.outbox
    sid, key, number = outbox.take_numbers(len(messages))
    base, records, offsets = journal.carried_offset(), b"", []
    for at, data in enumerate(messages):
        records += KEEP_HERE.pack(8, sid, key + at, len(data), FOREVER, 5, 0, number + at)
        offsets.append(len(records))
        records += data
    assert base >= 0
    journal.append_carried(records, sum(map(len, messages)))
    room: tuple[int, int] = outbox.keep_carried(key, list(messages), offsets)
    return room


def message(number: int) -> bytes:
    return b'{"id":%d,"type":"update","from":"%s","to":"%s"}' % (number, CARL.encode(), BOB.encode())


def client(node: DurableNode) -> Counting:
    bob = Counting(node, BOB)
    bob.connect()
    return bob


def test_room(node: DurableNode) -> None:
    """
    The room is what the outbox may still send, in messages and bytes; none while it is full.
    """
    bob = client(node)

    assert carry(node, bob, b"x" * 100, b"y" * 100) == (8, 800)
    assert carry(node, bob, b"z" * 800) == (0, 0)


def test_sent_again(node: DurableNode) -> None:
    """
    A client that was sent messages by the data plane, and has not got them, gets them on its next connection,
    between those that Python sent, in order.
    """
    bob = client(node)
    carl = node.client(CARL)
    carl.tell(message(1))
    carry(node, bob, message(2), message(3))
    node.settle()
    carl.tell(message(4))

    bob.lose()
    bob.connect()
    bob.arrive()

    assert [each["id"] for each in bob.got] == [1, 2, 3, 4]
    assert bob.missed == 0


def test_kept_through_a_kill(node: DurableNode) -> None:
    """
    What the journal has written of them is there after a kill, with its numbers.
    """
    bob = client(node)
    carry(node, bob, message(1), message(2))
    node.settle()
    carry(node, bob, message(3))  # never written, so it has not left either

    bob.node, bob.wire = node.killed(), None
    bob.connect()
    bob.arrive()

    assert [each["id"] for each in bob.got] == [1, 2]


def test_lost(node: DurableNode) -> None:
    """
    If messages are lost between the data plane and the outbox, the client learns at its `re-open` that some
    may be missing, gets all that are unacknowledged, and its numbers are right from then on.
    """
    bob = client(node)
    carry(node, bob, message(1))
    mailbox = node.sessions.get(BOB).mailbox  # type: ignore[union-attr]
    assert mailbox.outbox is not None
    mailbox.outbox.take_numbers(1)

    mailbox.lose_carried()
    bob.lose()
    node.settle()
    bob.connect()
    bob.arrive()
    node.client(CARL).tell(message(3))
    bob.arrive()

    assert [each["id"] for each in bob.got] == [1, 3]
    assert bob.told["missed"] is None


def test_full_disk(node: DurableNode) -> None:
    """
    If the disk is full, the connections that were about to get them are closed; the client gets them when
    the disk has room again.
    """
    bob = client(node)
    node.disk.full = True
    carry(node, bob, message(1))
    node.settle()
    assert bob.wire is not None and bob.wire.lost is not None

    bob.lose()
    bob.connect()
    node.disk.full = False
    node.clock.advance(2)
    node.settle()
    node.clock.advance(2)
    bob.arrive()

    assert [each["id"] for each in bob.got] == [1]


def test_overrun(tmp_path: Path) -> None:
    """
    If so much waits for a full disk that the records are dropped, the messages stay in memory.
    """
    node = DurableNode(tmp_path, session={"queue_bytes": 100_000_000})
    bob = client(node)
    node.disk.full = True
    carry(node, bob, b"x" * 17_000_000)
    node.settle()
    node.clock.advance(2)
    carry(node, bob, message(2))

    outbox = node.sessions.get(BOB).mailbox.outbox  # type: ignore[union-attr]

    assert outbox is not None
    assert node.spool.overrun
    assert [kept.size for kept in outbox.sent] == [17_000_000, len(message(2))]
    assert all(kept.data is not None for kept in outbox.sent)
    assert outbox.sent[1].place == 0


def test_counted_input(node: DurableNode) -> None:
    """
    Messages from a client that the data plane carried are acknowledged when the journal has written it.
    """
    bob = client(node)
    inbox = node.sessions.get(BOB).mailbox.inbox  # type: ignore[union-attr]
    assert inbox is not None and inbox.is_current

    inbox.count_carried(64)
    assert bob.wire is not None and bob.wire.on_its_way == []
    node.settle()

    assert b'"received":64' in bob.wire.on_its_way[-1]
