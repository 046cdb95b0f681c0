"""
Streams under faults that last: loss in one direction only, and a destination that is down for a week.
"""

from collections import Counter

import pytest

from msgnode.links.stream.common import StreamLimits
from msgnode.links.stream.streams import NoRoom
from tests.support.links_stream import FakeNet, StreamNode, pair

HOUR = 3600.0


@pytest.mark.parametrize("lossy", ["messages", "acknowledgements"])
def test_loss_in_one_direction(lossy):
    """
    Where a fifth of the datagrams of one direction are lost, all arrives within a minute, once and in order:
    a message that waits for a lost one does not count as a slow round trip.
    """
    net, a, b = pair(seed=7)
    source = a.name if lossy == "messages" else b.name
    net.tap = lambda datagram: None if datagram.source == source and net.random.random() < 0.2 else datagram

    sent = [a.send(b.name, b"%d" % number) for number in range(200)]
    net.run(60)

    assert b.payloads == [b"%d" % number for number in range(200)]
    assert all(a.reasons(each) == ["acknowledged"] for each in sent)


def test_a_direction_that_is_dead():
    """
    Where nothing comes back, nothing is delivered twice, and each sender is told once, in time.
    """
    net, a, b = pair()
    a.send(b.name, b"open")
    net.run(1)
    net.tap = lambda datagram: None if datagram.source == b.name else datagram

    sent = [a.send(b.name, b"%d" % number, ttl_millis=15_000) for number in range(100)]
    net.run(20)
    told = Counter(reason for each in sent for reason in a.reasons(each))
    net.tap = lambda datagram: datagram
    net.run(120)

    assert len(b.payloads) == len(set(b.payloads))
    assert told["stale"] > 50  # those that were never sent
    assert all(len(a.outcomes[each]) == 1 for each in sent)
    assert {reason for each in sent for reason in a.reasons(each)} <= {"stale", "acknowledged"}


def test_a_lane_does_not_wait_for_what_another_one_has_lost():
    """
    For ten seconds nothing arrives, and then one lane's probe comes first. What is sent in that lane is
    acknowledged from then on, and the other lane's probe follows within two seconds.
    """
    net, a, b = pair()
    a.send(b.name, b"open", priority=5)
    a.send(b.name, b"open", priority=9)
    net.run(1)
    net.tap = lambda datagram: None if datagram.source == a.name else datagram
    a.send(b.name, b"low", priority=5)
    net.run(0.3)
    a.send(b.name, b"high", priority=9)
    net.run(10)
    net.tap = lambda datagram: None if datagram.source == a.name and datagram.priority == 5 else datagram
    while b"high" not in b.payloads:
        net.run(0.05)

    net.tap = lambda datagram: datagram
    for _ in range(20):
        a.send(b.name, b"more", priority=9)
        net.run(0.1)

    assert b"low" in b.payloads


def test_a_destination_that_is_down_for_a_week(tmp_path):
    """
    What is sent to it stays within the bounds of the queue, also on disk. Each sender is told that there is
    no room, or that its message has become stale; what is younger than a day arrives in the end.
    """
    net = FakeNet()
    limits = StreamLimits(queue_messages=100, queue_bytes=1 << 20, memory_bytes=20_000)
    a = StreamNode(
        net, "mn://a.example/1", tmp_path / "a", segment_bytes=64 * 1024, slack=64 * 1024, limits=limits
    )
    b = StreamNode(net, "mn://b.example/1")
    a.send(b.name, b"open")
    net.run(1)
    net.set_route(a.name, b.name, False)
    kept, refused, most = [], 0, 0

    for hour in range(7 * 24):
        for number in range(20):
            fields = {"sender": f"s{number % 5}", "ttl_millis": int(23.5 * HOUR * 1000)}
            try:
                kept.append((hour, a.send(b.name, b"%d.%d" % (hour, number) + bytes(500), **fields)))
            except NoRoom:
                refused += 1
        net.flush(2)
        net.clock.advance(HOUR)
        most = max(most, len(a.streams.peers[b.name].outgoing))
    net.set_route(a.name, b.name, True)
    net.run(120)

    assert most <= 100
    assert refused > 2000
    young = [each for hour, each in kept if hour > 6 * 24]
    assert all(a.reasons(each) == ["acknowledged"] for each in young)
    assert all(a.reasons(each) == ["stale"] for hour, each in kept if hour < 6 * 24)
    assert len(b.payloads) == 1 + len(young) > 20
    assert sum(file.stat().st_size for file in (tmp_path / "a" / "spool").iterdir()) < 4 << 20
    a.kill()
