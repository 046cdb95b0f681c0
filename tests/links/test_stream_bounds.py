"""
Streams are bounded: queues, memory, and how long a message may wait.
"""

import os

import pytest

from msgnode.links.stream.common import ENTRY_BYTES, StreamLimits
from msgnode.links.stream.streams import Envelope, NoRoom
from msgnode.links.wire.stream_header import MESSAGE, TOMBSTONE, decode
from tests.support.links_stream import FakeNet, StreamNode, Weather, pair

FAR = "mn://far.example/1"


def test_a_full_queue_refuses_the_newest():
    """
    A destination that is down gets a bounded queue: the next message is refused with 507, and nothing is
    kept.
    """
    _, a, _ = pair(limits=StreamLimits(queue_messages=10))
    for number in range(10):
        a.send(FAR, b"%d" % number)

    with pytest.raises(NoRoom) as refused:
        a.send(FAR, b"one too many")

    assert (refused.value.code, refused.value.reason) == (507, "overflow")
    assert len(a.streams.peers[FAR].outgoing) == 10


def test_a_queue_is_bounded_in_bytes():
    """
    Long messages fill a queue, too.
    """
    _, a, _ = pair(limits=StreamLimits(queue_bytes=10_000))
    a.send(FAR, bytes(9_000), compress=False)

    with pytest.raises(NoRoom):
        a.send(FAR, bytes(2_000), compress=False)


def test_all_destinations_together_are_bounded():
    """
    Many destinations that are down share one bound: the next message is refused with 507, until others leave.
    """
    net, a, b = pair(limits=StreamLimits(spool_bytes=10 * (ENTRY_BYTES + 500)))
    net.set_route(a.name, b.name, False)
    for number in range(9):
        a.send(f"mn://far{number}.example/1", bytes(100))
    a.send(b.name, bytes(100))
    net.run(1)

    with pytest.raises(NoRoom) as refused:
        a.send(FAR, bytes(5000))
    net.set_route(a.name, b.name, True)
    net.run(3)
    a.send(FAR, bytes(100))

    assert (refused.value.code, refused.value.reason) == (507, "overflow")
    assert a.streams.undelivered_bytes <= 10 * (ENTRY_BYTES + 500)


def test_other_limits_count_for_the_next_message():
    """
    Limits may change while a node runs.
    """
    _, a, _ = pair(limits=StreamLimits(queue_messages=1))
    a.send(FAR, b"1")

    a.streams.apply(StreamLimits(queue_messages=2), False)
    a.send(FAR, b"2")

    with pytest.raises(NoRoom):
        a.send(FAR, b"3")


def test_messages_for_other_nodes_take_no_room_of_sessions(tmp_path):
    """
    A backlog on disk does not count for the sessions' limit, before a restart and after it.
    """
    net = FakeNet()
    a = StreamNode(net, "mn://a.example/1", tmp_path / "a")
    own = a.spool.live
    for _ in range(50):
        a.streams.send(FAR, Envelope("message", (b"i", 1), 60_000, 5), bytes(1000))
    net.run(1)
    before = a.journal.bytes_on_disk, a.spool.live
    a.restart()
    after = a.journal.bytes_on_disk, a.spool.live
    a.streams.forget(FAR)
    net.run(1)

    assert before[0] == after[0] == own
    assert before[1] == after[1] > 50_000
    assert (a.journal.bytes_on_disk, a.spool.live) == (own, own)
    a.kill()


def test_a_sender_takes_a_quarter_of_a_queue():
    """
    A local session that sends too much is refused, and others are not.
    """
    _, a, _ = pair(limits=StreamLimits(queue_messages=40))
    for number in range(10):
        a.send(FAR, b"%d" % number, sender="ann")

    with pytest.raises(NoRoom):
        a.send(FAR, b"11", sender="ann")

    a.send(FAR, b"1", sender="bob")
    a.send(FAR, b"1")


def test_a_sender_has_its_share_again_after_acknowledgements():
    """
    A share counts what waits, not what was sent.
    """
    net, a, b = pair(limits=StreamLimits(queue_messages=8))
    for _ in range(10):
        a.send(b.name, b"1", sender="ann")
        a.send(b.name, b"2", sender="ann")
        net.run(1)

    assert len(b.got) == 20


def test_a_message_that_is_too_long_is_refused():
    """
    A stream takes no message that its destination would refuse.
    """
    _, a, b = pair(limits=StreamLimits(message_bytes=1000))

    with pytest.raises(NoRoom):
        a.send(b.name, bytes(1001))


def test_a_message_that_is_too_long_for_the_destination_is_told():
    """
    The destination may take shorter messages than the source: the sender learns that it was not delivered.
    """
    net = FakeNet()
    a = StreamNode(net, "mn://a.example/1")
    b = StreamNode(net, "mn://b.example/1", limits=StreamLimits(message_bytes=1000))

    long = a.send(b.name, os.urandom(2000))
    a.send(b.name, b"short")
    net.run(1)

    assert b.payloads == [b"short"]
    assert [(each.code, each.reason) for each in a.outcomes[long]] == [(502, "malformed")]


def test_the_number_of_peers_is_bounded():
    """
    A node that is idle makes room for another one; if none is, the message is refused.
    """
    net, a, b = pair(limits=StreamLimits(peers=2))
    a.send(b.name, b"1")
    net.run(1)
    a.send("mn://c.example/1", b"waits")
    a.send("mn://d.example/1", b"waits")

    with pytest.raises(NoRoom):
        a.send("mn://e.example/1", b"waits")

    assert b.name not in a.streams.peers


def test_a_node_that_was_forgotten_begins_again():
    """
    A node that made room comes back: its stream begins another epoch, and nothing is doubled.
    """
    net = FakeNet()
    a = StreamNode(net, "mn://a.example/1")
    b = StreamNode(net, "mn://b.example/1", limits=StreamLimits(peers=1))
    c = StreamNode(net, "mn://c.example/1")
    a.send(b.name, b"1")
    net.run(1)
    c.send(b.name, b"2")
    net.run(1)

    identifier = a.send(b.name, b"3")
    net.run(1)
    later = a.send(b.name, b"4")
    net.run(1)

    assert b.payloads == [b"1", b"2", b"4"]
    assert a.reasons(identifier) == ["in-doubt"]
    assert a.reasons(later) == ["acknowledged"]


def test_the_time_on_the_way_is_taken_off_the_time_to_live():
    """
    After a first message has shown how long the way is, the destination gets what is left after it.
    """
    net, a, b = pair()
    net.weather = Weather(delay=(2, 2))
    for _ in range(2):
        a.send(b.name, b"measures")
        net.run(20)
    a.send(b.name, b"late", ttl_millis=10_000)
    net.run(10)

    left = b.envelopes[-1].ttl_millis / 1000
    assert 7.5 < left < 8.5


def test_a_message_that_cannot_arrive_in_time_is_stale():
    """
    A message whose time to live is shorter than the way is not delivered late.
    """
    net, a, b = pair()
    net.weather = Weather(delay=(2, 2))
    for _ in range(2):
        a.send(b.name, b"measures")
        net.run(20)
    late = a.send(b.name, b"late", ttl_millis=1000)
    net.run(20)

    assert a.reasons(late) == ["stale"]
    assert b.payloads == [b"measures", b"measures"]


def test_waiting_messages_leave_memory_when_they_are_on_disk(tmp_path):
    """
    A destination that is down for a week does not fill the memory, and gets everything afterwards.
    """
    net = FakeNet()
    limits = StreamLimits(memory_bytes=20_000)
    a = StreamNode(net, "mn://a.example/1", tmp_path / "a", limits=limits)
    b = StreamNode(net, "mn://b.example/1")
    net.set_route(a.name, b.name, False)
    sent = [b"%d " % number + bytes(900) for number in range(200)]
    for payload in sent:
        a.send(b.name, payload)
        net.flush(2)
    net.run(1)
    used = a.streams.memory_bytes

    net.set_route(a.name, b.name, True)
    net.run(60)

    assert used < 20_000
    assert b.payloads == sent
    a.kill()


# -- time to live -------------------------------------------------------------------


def test_a_message_that_was_never_sent_becomes_stale():
    """
    A message whose time to live ends while it waits is dropped, and its sender gets 408 in time.
    """
    net, a, b = pair()
    net.set_route(a.name, b.name, False)
    identifier = a.send(b.name, b"soon stale", ttl_millis=2000)
    later = a.send(b.name, b"not yet", ttl_millis=60_000)

    net.run(2.2)
    outcome = a.outcomes[identifier][0]
    net.set_route(a.name, b.name, True)
    net.run(1)

    assert (outcome.code, outcome.reason) == (408, "stale")
    assert b.payloads == [b"not yet"]
    assert a.reasons(later) == ["acknowledged"]


def test_without_a_route_an_agreed_stream_gives_no_numbers():
    """
    A message that has no way out becomes stale in time, although messages were exchanged before.
    """
    net, a, b = pair()
    a.send(b.name, b"1")
    net.run(1)
    net.set_route(a.name, b.name, False)

    stale = [a.send(b.name, b"soon stale", ttl_millis=2000) for _ in range(3)]
    net.run(5)
    told = [a.reasons(each) for each in stale]
    net.set_route(a.name, b.name, True)
    a.send(b.name, b"2")
    net.run(5)

    assert told == [["stale"]] * 3
    assert b.payloads == [b"1", b"2"]


def test_a_message_that_got_its_number_and_never_left_becomes_stale(tmp_path):
    """
    The route is lost after a message got its number: its sender learns in time that it did not leave.
    """
    net = FakeNet()
    a, b = (StreamNode(net, f"mn://{each}.example/1", tmp_path / each) for each in "ab")
    a.send(b.name, b"1")
    net.run(1)
    net.full.add(a.name)  # the next hop takes nothing
    stale = [a.send(b.name, b"soon stale", ttl_millis=2000) for _ in range(3)]
    net.run(0.5)
    net.set_route(a.name, b.name, False)
    net.full.clear()
    net.run(5)
    told = [a.reasons(each) for each in stale]
    a.restart()

    net.set_route(a.name, b.name, True)
    a.send(b.name, b"2")
    net.run(5)

    assert told == [["stale"]] * 3
    assert b.payloads == [b"1", b"2"]
    a.kill()
    b.kill()


def test_no_message_waits_longer_than_the_limit():
    """
    A sender cannot make a message wait for longer than `max_wait_seconds`.
    """
    net, a, b = pair(limits=StreamLimits(max_wait_seconds=10))
    net.set_route(a.name, b.name, False)
    identifier = a.send(b.name, b"x", ttl_millis=10**15)

    net.run(11)

    assert a.reasons(identifier) == ["stale"]


def test_a_stale_message_that_was_sent_leaves_a_tombstone():
    """
    The destination says whether it has a message whose time has ended: it does not, and the next one is
    delivered.
    """
    net, a, b = pair()
    a.send(b.name, b"open")
    net.run(1)
    net.tap = lambda datagram: None
    stale = a.send(b.name, b"stale", ttl_millis=3000)
    a.send(b.name, b"next")
    net.run(5)
    net.tap = lambda datagram: datagram
    net.sent.clear()

    net.run(20)

    kinds = [decode(datagram.header).kind for datagram in net.sent if datagram.source == a.name]
    assert set(kinds) == {TOMBSTONE, MESSAGE}
    assert b.payloads == [b"open", b"next"]
    assert a.reasons(stale) == ["stale"]


@pytest.mark.parametrize("ttl_millis", [3000, 20_000])
def test_a_tombstone_does_not_wait_for_a_timeout_that_is_backed_off(ttl_millis):
    """
    However often a message was sent in vain, the destination is asked about it as soon as it is stale, also
    if it was sent while another lane waited.
    """
    net, a, b = pair()
    for priority in (0, 5):
        a.send(b.name, b"open", priority=priority)
    net.run(1)
    net.tap = lambda datagram: None
    a.send(b.name, b"before", priority=0, ttl_millis=10**6)
    net.run(ttl_millis / 2000)
    stale = a.send(b.name, b"stale", priority=5, ttl_millis=ttl_millis // 2)
    net.run(ttl_millis / 2000 - 0.2)
    net.tap = lambda datagram: datagram

    net.run(1)

    assert a.reasons(stale) == ["stale"]
    assert b"stale" not in b.payloads


def test_a_message_that_arrived_before_its_tombstone_is_delivered():
    """
    Once a message was sent, only the destination judges.
    """
    net, a, b = pair()
    a.send(b.name, b"open")
    net.run(1)
    net.tap = lambda datagram: None if datagram.source == b.name else datagram
    identifier = a.send(b.name, b"in time", ttl_millis=500)
    net.run(5)
    net.tap = lambda datagram: datagram

    net.run(20)

    assert b.payloads == [b"open", b"in time"]
    assert a.reasons(identifier) == ["acknowledged"]


def test_a_message_that_is_never_acknowledged_ends(tmp_path):
    """
    A message that was sent to a node that never comes back ends an hour after its time to live; if the own
    node was started again meanwhile, a minute after. What follows in its lane arrives.
    """
    net = FakeNet()
    a, b = (StreamNode(net, f"mn://{each}.example/1", tmp_path / each) for each in "ab")
    a.send(b.name, b"open")
    net.run(1)
    net.tap = lambda datagram: None
    lost = [a.send(b.name, b"%d" % number, ttl_millis=3000) for number in range(3)]
    net.run(300, 1)
    before = [a.reasons(each) for each in lost]

    a.restart()
    net.run(75, 1)
    after = [a.outcomes[each] for each in lost]
    net.tap = lambda datagram: datagram
    later = a.send(b.name, b"later")
    net.run(80)

    assert before == [[]] * 3
    assert {(outcome.code, outcome.reason) for [outcome] in after} == {(504, "in-doubt")}
    assert a.reasons(later) == ["acknowledged"]
    assert b.payloads == [b"open", b"later"]
    a.kill()
    b.kill()


def test_an_hour_after_its_time_a_message_is_in_doubt():
    """
    The sending node keeps nothing for ever, even if it is not started again; what is acknowledged later has
    one outcome only.
    """
    net, a, b = pair()
    a.send(b.name, b"open")
    net.run(1)
    net.tap = lambda datagram: None if datagram.source == b.name else datagram
    doubtful = a.send(b.name, b"arrives", ttl_millis=3000)
    net.run(1)
    net.run(3500, 5)
    before = a.reasons(doubtful)

    net.run(200, 5)
    net.tap = lambda datagram: datagram
    net.run(200, 1)

    assert (before, a.reasons(doubtful)) == ([], ["in-doubt"])
    assert b.payloads == [b"open", b"arrives"]
    assert len(a.streams.peers[b.name].outgoing) == 0


def test_a_message_that_waits_for_another_becomes_stale_at_the_destination():
    """
    The destination's clock counts while a message waits for the one before it.
    """
    net, a, b = pair()
    a.send(b.name, b"open")
    net.run(1)
    net.tap = lambda datagram: None if decode(datagram.header).number == 2 else datagram
    a.send(b.name, b"missing")
    stale = a.send(b.name, b"stale", ttl_millis=1000)
    net.run(5)
    net.tap = lambda datagram: datagram

    net.run(20)

    assert b.payloads == [b"open", b"missing"]
    assert a.reasons(stale) == ["stale"]


def test_what_is_left_of_the_time_to_live_is_passed_on():
    """
    A message arrives with the time that it has left.
    """
    net, a, b = pair()
    net.set_route(a.name, b.name, False)
    a.send(b.name, b"x", ttl_millis=10_000)
    net.run(4)

    net.set_route(a.name, b.name, True)
    net.run(1)

    assert 5000 <= b.envelopes[0].ttl_millis <= 6100


def test_limits_change_while_messages_wait():
    """
    Other limits count at once for what is sent from then on; what waits beyond a lower one stays.
    """
    net = FakeNet()
    a = StreamNode(net, "mn://a.example/1")
    b = StreamNode(net, "mn://b.example/1")
    net.set_route(a.name, b.name, False)
    for number in range(3):
        a.send(b.name, b"%d" % number)

    a.streams.apply(StreamLimits(queue_messages=2, message_bytes=100), compress=False)
    with pytest.raises(NoRoom):
        a.send(b.name, b"refused")
    a.streams.apply(StreamLimits(queue_messages=4, message_bytes=100), compress=False)
    a.send(b.name, b"3")
    with pytest.raises(NoRoom):
        a.send(b.name, bytes(101))
    net.set_route(a.name, b.name, True)
    net.run(5)

    assert b.payloads == [b"0", b"1", b"2", b"3"]


def test_compression_changes_at_once():
    """
    Compression can be switched off and on while the node runs.
    """
    net = FakeNet()
    a = StreamNode(net, "mn://a.example/1")
    b = StreamNode(net, "mn://b.example/1")
    a.send(b.name, b"open")
    net.run(1)
    sizes = []
    for compress in (False, True):
        a.streams.apply(a.streams.limits, compress)
        before = len(net.sent)
        a.send(b.name, bytes(20_000))
        net.run(1)
        sizes.append(max(len(datagram.payload) for datagram in net.sent[before:]))

    assert sizes[0] > 15_000
    assert sizes[1] < 1_000
    assert b.payloads[1:] == [bytes(20_000)] * 2
