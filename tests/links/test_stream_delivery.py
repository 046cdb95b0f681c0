"""
Streams deliver once and in order within a lane, over a network that loses and reorders.
"""

from itertools import pairwise

from twisted.internet.task import Clock

from msgnode.links.stream.common import StreamLimits
from msgnode.links.stream.storage.store import MemoryStreamStore
from msgnode.links.wire.stream_header import ACKNOWLEDGEMENT, MESSAGE, OPEN, PROBE, decode
from tests.support.links_stream import FakeNet, StreamNode, Weather, pair


def kinds(net: FakeNet, source: StreamNode) -> list[int]:
    return [decode(datagram.header).kind for datagram in net.sent if datagram.source == source.name]


def numbers(net: FakeNet, source: StreamNode) -> list[int]:
    """
    The numbers of the messages that a node sent, in the order in which it did.
    """
    headers = [decode(datagram.header) for datagram in net.sent if datagram.source == source.name]
    messages = [header for header in headers if header.kind == MESSAGE]
    return [header.number + n for header in messages for n in range(1 + len(header.following))]


def test_a_message_is_delivered_and_acknowledged():
    """
    A message arrives with its envelope, and its sender gets the outcome.
    """
    net, a, b = pair()

    identifier = a.send(b.name, b"hello", priority=7, transaction="t1", identity={"subject": "ann"})
    net.run(1)

    assert b.got == [(a.name, 7, b"hello")]
    assert (b.envelopes[0].transaction, b.envelopes[0].identity) == ("t1", {"subject": "ann"})
    assert a.reasons(identifier) == ["acknowledged"]


def test_nothing_is_sent_before_the_destination_agrees_to_the_epoch():
    """
    The first datagram opens the stream: a message that was sent without an agreement could be doubled.
    """
    net, a, b = pair()
    net.tap = lambda datagram: None

    a.send(b.name, b"hello")
    net.run(5)

    assert set(kinds(net, a)) == {OPEN}


def test_a_lost_message_is_sent_again():
    """
    A datagram that is lost is sent again, and delivered before those after it.
    """
    net, a, b = pair()
    a.send(b.name, b"0")
    net.run(1)
    lost: list[int] = []

    def lose_the_second(datagram):
        header = decode(datagram.header)
        if header.kind == MESSAGE and header.number == 2 and not lost:
            lost.append(2)
            return None
        return datagram

    net.tap = lose_the_second
    for text in (b"1", b"2", b"3"):
        a.send(b.name, text)
    net.run(5)

    assert b.payloads == [b"0", b"1", b"2", b"3"]


def test_three_later_messages_show_a_loss_before_the_timeout():
    """
    A number is sent again when three above it have come, not only when its timer expires.
    """
    net, a, b = pair()
    a.send(b.name, b"first")
    net.run(1)
    net.weather = Weather(delay=(0.01, 0.01))
    lost: list[bytes] = []

    def lose_once(datagram):
        if datagram.source == a.name and not lost:
            lost.append(datagram.payload)
            return None
        return datagram

    net.tap = lose_once
    for number in range(8):
        a.send(b.name, b"%d" % number)
        net.run(0.01, 0.01)  # else they are in one datagram
    net.run(0.6, 0.01)

    assert len(b.payloads) == 9
    assert a.streams.counts["timeout"] == 0


def test_doubled_and_reordered_datagrams_are_delivered_once_in_order():
    """
    A network that doubles and reorders changes nothing.
    """
    net, a, b = pair(seed=3)
    net.weather = Weather(loss=0.1, doubling=0.5, delay=(0, 0.4))

    sent = [b"%d" % number for number in range(300)]
    for payload in sent:
        a.send(b.name, payload)
    net.run(120)

    assert b.payloads == sent


def test_lanes_do_not_wait_for_each_other():
    """
    While a message of one priority is missing, those of another one are delivered.
    """
    net, a, b = pair()
    for priority in (5, 7):
        a.send(b.name, b"open", priority)
    net.run(1)
    net.tap = lambda datagram: None if datagram.priority == 5 else datagram

    a.send(b.name, b"low", 5)
    a.send(b.name, b"high", 7)
    net.run(3)

    assert b.payloads[2:] == [b"high"]


def test_a_lane_that_is_stuck_slows_no_other_lane():
    """
    While nothing of the highest lane arrives, many messages of another one are under way together.
    """
    net, a, b = pair(seed=1)
    net.weather = Weather(delay=(0.1, 0.1))
    for priority in (5, 7):
        a.send(b.name, b"open", priority)
    net.run(1)
    net.tap = lambda datagram: None if datagram.priority == 7 else datagram
    for _ in range(100):
        a.send(b.name, b"high", 7)
    net.run(3)

    for _ in range(500):
        a.send(b.name, b"low", 5)
    net.run(5)

    assert b.payloads.count(b"low") == 500


def test_acknowledgements_are_batched():
    """
    One acknowledgement is sent for all messages of 0.2 seconds.
    """
    net, a, b = pair()
    a.send(b.name, b"open")
    net.run(1)
    net.sent.clear()

    for number in range(20):
        a.send(b.name, b"%d" % number)
    net.flush()
    at_once = kinds(net, b)
    net.run(0.3)

    assert at_once == []
    assert kinds(net, b) == [ACKNOWLEDGEMENT]


def test_sixty_four_messages_are_acknowledged_at_once():
    """
    The sender of many messages does not wait 0.2 seconds for an acknowledgement.
    """
    net, a, b = pair()
    for number in range(150):
        a.send(b.name, b"%d" % number)
    net.run(2)
    net.sent.clear()

    for number in range(64):
        a.send(b.name, b"%d more" % number)
    net.flush()

    assert kinds(net, b) == [ACKNOWLEDGEMENT]


def test_a_datagram_carries_an_acknowledgement():
    """
    A node that answers does not send acknowledgements of their own.
    """
    net, a, b = pair()
    a.send(b.name, b"open")
    b.send(a.name, b"open")
    net.run(1)
    net.sent.clear()

    identifier = a.send(b.name, b"question")
    net.flush()
    b.send(a.name, b"answer")
    net.flush()

    assert a.reasons(identifier) == ["acknowledged"]
    assert kinds(net, b) == [MESSAGE]


def test_the_window_begins_at_32_and_grows():
    """
    At first 32 messages are under way; each acknowledgement lets more follow.
    """
    net, a, b = pair()
    a.send(b.name, b"open", 1)
    net.run(1)
    net.tap = lambda datagram: None if datagram.source == b.name else datagram
    for number in range(200):
        a.send(b.name, b"%d" % number)
    net.flush()
    first = len(numbers(net, a)) - 1
    net.tap = lambda datagram: datagram

    net.run(1)
    net.flush()

    assert first == 32
    assert len(b.payloads) == 201


def test_a_timeout_halves_the_window_and_sends_the_oldest_first():
    """
    When nothing is acknowledged, one message is sent again; the others follow once it is acknowledged.
    """
    net, a, b = pair()
    a.send(b.name, b"open")
    net.run(1)
    for number in range(30):
        a.send(b.name, b"%d" % number)
    net.tap = lambda datagram: None
    net.flush()
    net.sent.clear()

    net.run(1.5)
    again = numbers(net, a)
    net.tap = lambda datagram: datagram
    net.run(60)

    assert again
    assert set(again) == {2}
    assert b.payloads == [b"open", *(b"%d" % number for number in range(30))]


def test_timeouts_double():
    """
    A destination that is silent is tried less and less often, at least once a minute, and its first hop is
    avoided.
    """
    net, a, b = pair()
    a.send(b.name, b"open")
    net.run(1)
    net.tap = lambda datagram: None
    times: list[float] = []
    net.tap = lambda datagram: times.append(net.clock.seconds())  # and nothing arrives

    a.send(b.name, b"lost")
    net.run(400, 0.1)

    gaps = [round(later - earlier, 1) for earlier, later in pairwise(times)]
    assert gaps[:6] == sorted(gaps[:6])
    assert 55 < gaps[-1] < 61
    assert b.name in net.avoided


class MovingClock(Clock):
    """
    A clock that goes on between two looks at it, as real ones do.
    """

    def seconds(self) -> float:
        self.rightNow += 1e-7
        return self.rightNow


def test_messages_that_are_sent_do_not_put_the_timeout_off():
    """
    However many messages are sent to a destination that is silent, it is tried again and again.
    """
    net = FakeNet()
    net.clock = MovingClock()
    a, b = (StreamNode(net, f"mn://{each}.example/1") for each in "ab")
    a.send(b.name, b"open")
    net.run(1)
    times: list[float] = []
    net.tap = lambda datagram: times.append(net.clock.seconds())  # and nothing arrives
    a.send(b.name, b"first", ttl_millis=10**6)

    while net.clock.seconds() < 40:
        a.send(b.name, b"more", priority=0, ttl_millis=20_000)
        net.run(0.005, 0.005)

    again = [time for time in times if time > 3]
    assert len(again) >= 3
    assert again[-1] > 20


def test_after_a_change_of_route_the_oldest_is_sent_at_once():
    """
    A new route is tried with one message, without waiting for the timeout.
    """
    net, a, b = pair()
    a.send(b.name, b"open")
    net.run(1)
    net.tap = lambda datagram: None
    for number in range(10):
        a.send(b.name, b"%d" % number)
    net.run(20)
    net.tap = lambda datagram: datagram
    net.sent.clear()

    a.streams.route_changed(b.name)
    at_once = numbers(net, a)
    net.run(1)

    assert at_once == [2]
    assert len(b.payloads) == 11


def test_a_link_that_is_full_is_waited_for():
    """
    What the next hop does not take is sent when it has room.
    """
    net, a, b = pair()
    a.send(b.name, b"open")
    net.run(1)
    net.full.add(a.name)
    a.send(b.name, b"waits")
    net.run(0.5)

    net.full.clear()
    a.streams.has_room()
    net.flush()

    assert b.payloads == [b"open", b"waits"]


def test_a_long_message_is_cut_into_pieces_of_a_datagram():
    """
    A message of a megabyte arrives whole; no datagram has more than 32 KiB of it.
    """
    net, a, b = pair(seed=5)
    net.weather = Weather(loss=0.05, delay=(0, 0.1))
    payload = net.random.randbytes(1024 * 1024)

    a.send(b.name, payload)
    a.send(b.name, b"after it")
    net.run(60)

    assert b.payloads == [payload, b"after it"]
    assert max(len(datagram.payload) for datagram in net.sent) == 32 * 1024


def test_a_listener_that_is_slow_shuts_the_window():
    """
    A node takes no more than its listener may have, and opens the window when that is done.
    """
    limits = StreamLimits(pending=10)
    net, a, b = pair(limits=limits)
    b.slow = True
    for number in range(100):
        a.send(b.name, b"%d" % number)
    net.run(30)
    taken = len(b.held)

    b.slow = False
    b.finish()
    net.run(60)

    assert taken == 10
    assert b.payloads == [b"%d" % number for number in range(100)]


def test_a_window_that_stays_shut_is_probed():
    """
    The source asks again, as the acknowledgement that opened the window may be lost.
    """
    net, a, b = pair(limits=StreamLimits(pending=1))
    b.slow = True
    a.send(b.name, b"1")
    a.send(b.name, b"2")
    net.run(3)
    b.slow = False
    net.tap = lambda datagram: None
    b.finish()
    net.flush()
    net.tap = lambda datagram: datagram
    net.sent.clear()

    net.run(30)

    assert b.payloads == [b"1", b"2"]
    assert PROBE in [decode(datagram.header).flags for datagram in net.sent] or numbers(net, a)


def test_a_listener_that_raises_does_not_stop_the_stream():
    """
    An error of the listener is logged, and the next message is delivered.
    """
    net, a, b = pair()

    def fail():
        b.on_received = lambda: None
        raise RuntimeError("no")

    b.on_received = fail
    a.send(b.name, b"1")
    a.send(b.name, b"2")
    net.run(2)

    assert b.payloads == [b"2"]


def test_a_message_that_comes_again_by_another_stream_is_known():
    """
    A message keeps its identifier when another node of its domain sends it, and is delivered once. Another
    domain that uses the identifier keeps nothing out.
    """
    net, a, b = pair()
    same, other = StreamNode(net, "mn://a.example/2"), StreamNode(net, "mn://c.example/1")

    other.send(b.name, b"not it", id=(b"x" * 16, 1))
    net.run(1)
    a.send(b.name, b"one", id=(b"x" * 16, 1))
    net.run(1)
    second = same.send(b.name, b"one", id=(b"x" * 16, 1))
    net.run(1)

    assert b.payloads == [b"not it", b"one"]
    assert same.reasons(second) == ["acknowledged"]


def test_a_message_that_waits_is_unacknowledged_although_a_later_one_is_stale():
    """
    What has been sent is acknowledged when the oldest message is, not when the outcome of the last is known.
    """
    net, a, b = pair()
    net.set_route(a.name, b.name, up=False)
    a.send(b.name, b"lasts")
    a.send(b.name, b"expires", ttl_millis=1000)
    is_unacknowledged = a.streams.unacknowledged(b.name)
    net.run(5)

    assert is_unacknowledged()

    net.set_route(a.name, b.name, up=True)
    net.run(5)

    assert (b.payloads, is_unacknowledged()) == ([b"lasts"], False)


def test_an_acknowledgement_that_is_asked_for_is_not_kept_back():
    """
    The destination acknowledges at once what it has when the source asks for it.
    """
    net, a, b = pair()
    a.send(b.name, b"first")
    net.run(1)
    a.send(b.name, b"second")
    net.flush()
    is_unacknowledged = a.streams.unacknowledged(b.name)

    assert is_unacknowledged()

    a.streams.ask(b.name)
    net.flush()

    assert not is_unacknowledged()


class SlowStore(MemoryStreamStore):
    """
    A disk that has what is written when the test says so.
    """

    is_slow = False

    def settle(self) -> None:
        if not self.is_slow:
            super().settle()


def test_what_is_asked_for_is_acknowledged_as_soon_as_it_is_on_disk():
    """
    A question that comes before a message is on the disk of its destination is answered again after that.
    """
    net, store = FakeNet(), SlowStore()
    a, b = StreamNode(net, "mn://a.example/1"), StreamNode(net, "mn://b.example/1", memory=lambda: store)
    a.send(b.name, b"first")
    net.run(1)
    store.is_slow = True
    a.send(b.name, b"second")
    net.flush()
    is_unacknowledged = a.streams.unacknowledged(b.name)
    a.streams.ask(b.name)
    net.flush()

    assert is_unacknowledged()

    store.is_slow = False
    store.settle()
    net.flush()

    assert not is_unacknowledged()
