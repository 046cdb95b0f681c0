"""
Streams over restarts: with a disk they go on, without one they say what is in doubt.
"""

from shutil import copytree, rmtree

import pytest

from msgnode.links.stream.storage import epochs
from tests.support.links_stream import FakeNet, StreamNode, pair


def disks(tmp_path, *letters: str) -> tuple[FakeNet, list[StreamNode]]:
    net = FakeNet()
    return net, [StreamNode(net, f"mn://{each}.example/1", tmp_path / each) for each in letters]


def close(*nodes: StreamNode) -> None:
    for node in nodes:
        node.kill()


def test_a_killed_source_goes_on(tmp_path):
    """
    Messages that were taken are sent by the node's next start, and their outcomes reach the listener.
    """
    net, (a, b) = disks(tmp_path, "a", "b")
    net.set_route(a.name, b.name, False)
    for number in range(5):
        a.send(b.name, b"%d" % number)
    net.run(1)

    a.restart()
    net.set_route(a.name, b.name, True)
    net.run(5)

    assert b.payloads == [b"0", b"1", b"2", b"3", b"4"]
    assert [a.reasons(each) for each in a.sent] == [["acknowledged"]] * 5
    close(a, b)


def test_a_killed_destination_delivers_nothing_twice(tmp_path):
    """
    A message that is on disk, and whose acknowledgement was lost, is not delivered again.
    """
    net, (a, b) = disks(tmp_path, "a", "b")
    a.send(b.name, b"1")
    net.run(1)
    net.tap = lambda datagram: None if datagram.source == b.name else datagram
    a.send(b.name, b"2")
    net.run(1)

    b.restart()
    net.tap = lambda datagram: datagram
    net.run(10)

    assert b.payloads == [b"1", b"2"]
    assert a.streams.counts["in-doubt"] == 0
    close(a, b)


def test_nothing_is_acknowledged_while_the_disk_is_full(tmp_path):
    """
    A full disk holds acknowledgements and messages back; with room again, all go on.
    """
    net, (a, b) = disks(tmp_path, "a", "b")
    a.send(b.name, b"1")
    net.run(1)
    b.disk.full = True
    second = a.send(b.name, b"2")
    net.run(20)
    before = a.reasons(second)

    b.disk.full = False
    net.run(20)

    assert before == []
    assert a.reasons(second) == ["acknowledged"]
    assert b.payloads == [b"1", b"2"]
    close(a, b)


def test_nothing_leaves_before_it_is_on_disk(tmp_path):
    """
    A node whose disk is full sends no message: after a restart it would give its number to another.
    """
    net, (a, b) = disks(tmp_path, "a", "b")
    a.send(b.name, b"1")
    net.run(1)
    a.disk.full = True

    a.send(b.name, b"2")
    net.run(20)

    assert b.payloads == [b"1"]
    close(a, b)


def test_a_message_that_waits_at_the_listener_comes_again_after_a_kill(tmp_path):
    """
    A message that waits for a policy is in the inbound journal: acknowledged, and delivered again.
    """
    net, (a, b) = disks(tmp_path, "a", "b")
    b.slow = True
    identifier = a.send(b.name, b"asks a policy", transaction=7)
    net.run(1)
    before = a.reasons(identifier)

    b.slow = False
    b.restart()
    net.run(1)

    assert before == ["acknowledged"]
    assert b.payloads == [b"asks a policy"]
    assert b.envelopes[-1].transaction == 7
    b.restart()
    assert b.payloads == [b"asks a policy"]
    close(a, b)


def test_what_was_sent_is_in_doubt_when_the_destination_has_lost_its_memory():
    """
    Nobody knows whether a message was delivered before the loss: it is not sent again. What was never sent
    goes on.
    """
    net = FakeNet()
    a, b = StreamNode(net, "mn://a.example/1"), StreamNode(net, "mn://b.example/1")
    a.send(b.name, b"first")
    net.run(1)
    net.tap = lambda datagram: None if datagram.source == b.name else datagram
    sent = [a.send(b.name, b"%d" % number) for number in range(40)]
    net.run(0.5)

    b.restart()
    net.tap = lambda datagram: datagram
    net.run(20)

    reasons = [a.reasons(each) for each in sent]
    under_way = 33  # the first window, and one for the first acknowledgement
    assert reasons == [["in-doubt"]] * under_way + [["acknowledged"]] * 7
    assert b.payloads == [b"%d" % number for number in range(under_way, 40)]
    assert a.outcomes[sent[0]][0].code == 504
    assert a.restarts == [b.name]


def test_a_source_that_lost_its_memory_begins_again():
    """
    A source without a disk has another instance after a restart; its new messages are none of the old
    numbers.
    """
    net = FakeNet()
    a, b = StreamNode(net, "mn://a.example/1"), StreamNode(net, "mn://b.example/1")
    for number in range(3):
        a.send(b.name, b"%d" % number)
    net.run(1)

    a.restart()
    a.send(b.name, b"again")
    net.run(3)

    assert b.payloads == [b"0", b"1", b"2", b"again"]
    assert b.restarts == [a.name]


def test_a_datagram_of_an_earlier_epoch_is_not_delivered():
    """
    A message that is on its way while its stream begins another epoch does not arrive after it.
    """
    net = FakeNet()
    a, b = StreamNode(net, "mn://a.example/1"), StreamNode(net, "mn://b.example/1")
    a.send(b.name, b"open")
    net.run(1)
    late = []
    net.tap = lambda datagram: late.append(datagram) if datagram.payload else datagram
    doubtful = a.send(b.name, b"late")
    net.flush()
    net.tap = lambda datagram: datagram

    a.streams.begin_epoch(b.name)
    a.send(b.name, b"new")
    net.run(1)
    net.arrive(late[0])
    net.run(1)

    assert b.payloads == [b"open", b"new"]
    assert a.reasons(doubtful) == ["in-doubt"]


def test_forget_ends_all_messages():
    """
    A peer that is removed gets nothing any more, and each sender an outcome.
    """
    net = FakeNet()
    a, b = StreamNode(net, "mn://a.example/1"), StreamNode(net, "mn://b.example/1")
    a.send(b.name, b"open")
    net.run(1)
    net.tap = lambda datagram: None
    sent = [a.send(b.name, b"%d" % number) for number in range(50)]
    net.run(1)

    a.streams.forget(b.name)
    net.tap = lambda datagram: datagram
    after = a.send(b.name, b"after")
    net.run(5)

    assert [a.reasons(each) for each in sent] == [["no-path"]] * 50
    assert a.outcomes[sent[0]][0].code == 502
    assert a.reasons(after) == ["acknowledged"]
    assert b.payloads == [b"open", b"after"]
    assert a.streams.memory_bytes == 0


def test_the_instance_is_kept_in_the_state_directory(tmp_path):
    """
    Each start has the same instance and higher epochs.
    """
    first = epochs.load(tmp_path, "mn://a.example/1")
    one, two = first(), first()

    three = epochs.load(tmp_path, "mn://a.example/1")()

    assert one[0] == two[0] == three[0]
    assert one[1] < two[1] < three[1]


def test_a_lost_part_of_the_spool_is_a_lost_memory(tmp_path):
    """
    A node that is missing records shows another instance.
    """
    before = epochs.load(tmp_path, "mn://a.example/1")()

    after = epochs.load(tmp_path, "mn://a.example/1", incomplete=True)()

    assert before[0] != after[0]


def test_a_state_directory_of_another_node_is_refused(tmp_path):
    """
    A changed name would give the numbers of one node to another.
    """
    epochs.load(tmp_path, "mn://a.example/1")

    with pytest.raises(ValueError, match=r"that of mn://a.example/1.*--rename"):
        epochs.load(tmp_path, "mn://b.example/1")

    epochs.load(tmp_path, "mn://b.example/1", rename=True)


@pytest.mark.parametrize("seconds", [0, 3600])
def test_a_source_restored_from_a_backup_takes_nothing_for_delivered_that_is_not(tmp_path, seconds):
    """
    A source whose disk is older than what it has sent learns that from the destination, before it gives the
    numbers to other messages: each of these arrives once, or is in doubt.
    """
    net, (a, b) = disks(tmp_path, "a", "b")
    net.wall = lambda: 2e9 + net.clock.seconds()
    a.send(b.name, b"before")
    net.run(1)
    a.kill()
    copytree(tmp_path / "a", tmp_path / "backup")
    a.start()
    for number in range(5):
        a.send(b.name, b"lost %d" % number)
    net.run(seconds + 1, 0.5)
    for _ in range(3):
        a.restart()
        net.run(1)

    a.kill()
    rmtree(tmp_path / "a")
    copytree(tmp_path / "backup", tmp_path / "a")
    a.start()
    sent = [a.send(b.name, b"new %d" % number) for number in range(50)]
    net.run(20)

    outcomes = [a.reasons(each) for each in sent]
    arrived = [payload for payload in b.payloads if payload.startswith(b"new")]
    assert all(outcome in (["acknowledged"], ["in-doubt"]) for outcome in outcomes), outcomes
    delivered = [b"new %d" % n for n, outcome in enumerate(outcomes) if outcome == ["acknowledged"]]
    assert arrived == delivered
    assert len(delivered) == 50 if seconds else len(delivered) >= 10
    close(a, b)


def test_a_destination_restored_from_a_backup_goes_on_where_its_source_is(tmp_path):
    """
    What the destination had acknowledged after the backup is not sent again; what follows arrives.
    """
    net, (a, b) = disks(tmp_path, "a", "b")
    a.send(b.name, b"before")
    net.run(1)
    b.kill()
    copytree(tmp_path / "b", tmp_path / "backup")
    b.start()
    for number in range(5):
        a.send(b.name, b"lost %d" % number)
    net.run(1)

    b.kill()
    rmtree(tmp_path / "b")
    copytree(tmp_path / "backup", tmp_path / "b")
    b.start()
    after = a.send(b.name, b"after")
    net.run(5)

    assert a.reasons(after) == ["acknowledged"]
    assert b.payloads == [b"before", b"after"]
    close(a, b)


def test_epochs_rise_where_the_count_of_starts_is_an_old_one(tmp_path):
    """
    A state directory restored from a backup has an earlier count: the time of day is above it.
    """
    epochs.load(tmp_path, "mn://a.example/1", wall=lambda: 2e9)
    copytree(tmp_path, tmp_path / "backup")
    for _ in range(5):
        last = epochs.load(tmp_path, "mn://a.example/1", wall=lambda: 2e9)()

    restored = epochs.load(tmp_path / "backup", "mn://a.example/1", wall=lambda: 2e9 + 3600)()

    assert restored[0] == last[0]
    assert restored[1] > last[1]


def test_a_listener_may_settle_the_journal_when_it_is_done(tmp_path):
    """
    What the listener wrote and the stream's count are one batch: a kill right after it doubles nothing.
    """
    net, (a, b) = disks(tmp_path, "a", "b")
    a.send(b.name, b"1")
    net.run(1)
    settled = []

    def settle_and_die():
        b.journal.settle()
        settled.append(list(b.got))
        net.tap = lambda datagram: None
        b.disk.full = True

    b.on_done = settle_and_die
    a.send(b.name, b"2")
    net.run(0.1)
    b.restart()
    b.disk.full = False
    b.on_done = lambda: None
    net.tap = lambda datagram: datagram
    net.run(20)

    assert [payload for _, _, payload in settled[0]] == [b"1", b"2"]
    assert b.payloads == [b"1", b"2"]
    assert b.streams.counts["delivered"] == 0
    close(a, b)


def test_a_peer_that_comes_back_without_its_disk_is_noticed_at_once():
    """
    Nothing has to be sent to a node that was started again: it is asked what it has, until it answers.
    """
    net, a, b = pair()
    a.send(b.name, b"1")
    net.run(1)
    net.tap = lambda datagram: None
    b.restart()
    net.run(2)
    before = list(a.restarts)

    net.tap = lambda datagram: datagram
    net.run(5)

    assert (before, a.restarts) == ([], [b.name])


def test_a_peer_that_is_started_again_without_a_route_is_asked_later():
    """
    The advertisement may come before the route.
    """
    net, a, b = pair()
    a.send(b.name, b"1")
    net.run(1)
    net.set_route(a.name, b.name, False)
    b.restart()
    net.run(200)
    sent = len(net.sent)

    net.set_route(a.name, b.name, True)
    net.run(1)

    assert a.restarts == [b.name]
    net.run(600)
    assert len(net.sent) < sent + 20  # nothing more is asked


def test_an_answer_waits_for_a_route():
    """
    After a start, one of two nodes has a route before the other: what the other is asked meanwhile it answers
    as soon as it has one, and needs not be asked again.
    """
    net, a, b = pair()
    a.send(b.name, b"1")
    net.run(1)
    net.full.add(b.name)
    b.restart()
    net.run(0.1)  # it is asked
    asked, waiting = len(net.sent), list(a.restarts)

    net.full.clear()
    b.streams.route_changed(a.name)
    net.run(0.1)

    assert (waiting, a.restarts) == ([], [b.name])
    assert next(each.source for each in net.sent[asked:]) == b.name


def test_a_peer_that_comes_back_with_its_disk_has_forgotten_nothing(tmp_path):
    """
    The word of a node that has its disk begins no other epoch.
    """
    net, (a, b) = disks(tmp_path, "a", "b")
    a.send(b.name, b"1")
    net.run(1)
    epoch = a.streams.peers[b.name].outgoing.epoch

    b.restart()
    net.run(5)
    a.send(b.name, b"2")
    net.run(5)

    assert (b.payloads, a.restarts) == ([b"1", b"2"], [])
    assert a.streams.peers[b.name].outgoing.epoch == epoch
    close(a, b)
