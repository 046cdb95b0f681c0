"""
Streams in the spool: next to the sessions, through compaction and a disk that fails for long.
"""

from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock

from msgnode.links.stream.storage.spool_store import FIRST_SID, SpoolStreamStore, is_stream
from msgnode.links.stream.storage.store import STATE_VERSION, PeerState, StoredPeer, UnreadableState
from msgnode.sessions.journal import DeliveryJournal
from msgnode.storage import spool
from msgnode.storage.spool import Spool
from tests.support.links_stream import FakeNet, StreamNode

B = "mn://b.example/1"


class Disk:
    """
    A spool with streams in it, which can be opened again.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = Clock()
        self.open()

    def open(self) -> None:
        self.spool = Spool(self.directory)
        self.found = self.spool.open()
        nothing: Any = lambda *args: None  # noqa: E731
        self.journal = DeliveryJournal(
            self.spool, 1 << 30, nothing, nothing, nothing, self.clock, lambda: self.clock.seconds() + 1000
        )
        self.store = SpoolStreamStore(self.journal)

    def again(self) -> list[StoredPeer]:
        """
        Kill the node and start it again; returns what the store has recovered.
        """
        self.spool.close()
        self.open()
        return list(self.store.recover(self.found))


@pytest.fixture
def disk(tmp_path):
    disk = Disk(tmp_path)
    yield disk
    disk.spool.close()


def test_entries_counts_and_epochs_are_recovered(disk):
    """
    A restart finds what was sent and not acknowledged, what waits, the counts, and the inbound journal.
    """
    state = PeerState(B, (b"i" * 16, 3), b"m" * 16, (b"j" * 16, 9), [1] * 10)
    disk.store.state(1, state)
    for key, number in ((1, 1), (2, 2), (3, 3), (4, 0)):
        disk.store.keep(1, 5, key, b"body %d" % key, 60.0, number)
    disk.store.acknowledged(1, 5, 1)
    disk.store.received(1, 7, 12, [4, 6])
    disk.store.keep_inbound(1, 7, 9, b"inbound", 30.0)
    disk.spool.flush()

    peer = disk.again()[0]

    assert (peer.state.node, peer.state.sending, peer.state.receiving) == (B, state.sending, state.receiving)
    assert [(entry.key, entry.number, entry.until) for entry in peer.sending] == [
        (2, 2, 60),
        (3, 3, 60),
        (4, 0, 60),
    ]
    assert peer.counts == {7: (12, [4, 6])}
    assert [disk.store.read(entry.place, entry.size) for entry in peer.inbound] == [b"inbound"]
    assert peer.state.numbers[5] == 4
    assert peer.last_key == 9


def test_a_batch_that_was_not_written_is_no_part_of_the_state(disk):
    """
    A message of a session and the count of the stream that brought it are on disk together, or neither is.
    """
    disk.store.state(1, PeerState(B, None, b"", (b"j" * 16, 9)))
    disk.store.received(1, 5, 1, [])
    disk.spool.flush()
    disk.spool.append(1, 1, b"for a session", float("inf"), 5, 0, 0)
    disk.store.received(1, 5, 2, [])

    peer = disk.again()[0]

    assert peer.counts == {5: (1, [])}
    assert 1 not in disk.found


def test_the_records_of_streams_are_apart_from_those_of_sessions(disk):
    """
    Streams have session numbers of their own, far above those of sessions.
    """
    disk.store.state(1, PeerState(B))
    disk.store.keep(1, 9, 1, b"x", 1.0, 0)
    disk.store.keep_inbound(1, 9, 1, b"x", 1.0)
    disk.spool.flush()
    disk.again()

    assert disk.found
    assert all(is_stream(sid) for sid in disk.found)
    assert not is_stream(1_000_000)
    assert min(disk.found) >= FIRST_SID


def test_a_peer_that_is_forgotten_is_gone(disk):
    """
    Nothing of a forgotten node is recovered.
    """
    disk.store.state(1, PeerState(B))
    disk.store.keep(1, 9, 1, b"x", 1.0, 0)
    disk.store.forget(1)
    disk.spool.flush()

    assert disk.again() == []


def test_messages_whose_node_is_not_known_any_more_leave_the_disk(disk):
    """
    Messages without the record of their node's name are dropped, and take no room of the spool.
    """
    disk.store.keep(1, 9, 1, b"to whom?", 1.0, 0)
    disk.store.keep_inbound(1, 9, 2, b"from whom?", 1.0)
    disk.spool.flush()

    assert disk.again() == []
    assert disk.spool.live == 0


def test_the_state_of_a_newer_version_is_refused_in_words(disk):
    """
    A node that cannot read what a newer one wrote says so, and drops nothing.
    """
    disk.store.state(1, PeerState(B, version=STATE_VERSION + 1))
    disk.store.keep(1, 9, 1, b"x", 1.0, 0)
    disk.spool.flush()

    with pytest.raises(UnreadableState, match=r"a newer msgnode.*version 2.*reads up to 1"):
        disk.again()

    assert disk.spool.live == 1


def test_a_state_that_is_none_is_refused_in_words(disk):
    """
    Bytes that are no state of a stream are named as such.
    """
    disk.spool.state(FIRST_SID + 64 + 63, b'{"runtime": "x"}')
    disk.spool.flush()

    with pytest.raises(UnreadableState, match="cannot be read"):
        disk.again()


def test_nothing_counts_as_written_while_others_append(disk):
    """
    A call that waits for the disk does not see as written what another such call has just appended.
    """
    seen: list[int] = []
    disk.store.received(1, 5, 1, [])
    disk.journal.when_written(lambda: seen or disk.store.received(1, 5, 2, []))
    disk.store.when_written(lambda: seen.append(disk.spool.offset))

    disk.journal.settle()
    disk.journal.settle()

    assert seen == [0]


def test_compaction_keeps_what_streams_need(tmp_path):
    """
    A message that waits for a week survives the deletion of the segment it was written to, with all counts.
    """
    net = FakeNet()
    options = {"segment_bytes": 5_000, "slack": 5_000}
    a = StreamNode(net, "mn://a.example/1", tmp_path / "a", **options)
    b = StreamNode(net, B, tmp_path / "b", **options)
    c = StreamNode(net, "mn://c.example/1")
    a.send(b.name, b"first")
    net.run(1)
    net.set_route(a.name, b.name, False)
    a.send(b.name, b"waits")
    first = min((tmp_path / "a" / "spool").glob("*.seg"))
    for number in range(300):
        a.send(c.name, b"%d" % number)
        net.run(0.5, 0.25)

    a.restart()
    b.restart()
    net.set_route(a.name, b.name, True)
    net.run(3)

    assert not first.exists()
    assert b.payloads == [b"first", b"waits"]
    a.kill()
    b.kill()


def test_a_disk_that_failed_for_long_gets_everything_again(tmp_path, monkeypatch):
    """
    When the buffer of a full disk was dropped, all that streams have is written once there is room.
    """
    monkeypatch.setattr(spool, "MAX_BUFFERED_BYTES", 5_000)
    net = FakeNet()
    a = StreamNode(net, "mn://a.example/1", tmp_path / "a")
    b = StreamNode(net, B, tmp_path / "b")
    a.send(b.name, b"first")
    net.run(1)
    a.disk.full = True
    sent = [b"%d " % number + bytes(100) for number in range(100)]
    for payload in sent:
        a.send(b.name, payload)
        net.run(0.5, 0.25)

    a.disk.full = False
    net.run(10)
    before = len(b.payloads)
    a.restart()
    net.run(10)

    assert before == 101
    assert b.payloads == [b"first", *sent]
    assert all(outcomes == ["acknowledged"] for outcomes in map(a.reasons, a.sent))
    a.kill()
    b.kill()
