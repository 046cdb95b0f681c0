"""
The directory of a cluster: each member knows what the others hold, when they are silent, and when they start
again.
"""

import pytest
from twisted.logger import globalLogPublisher
from twisted.python.failure import Failure

from msgnode.cluster.directory.limits import DirectoryLimits
from msgnode.cluster.directory.wire import Delta, HeldSession, Piece, decode, encode
from tests.support.cluster_directory import HASH, A, B, C, DirectoryNode, directories

ONE, TWO = "hyperty://example.com/1", "comm://example.com/room"
RUNTIME = "hyperty-runtime://example.com/r1"


def addresses(count, name="x"):
    return [f"comm://example.com/{name}/{number}" for number in range(count)]


def statements(node, kind):
    """
    What a node sent to each member, of one kind.
    """
    sent = [(to, decode(payload)) for to, payload in node.members.sent]
    return [(to, statement) for to, statement in sent if isinstance(statement, kind)]


def test_binding_is_known_to_all_members():
    """
    An address that is bound at one member is found by all others, and by them alone.
    """
    cluster, a, b, c = directories(A, B, C)

    a.bind(ONE)
    c.bind(ONE)
    cluster.run(0.1)

    assert b.directory.holders(ONE) == (A, C)
    assert a.directory.holders(ONE) == (C,)
    assert b.directory.holders(TWO) == ()


def test_unbinding_is_known_to_all_members():
    """
    An address that is not bound any more is found by no member.
    """
    cluster, a, b = directories(A, B)
    a.bind(ONE, TWO)
    cluster.run(0.1)

    a.unbind(ONE)
    cluster.run(0.1)

    assert b.directory.holders(ONE) == ()
    assert b.directory.holders(TWO) == (A,)


def test_changes_of_one_turn_are_one_delta():
    """
    What is bound in one turn leaves in one statement, without an address that was released in the same turn.
    """
    cluster, a, _ = directories(A, B)

    a.bind(ONE, TWO)
    a.unbind(TWO)
    cluster.run(0.1)

    ((_, delta),) = statements(a, Delta)
    assert (delta.bound, delta.unbound) == ([ONE], [TWO])


def test_addresses_below_a_runtime_follow_it():
    """
    An address below a runtimeURL is found where the session is, and no member is sent it.
    """
    cluster, a, b = directories(A, B)

    a.open(RUNTIME)
    a.bind(RUNTIME + "/sm", RUNTIME + "/registry/1")
    cluster.run(0.1)

    assert b.directory.holders(RUNTIME) == (A,)
    assert b.directory.holders(RUNTIME + "/registry/1") == (A,)
    assert b.directory.holders(RUNTIME + "x") == ()
    assert all(not delta.bound for _, delta in statements(a, Delta))


def test_runtime_comes_before_strays_below_it():
    """
    A session has its runtimeURL and what is below it alone, whatever was bound there at other members.
    """
    cluster, a, b, c = directories(A, B, C)
    a.bind(RUNTIME, RUNTIME + "/sm", RUNTIME + "/sm/1")
    cluster.run(0.1)
    assert c.directory.holders(RUNTIME + "/sm") == (A,)

    b.open(RUNTIME)
    cluster.run(0.1)

    below = (RUNTIME, RUNTIME + "/sm", RUNTIME + "/sm/1", RUNTIME + "/other")
    assert {c.directory.holders(address) for address in below} == {(B,)}


def test_plain_address_owns_nothing_below():
    """
    What is below an address that is no runtimeURL is not found with it.
    """
    cluster, a, b = directories(A, B)

    a.bind(TWO)
    cluster.run(0.1)

    assert b.directory.holders(TWO + "/changes") == ()


def test_session_tells_token_hash_and_generation():
    """
    The entry of a session has its token's hash and its generation; the highest generation is the last.
    """
    cluster, a, b, c = directories(A, B, C)

    a.open(RUNTIME, generation=7)
    b.open(RUNTIME, generation=5)
    cluster.run(0.1)

    entries = c.directory.sessions(RUNTIME)
    assert [(node, entry.generation, entry.token_hash) for node, entry in entries] == [
        (B, 5, HASH),
        (A, 7, HASH),
    ]
    assert c.directory.sessions(ONE) == []
    assert c.directory.holders(RUNTIME) == (A,)


def test_earlier_holder_of_a_session_is_no_newer_one():
    """
    A node that lets a session go finds the member that has it since, and none that had it before.
    """
    cluster, a, b, c = directories(A, B, C)
    a.open(RUNTIME, generation=5)
    cluster.run(0.1)
    before = c.directory.newer_holder(RUNTIME, 6)

    b.open(RUNTIME, generation=6)
    cluster.run(0.1)

    assert ("", B) == (before, c.directory.newer_holder(RUNTIME, 6))


def test_session_is_found_by_its_token():
    """
    A token's hash leads to the member with the session, also after a move, until the session ends.
    """
    cluster, a, b, c = directories(A, B, C)
    whole_hash, found = HASH + bytes(16), []

    def find():
        cluster.run(0.1)
        found.append(c.directory.token_holder(whole_hash))

    find()
    a.open(RUNTIME, generation=1)
    find()
    b.open(RUNTIME, generation=2)
    find()
    a.close(RUNTIME)
    find()
    b.close(RUNTIME)
    find()

    assert found == ["", A, B, B, ""]


def test_session_gets_another_token():
    """
    The earlier token of a session is known no more; a session without a token is found by none.
    """
    cluster, a, b = directories(A, B)
    old, new, none = (bytes([n]) * 16 for n in (2, 1, 0))
    a.open(RUNTIME, token_hash=old)
    a.open(RUNTIME + "2", token_hash=none)
    a.open(RUNTIME, token_hash=new)
    cluster.run(0.1)

    assert [b.directory.token_holder(each) for each in (old, new, none)] == ["", A, ""]


def test_tokens_of_a_member_that_starts_again():
    """
    The tokens of a member's earlier start are known no more, and those that it has again are.
    """
    cluster, a, b = directories(A, B)
    old, kept = b"o" * 16, b"k" * 16
    a.open(RUNTIME, token_hash=old)
    a.open(RUNTIME + "2", token_hash=kept)
    cluster.run(0.1)

    cluster.kill(A)
    a = DirectoryNode(cluster, A, forgets=True)
    a.open(RUNTIME + "2", token_hash=kept)
    cluster.connect()
    cluster.run(2)

    assert [b.directory.token_holder(each) for each in (old, kept)] == ["", A]


def test_sessions_without_generations_are_found_at_all_members():
    """
    Where sessions do not move, messages for a name go to each member that has a session of that name.
    """
    cluster, a, b, c = directories(A, B, C)

    a.open(RUNTIME, generation=0)
    b.open(RUNTIME, generation=0)
    cluster.run(0.1)

    assert c.directory.holders(RUNTIME + "/sm") == (A, B)


def test_session_that_two_members_hold_is_noticed():
    """
    A member learns that another one holds a session of its own, too, and of no other session.
    """
    cluster, a, b = directories(A, B)
    shared = []
    a.directory.session_shared = shared.append
    a.open(RUNTIME)
    cluster.run(0.1)

    b.open(RUNTIME, generation=2)
    b.open(RUNTIME + "2")
    cluster.run(0.1)

    assert shared == [RUNTIME]


def test_newcomer_gets_a_snapshot():
    """
    A member that comes later knows all that is bound, in payloads within the carrier's limit.
    """
    cluster, a, b = directories(A, B, max_payload=4000)
    a.open(RUNTIME)
    a.bind(*addresses(2500))
    cluster.run(1)

    c = DirectoryNode(cluster, C)
    cluster.connect()
    cluster.run(2)

    assert all(c.directory.holders(address) == (A,) for address in addresses(2500))
    assert c.directory.holders(RUNTIME) == (A,)
    assert len([piece for to, piece in statements(a, Piece) if to == C]) > 30
    assert b.directory.counts.snapshots_received == 2  # one of each


def test_snapshot_replaces_what_was_held():
    """
    A snapshot replaces the addresses of before at its end: until then lookups find the old and the new ones.
    """
    limits = DirectoryLimits(log_bytes=2000)
    cluster, a, b = directories(A, B, limits=limits, max_payload=2000, capacity=2)
    a.bind(*addresses(500, "old"))
    cluster.run(1)
    cluster.cut(A, B)
    a.unbind(*addresses(500, "old"))
    a.bind(*addresses(500, "new"))
    cluster.run(1)

    cluster.restore(A, B)
    while b.directory.table.count == 500:
        cluster.clock.advance(0.001)
    under_way = {b.directory.holders(address) for address in addresses(500, "old")}
    cluster.run(1)

    assert under_way == {(A,)}
    assert {b.directory.holders(address) for address in addresses(500, "old")} == {()}
    assert {b.directory.holders(address) for address in addresses(500, "new")} == {(A,)}
    assert b.directory.table.count == 500


def test_changes_during_a_snapshot_count_at_once():
    """
    An address that is released while a snapshot is under way is not found any more, and a new start of the
    member ends what it held before and what the snapshot has brought.
    """
    limits = DirectoryLimits(log_bytes=2000)
    cluster, a, b = directories(A, B, limits=limits, max_payload=2000, capacity=2)
    a.bind(*addresses(500, "old"))
    cluster.run(1)
    cluster.cut(A, B)
    a.bind(*addresses(500, "new"))
    cluster.run(1)
    cluster.restore(A, B)
    complete = b.directory.counts.snapshots_received
    while b.directory.table.count < 900:
        cluster.clock.advance(0.001)

    a.unbind(addresses(500, "old")[7])
    cluster.clock.pump([0.001] * 4)
    assert b.directory.holders(addresses(500, "old")[7]) == ()
    assert b.directory.counts.snapshots_received == complete

    cluster.kill(A)
    DirectoryNode(cluster, A, forgets=True)
    cluster.connect()
    assert {b.directory.holders(address) for address in addresses(500, "old")} == {()}
    assert {b.directory.holders(address) for address in addresses(500, "new")} == {()}


def test_short_loss_of_a_link_costs_no_snapshot():
    """
    After a link was down for a moment the member gets the deltas that it has not.
    """
    cluster, a, b = directories(A, B)
    a.bind(ONE)
    cluster.run(0.1)
    cluster.cut(A, B)
    a.bind(TWO)
    a.unbind(ONE)

    cluster.restore(A, B)
    cluster.run(0.1)

    assert (b.directory.holders(ONE), b.directory.holders(TWO)) == ((), (A,))
    assert a.directory.counts.snapshots_sent == 1


def test_snapshot_continues_after_the_loss_of_a_link():
    """
    A snapshot that was interrupted goes on where it was.
    """
    cluster, a, b = directories(A, B, max_payload=2000, capacity=2)
    cluster.cut(A, B)
    b.directory.stop()
    a.bind(*addresses(5000))
    cluster.run(1)
    cluster.kill(B)
    b = DirectoryNode(cluster, B)
    cluster.restore(A, B)
    while b.directory.table.count < 3000:
        cluster.clock.advance(0.001)
    sent = a.directory.counts.pieces_sent
    assert b.directory.table.count < 4000
    cluster.cut(A, B)

    cluster.restore(A, B)
    cluster.run(2)

    assert {b.directory.holders(address) for address in addresses(5000)} == {(A,)}
    assert a.directory.counts.snapshots_sent == 2
    assert a.directory.counts.pieces_sent - sent < sent


def test_member_without_room_gets_everything_later():
    """
    A member that has no room for deltas beyond what is kept gets a snapshot when it has.
    """
    limits = DirectoryLimits(log_bytes=3000)
    cluster, a, b = directories(A, B, limits=limits, capacity=2, max_payload=4000)
    for address in addresses(3000):
        a.bind(address)
        cluster.clock.advance(0)
    cluster.run(3)

    assert {b.directory.holders(address) for address in addresses(3000)} == {(A,)}
    assert a.directory.counts.snapshots_sent > 1


def test_new_start_keeps_addresses_until_it_has_told_all():
    """
    When a member starts again with its memory, its addresses of before are found until it has said what it
    holds now: what is published meanwhile goes to it.
    """
    cluster, a, b = directories(A, B, max_payload=2000)
    a.bind(*addresses(500), ONE)
    cluster.run(0.1)
    cluster.kill(A)
    complete = b.directory.counts.snapshots_received

    a = DirectoryNode(cluster, A)
    a.bind(*addresses(500))
    cluster.connect()
    meanwhile = set()
    while b.directory.counts.snapshots_received == complete:
        meanwhile |= {b.directory.holders(address) for address in addresses(500)}
        cluster.clock.advance(0.001)
    cluster.run(0.1)

    assert meanwhile == {(A,)}
    assert b.directory.holders(ONE) == ()
    assert b.directory.table.count == 500


def test_new_start_without_memory_replaces_addresses_at_once():
    """
    When a member starts again without its memory, its addresses of before end, before it has said what it
    holds now.
    """
    cluster, a, b = directories(A, B)
    a.bind(ONE)
    cluster.run(0.1)
    cluster.kill(A)
    assert b.directory.holders(ONE) == (A,)

    a = DirectoryNode(cluster, A, forgets=True)
    cluster.connect()
    at_once = b.directory.holders(ONE)
    a.bind(TWO)
    cluster.run(0.1)

    assert at_once == ()
    assert b.directory.holders(TWO) == (A,)
    assert b.directory.table.count == 1


def test_silent_member_is_suspected_and_keeps_its_addresses():
    """
    A member that is silent for 15 seconds is suspected; its addresses stay until it is heard again.
    """
    cluster, a, b = directories(A, B)
    a.bind(ONE)
    cluster.run(1)
    cluster.stop(B)  # so that nothing of it is heard
    cluster.cut(A, B)
    cluster.run(13)
    before = b.directory.is_suspected(A)
    cluster.run(3)

    assert (before, b.directory.is_suspected(A)) == (False, True)
    assert b.directory.holders(ONE) == (A,)

    cluster.resume(B)
    cluster.restore(A, B)
    cluster.run(1)
    assert not b.directory.is_suspected(A)


def test_member_that_says_nothing_over_a_link_is_suspected():
    """
    A member that is stopped is suspected although its link is up; one that has nothing to say is not.
    """
    cluster, a, _, c = directories(A, B, C)
    a.bind(ONE)
    cluster.run(1)
    a.directory.stop()
    cluster.stop(A)

    cluster.run(20)

    assert c.directory.is_suspected(A)
    assert not c.directory.is_suspected(B)


def test_addresses_of_a_silent_member_end_with_its_lease():
    """
    The addresses of a silent member end after the lease; a member that comes back later is known again.
    """
    cluster, a, b = directories(A, B, limits=DirectoryLimits(lease_seconds=60))
    a.bind(ONE)
    cluster.run(1)
    cluster.cut(A, B)
    cluster.run(58)
    before = b.directory.holders(ONE)
    cluster.run(3)

    assert (before, b.directory.holders(ONE)) == ((A,), ())
    assert b.directory.table.count == 0

    cluster.restore(A, B)
    cluster.run(1)
    assert b.directory.holders(ONE) == (A,)


def test_stopped_node_does_not_blame_the_others():
    """
    A node that did not run for an hour suspects no member that it hears again, and keeps their addresses.
    """
    cluster, a, b = directories(A, B)
    a.bind(ONE)
    cluster.run(1)

    cluster.clock.advance(7200)

    assert b.directory.holders(ONE) == (A,)
    assert not b.directory.is_suspected(A)


def test_settled_when_all_have_the_change():
    """
    A change is settled when all members have acknowledged it, and not before.
    """
    cluster, a, b, c = directories(A, B, C)
    a.bind(ONE)
    done = a.directory.settled(ONE)

    assert not done.called
    cluster.run(0.1)
    assert done.called
    assert b.directory.holders(ONE) == c.directory.holders(ONE) == (A,)


def test_settled_after_half_a_second_at_most():
    """
    A member that does not acknowledge holds nobody up for more than 0.5 seconds.
    """
    cluster, a, _ = directories(A, B)
    cluster.stop(B)
    a.bind(ONE)
    done = a.directory.settled(ONE)

    cluster.run(0.4)
    assert not done.called
    cluster.run(0.15)
    assert done.called
    assert a.directory.counts.unsettled == 1


def test_settled_does_not_wait_for_suspected_members():
    """
    A change is settled at once if all members are suspected, or if there are none.
    """
    cluster, a, _ = directories(A, B)
    cluster.cut(A, B)
    cluster.run(17)
    a.bind(ONE)

    assert a.directory.settled(ONE).called
    _, alone = directories(A)
    alone.bind(ONE)
    assert alone.directory.settled(ONE).called


def test_waiters_are_bounded():
    """
    Beyond the bound of waiters the oldest is released.
    """
    cluster, a, _ = directories(A, B, limits=DirectoryLimits(waiters=3))
    cluster.stop(B)
    a.bind(ONE)

    waiters = [a.directory.settled(ONE) for _ in range(5)]

    assert [done.called for done in waiters] == [True, True, False, False, False]


def test_unknown_address_is_asked_for():
    """
    A question tells which members hold an address although no delta has told it yet.
    """
    cluster, a, b, c = directories(A, B, C)
    b.bound.add(ONE)
    c.bound.add(ONE)

    found = a.directory.ask(ONE)
    same = a.directory.ask(ONE)
    cluster.run(0.1)

    assert found.result == same.result == (B, C)
    assert a.directory.counts.questions == 1


def test_question_to_a_member_that_is_slow_ends_with_the_answers_of_others():
    """
    Once a member holds the address, the others are waited for only for half a second.
    """
    cluster, a, b, _ = directories(A, B, C)
    b.bound.add(ONE)
    cluster.stop(C)
    slow = a.directory.ask(ONE)
    cluster.run(0.4)
    assert not slow.called
    cluster.run(0.2)
    assert slow.result == (B,)


def test_member_that_is_busy_is_waited_for():
    """
    What a member answers after some seconds counts, and others that ask meanwhile get it, too.
    """
    cluster, a, _, c = directories(A, B, C)
    c.bound.add(ONE)
    cluster.stop(C)
    first = a.directory.ask(ONE)
    cluster.run(3)
    second = a.directory.ask(ONE)
    assert not first.called

    cluster.resume(C)
    cluster.run(0.2)

    assert first.result == second.result == (C,)


def test_question_that_is_lost_is_asked_again():
    """
    A member that did not get the question gets it a little later.
    """
    cluster, a, b = directories(A, B)
    b.bound.add(ONE)
    asked = a.directory.ask(ONE)
    cluster.lose_one(A, B)
    cluster.run(0.3)
    assert not asked.called

    cluster.run(0.7)

    assert asked.result == (B,)


def test_member_that_was_not_asked_may_hold_the_address():
    """
    If a member's link is back when the others have answered, it is not known that nobody holds the address.
    """
    cluster, a, _, c = directories(A, B, C)
    c.bound.add(ONE)
    cluster.cut(A, C)
    cluster.run(20)
    cluster.stop(B)
    asked = a.directory.ask(ONE)
    cluster.run(1)
    cluster.restore(A, C)
    cluster.resume(B)
    cluster.run(0.5)

    assert asked.called
    assert asked.result in (None, (C,))


def test_lasting_question_is_not_joined_for_ever():
    """
    Those who ask some seconds later ask all members again, and get an answer although one is silent.
    """
    cluster, a, b, _ = directories(A, B, C)
    cluster.stop(C)
    a.directory.ask(ONE)
    cluster.run(4)
    b.bound.add(ONE)

    asked = a.directory.ask(ONE)
    cluster.run(0.6)

    assert asked.result == (B,)


@pytest.mark.parametrize("seconds", [5, 2])
def test_question_without_an_answer_says_that_nothing_is_known(seconds):
    """
    A member that does not answer in time, or is lost meanwhile, may hold the address.
    """
    cluster, a, _, _ = directories(A, B, C)
    cluster.stop(C)
    slow, lost = a.directory.ask(ONE, seconds), a.directory.ask(TWO, 60)
    cluster.run(seconds - 0.2)
    assert not slow.called

    cluster.run(0.8)
    cluster.cut(A, C)

    assert slow.result is lost.result is None


def test_questions_are_bounded():
    """
    Beyond the bound of questions no member is asked.
    """
    cluster, a, b = directories(A, B, limits=DirectoryLimits(questions=2))
    b.bound |= {"x:1", "x:2", "x:3"}

    asked = [a.directory.ask(f"x:{number}") for number in (1, 2, 3)]
    cluster.run(0.1)

    assert [found.result for found in asked] == [(B,), (B,), None]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\x00" * 100,
        encode(Delta(0, 1, ["x" * 3000], [], [])),
        encode(Delta(0, 1, ["x"] * 2000, [], [])),
        encode(Delta(0, 1, [], [HeldSession("x", b"short", 1)], [])),
        encode(Delta(-1, 1, ["x"], [], [])),
        encode(Piece(0, 0, 9999, [], [], True)),
        b"\x92\xa5shout\x01",
    ],
)
def test_malformed_payloads_are_counted_and_logged_once(payload):
    """
    What a member sends beyond the bounds changes nothing; it is counted, and logged for the first time.
    """
    _, _, b = directories(A, B)
    events = []
    globalLogPublisher.addObserver(events.append)
    try:
        for _ in range(3):
            b.directory.member_heard(A, payload)
    finally:
        globalLogPublisher.removeObserver(events.append)

    assert b.directory.counts.malformed == 3
    assert len([event for event in events if "malformed" in event["log_format"]]) == 1
    assert b.directory.table.count == 0


def test_gap_is_repaired():
    """
    A statement that was lost is noticed with the next one, and what is missing is sent.
    """
    cluster, a, b = directories(A, B)
    a.bind(ONE)
    cluster.clock.advance(0)
    cluster.lose_one(A, B)
    cluster.run(0.1)
    assert b.directory.holders(ONE) == ()

    a.bind(TWO)
    cluster.run(0.1)

    assert b.directory.holders(ONE) == b.directory.holders(TWO) == (A,)
    assert b.directory.counts.gaps == 1


def test_addresses_of_a_member_are_bounded():
    """
    Addresses beyond the bound are refused, counted and can be asked for; when there is room again, the rest
    is fetched.
    """
    cluster, a, b = directories(A, B, limits=DirectoryLimits(addresses_per_member=100))
    a.bind(*addresses(150))
    cluster.run(1)
    assert b.directory.table.count == 100
    assert b.directory.counts.refused == 50
    asked = b.directory.ask(addresses(150)[149])
    cluster.run(0.1)
    assert asked.result == (A,)

    a.unbind(*addresses(60))
    cluster.run(5)

    left = addresses(150)[60:]
    assert {b.directory.holders(address) for address in left} == {(A,)}


def test_members_are_bounded():
    """
    A member beyond the bound is ignored.
    """
    _, a, b, c = directories(A, B, C, limits=DirectoryLimits(members=1))
    b.bind(ONE)
    c.bind(ONE)

    assert not isinstance(a.directory.holders(ONE), Failure)
    assert len(a.directory.holders(ONE)) <= 1


def test_address_with_a_lone_surrogate_stays_here():
    """
    An address that no encoding can carry is not sent; the others of the same turn are.
    """
    cluster, a, b = directories(A, B)

    a.bind("comm://example.com/\ud800", ONE)
    cluster.run(0.1)

    assert b.directory.holders(ONE) == (A,)
    assert b.directory.table.count == 1
