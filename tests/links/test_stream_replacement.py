"""
Messages whose gateway is replaced by another node of its domain, or whose node is forgotten.
"""

import pytest

from msgnode.links.stream.common import StreamLimits
from msgnode.links.stream.streams import NoRoom
from tests.support.links_stream import FakeNet, StreamNode

ONE, TWO = "mn://b.example/1", "mn://b.example/2"
WINDOW = 33  # under way without an acknowledgement: the first window, and one for the first message


def gateways(directory=None, **options) -> tuple[FakeNet, StreamNode, StreamNode, StreamNode]:
    """
    A source, and two gateways of another domain, the first of which has got one message.
    """
    net = FakeNet()
    a = StreamNode(net, "mn://a.example/1", directory, **options)
    one, two = StreamNode(net, ONE), StreamNode(net, TWO)
    a.send(ONE, b"first")
    net.run(1)
    return net, a, one, two


def silence(net, node):
    """
    The node gets nothing, and nobody knows that yet.
    """
    net.tap = lambda datagram: None if datagram.destination == node else datagram


def test_only_what_was_never_sent_moves_to_another_gateway():
    """
    What was sent may have arrived: it is in doubt. The others arrive at the other gateway, in order, with the
    message ids they had.
    """
    net, a, one, two = gateways()
    silence(net, ONE)
    sent = [a.send(ONE, b"%d" % number, if_replaced="move") for number in range(100)]
    net.run(0.5)
    net.set_route(a.name, ONE, False)

    a.streams.replace(ONE, TWO)
    net.run(5)

    assert [a.reasons(each) for each in sent] == [["in-doubt"]] * WINDOW + [["acknowledged"]] * (100 - WINDOW)
    assert {outcome.code for outcome in a.outcomes[sent[0]]} == {504}
    assert two.payloads == [b"%d" % number for number in range(WINDOW, 100)]
    assert [envelope.id for envelope in two.envelopes] == sent[WINDOW:]
    assert one.payloads == [b"first"]
    assert a.streams.undelivered(ONE) == a.streams.memory_bytes == 0


def test_what_only_the_gateway_can_take_waits_for_it():
    """
    Publications for its own subscribers arrive when the gateway is there again, in order and once.
    """
    net, a, one, _ = gateways()
    silence(net, ONE)
    waiting, moving = [], []
    for number in range(60):
        waiting.append(a.send(ONE, b"wait %d" % number))
        moving.append(a.send(ONE, b"move %d" % number, if_replaced="move"))
    net.run(0.5)

    a.streams.replace(ONE, TWO)
    net.run(5)
    before = len(one.payloads), a.streams.undelivered(ONE)
    net.tap = lambda datagram: datagram
    net.run(120, 0.5)

    assert before == (1, 60)
    assert one.payloads == [b"first", *(b"wait %d" % number for number in range(60))]
    assert all(a.reasons(each) == ["acknowledged"] for each in waiting)
    assert {reason for each in moving for reason in a.reasons(each)} == {"in-doubt", "acknowledged"}
    assert a.streams.memory_bytes == 0


def test_what_another_gateway_cannot_use_ends():
    """
    An entry that asks this gateway for something ends, so that the other one can be asked.
    """
    net, a, _, two = gateways()
    net.set_route(a.name, ONE, False)
    asked = a.send(ONE, b"subscribe", if_replaced="end")

    a.streams.replace(ONE, TWO)
    net.run(2)

    assert a.reasons(asked) == ["no-path"]
    assert two.payloads == []


def test_messages_that_come_while_others_move_follow_them():
    """
    A backlog moves some messages at a time, and what is sent meanwhile stays behind them.
    """
    net, a, _, two = gateways(limits=StreamLimits(queue_messages=5000))
    net.set_route(a.name, ONE, False)
    finished = []
    for number in range(3000):
        a.send(ONE, b"%d" % number, if_replaced="move")

    a.streams.replace(ONE, TWO, lambda: finished.append(a.streams.undelivered(ONE)))
    moving = a.streams.undelivered(ONE)
    a.send(ONE, b"3000", if_replaced="move")
    before = list(finished)
    net.run(30)

    assert 0 < moving < 3000
    assert (before, finished) == ([], [0])
    assert two.payloads == [b"%d" % number for number in range(3001)]


@pytest.mark.parametrize("written", [False, True])
def test_a_kill_while_messages_move_loses_and_doubles_nothing(tmp_path, written):
    """
    Each message is on disk at one of the two gateways; what has not moved goes on waiting.
    """
    net, a, one, two = gateways(tmp_path / "a")
    net.full.add(a.name)
    sent = [a.send(ONE, b"%d" % number, if_replaced="move") for number in range(2000)]
    net.run(0.2)

    a.streams.replace(ONE, TWO)
    if written:
        a.journal.settle()
    a.restart()
    net.full.clear()
    net.run(60)

    outcomes = [a.reasons(each)[0] for each in sent]
    doubtful = [n for n, outcome in enumerate(outcomes) if outcome == "in-doubt"]
    moved = [int(payload) for payload in two.payloads]
    stayed = [int(payload) for payload in one.payloads[1:]]
    assert sorted(doubtful + moved + stayed) == list(range(2000))
    assert moved == sorted(moved)
    assert stayed == sorted(stayed)
    assert bool(moved) == written
    assert outcomes.count("acknowledged") == len(moved) + len(stayed)
    a.kill()


def test_a_restart_knows_what_may_move(tmp_path):
    """
    What becomes of a message when its gateway is replaced is on disk with it.
    """
    net, a, _, two = gateways(tmp_path / "a")
    net.set_route(a.name, ONE, False)
    for _ in range(WINDOW):
        a.send(ONE, b"may have been sent")
    moving = a.send(ONE, b"moves", if_replaced="move")
    waiting = a.send(ONE, b"waits")
    net.run(1)

    a.restart()
    a.streams.replace(ONE, TWO)
    net.run(5)

    assert two.payloads == [b"moves"]
    assert (a.reasons(moving), a.reasons(waiting)) == (["acknowledged"], [])
    a.kill()


def test_a_sender_has_no_second_quarter_after_a_restart(tmp_path):
    """
    Whose a message is, is on disk with it.
    """
    net, a, _, _ = gateways(tmp_path / "a", limits=StreamLimits(queue_messages=40))
    net.set_route(a.name, ONE, False)
    for number in range(10):
        a.send(ONE, b"%d" % number, sender="ann")
    net.run(1)

    a.restart()

    with pytest.raises(NoRoom):
        a.send(ONE, b"10", sender="ann")
    a.send(ONE, b"10", sender="bob")
    a.kill()


def test_a_great_backlog_is_forgotten_some_at_a_time():
    """
    The event loop turns while thousands of senders are told; what is sent meanwhile is none of them.
    """
    net, a, one, _ = gateways(limits=StreamLimits(queue_messages=5000))
    net.set_route(a.name, ONE, False)
    sent = [a.send(ONE, b"%d" % number) for number in range(3000)]

    count = a.streams.forget(ONE)
    told = sum(bool(a.reasons(each)) for each in sent)
    after = a.send(ONE, b"after")
    net.run(2)
    net.set_route(a.name, ONE, True)
    net.run(2)

    assert count == 3000
    assert 0 < told < 1000
    assert all(a.reasons(each) == ["no-path"] for each in sent)
    assert a.reasons(after) == ["acknowledged"]
    assert one.payloads == [b"first", b"after"]


def test_a_kill_while_a_backlog_is_forgotten_leaves_the_rest(tmp_path):
    """
    No message leaves the disk before its sender is told: those whose turn did not come wait again.
    """
    net, a, one, _ = gateways(tmp_path / "a")
    net.set_route(a.name, ONE, False)
    sent = [a.send(ONE, b"%d" % number) for number in range(2000)]
    net.run(0.5)

    a.streams.forget(ONE)
    a.journal.settle()
    a.restart()
    told = [each for each in sent if a.reasons(each) == ["no-path"]]
    net.set_route(a.name, ONE, True)
    net.run(60)

    assert 0 < len(told) < 2000
    assert one.payloads[1:] == [a.sent[each].payload for each in sent if each not in told]
    assert all(len(a.reasons(each)) == 1 for each in sent)
    a.kill()
