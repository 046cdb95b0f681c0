"""
Moves of sessions between members: with what waits for them, once and in order, and what becomes of a session
that two members hold.
"""

from tests.support.cluster_members import MemoryCluster
from tests.support.cluster_moves import NAMES, A, B, C, QuickNode, World

S = "hyperty-runtime://example.com/s"


def opened(name=A, session=S):
    """
    A world in which a client has opened the session at one node.
    """
    world = World()
    client = world.client(session)
    client.connect(name)
    world.run(1)
    assert client.is_open
    return world, client


def test_session_moves_with_what_waits_for_it():
    """
    A client that comes back at another member gets what waited at the first, in order, and goes on counting.
    """
    world, client = opened()
    world.publish(B, S, 3)
    world.run(0.5)
    client.is_open = False
    client.connection += 1  # the connection is lost
    world.publish(B, S, 20)
    world.publish(C, S, 20)
    world.run(0.5)

    client.connect(B)
    world.run(0.5)

    assert client.recovered == [False, True]
    assert world.holders(S) == [B]
    assert sorted(client.got) == sorted(world.published[S])
    assert [id for id in client.got if id[0] == "b"] == [id for id in world.published[S] if id[0] == "b"]
    assert world.nodes[B].generation(S) == 2
    assert client.faults == []


def test_move_takes_bindings_along():
    """
    The addresses that are bound to a session are bound at its new holder.
    """
    world, client = opened()

    client.connect(B)
    world.run(0.5)

    assert world.nodes[B].now.sessions[S].bindings == {f"{S}/of/a"}


def test_move_of_an_idle_session_takes_less_than_50_ms():
    """
    A session with an empty queue is open at its new holder within 50 ms, with links that take 1 ms and disks
    that take 2 ms.
    """
    world, client = opened()

    client.connect(B)
    world.run(0.05)

    assert client.is_open
    assert client.recovered == [False, True]


def test_client_is_closed_where_it_was():
    """
    The connection of a session that moves is closed at its earlier holder.
    """
    world, client = opened()
    first = client.connection

    client.connect(B)
    world.run(0.5)

    assert first not in world.nodes[A].connections.values()


def test_client_without_the_right_to_a_session_does_not_move_it():
    """
    The holder refuses a client whose claim is wrong, and keeps the session.
    """
    world, client = opened()

    outcome = []
    world.nodes[B].moves.take(S, b"wrong").addCallback(outcome.append)
    world.run(0.5)

    assert (outcome[0].kind, outcome[0].code) == ("refused", 4403)
    assert world.holders(S) == [A]
    assert client.is_open


def test_dead_holder_costs_two_seconds_and_a_new_epoch():
    """
    A client whose session's holder does not answer begins again after 2 s; when the holder comes back, what
    waited there comes once, and the holder lets the session go.
    """
    world, client = opened()
    world.publish(B, S, 3)
    world.run(0.5)
    client.connection += 1
    world.publish(B, S, 5)
    world.run(0.5)
    world.kill(A)

    client.connect(B)
    world.run(1.9)
    assert not client.is_open
    world.run(0.2)
    assert client.is_open
    assert client.recovered == [False, False]
    assert len(client.got) == 3

    world.start(A)
    world.run(10)

    assert world.holders(S) == [B]
    assert sorted(client.got) == sorted(world.published[S])
    assert world.nodes[B].now.sessions[S].bindings == {f"{S}/of/a", f"{S}/of/b"}
    assert client.faults == []


def test_stopped_holder_believes_for_a_moment_only():
    """
    A holder that was stopped for a minute lets the session go that moved meanwhile, and its messages follow.
    """
    world, client = opened()
    client.connection += 1
    world.publish(C, S, 5)
    world.run(0.5)
    world.stop(A)
    client.connect(C)
    world.run(60)
    assert client.is_open

    world.resume(A)
    world.run(10)

    assert world.holders(S) == [C]
    assert sorted(client.got) == sorted(world.published[S])


def test_holder_that_is_killed_while_it_hands_over_goes_on():
    """
    A holder that is killed after it released a session hands it over when it is back, and so does one whose
    new holder is killed.
    """
    for killed in (A, B):
        for after in (0.002, 0.004, 0.008, 0.012, 0.02, 0.03):
            world, client = opened()
            client.connection += 1
            world.publish(C, S, 50)
            world.run(0.5)
            client.connect(B)
            world.run(after)
            world.kill(killed)
            world.run(3)
            world.start(killed)
            world.run(5)
            if not client.is_open or client.node == killed:
                client.connect(B)
            world.run(10)

            assert world.holders(S) == [B], (killed, after)
            assert sorted(client.got) == sorted(world.published[S]), (killed, after)
            assert client.faults == []


def test_slow_holder_is_waited_for_while_it_hands_over():
    """
    A client waits longer than two seconds for a session that its holder hands over, but with pauses.
    """
    world, client = opened()
    client.connect(B)
    for _ in range(4):
        world.run(0.002)
        world.stop(A)
        world.run(1.5)
        world.resume(A)

    world.run(1)

    assert client.recovered == [False, True]


def test_holder_with_a_slow_disk_is_waited_for():
    """
    A client waits for a session whose holder writes its release to disk for three seconds.
    """
    world, client = opened()
    world.commit_seconds[A] = 3.0

    client.connect(B)
    world.run(4)

    assert client.recovered == [False, True]


def test_holder_that_hands_over_and_ends_does_not_have_to_answer():
    """
    A client that asks for a session while its holder hands it over to a third member, and ends before it
    hears of that, gets it from there.
    """
    world, client = opened()
    world.publish(B, S, 3)
    client.connection += 1
    world.run(0.5)
    world.cluster.cut(A, C)
    client.connect(C)
    world.nodes[A].moves.hand_over(S, B)
    world.run(0.2)
    world.kill(A)

    world.run(1)

    assert client.recovered == [False, True]
    assert client.got == world.published[S]


def test_several_moves_in_a_row_keep_the_order():
    """
    A client that goes from member to member faster than its messages follow gets all of them in order.
    """
    world, client = opened()
    client.connection += 1
    world.publish(B, S, 100)
    world.run(0.5)

    for name in (B, C, A, C, B, A):
        client.connect(name)
        world.run(0.03)
        world.publish(B, S, 5)
    world.run(10)

    assert client.got == world.published[S]
    assert world.holders(S) == [A]
    assert client.faults == []


def test_two_takers_at_once():
    """
    Of two clients that open one session at two members at the same time one has it in the end.
    """
    world, client = opened()

    for name in (B, C):
        client.connect(name)
    world.run(10)

    assert len(world.holders(S)) == 1


def test_handovers_end():
    """
    Nothing of a move is kept at the earlier holder.
    """
    world, client = opened()
    world.publish(C, S, 30)
    client.connect(B)
    world.run(5)

    assert all(not world.nodes[name].now.leaving for name in NAMES)
    assert world.nodes[A].moves.counts.ended == 1
    assert world.nodes[C].directory.holders(S) == (B,)
    assert world.nodes[A].directory.holders(S) == (B,)


def test_large_state_and_messages_are_cut():
    """
    A session with thousands of bindings, and messages larger than a payload of the carrier, move whole.
    """
    world, client = opened()
    bindings = {f"comm://example.com/{number}/{'x' * 50}" for number in range(3000)}
    world.nodes[A].now.sessions[S].bindings |= bindings
    client.connection += 1
    world.publish(A, S, 3, size=50_000)
    world.publish(A, S, 3)
    world.run(1)
    assert world.cluster.max_payload < 50_000

    client.connect(B)
    world.run(2)

    assert bindings < world.nodes[B].now.sessions[S].bindings
    assert client.got == world.published[S]


def test_large_message_goes_on_after_the_loss_of_a_link():
    """
    A message of many parts that was interrupted comes once.
    """
    world, client = opened()
    client.connection += 1
    world.publish(A, S, 2, size=500_000)
    world.run(1)
    for payloads in (6, 12, 30, 50):
        client.connect(B if client.node != B else A)
        world.run(0.01 + payloads / 5000)
        world.cluster.cut(A, B)
        world.run(0.1)
        world.cluster.restore(A, B)
        world.run(1)
    world.run(10)

    assert client.got == world.published[S]
    assert client.faults == []


def test_full_disk_of_the_holder_keeps_the_session_there():
    """
    A holder that cannot write the release keeps the session; its client begins again where it is now, and the
    holder lets go when its disk has room.
    """
    world, client = opened()
    client.connection += 1
    world.publish(C, S, 5)
    world.run(0.5)
    world.full_disks.add(A)

    client.connect(B)
    world.run(3)
    assert client.is_open
    assert client.recovered == [False, False]
    assert A in world.holders(S)

    world.full_disks.clear()
    world.run(10)
    assert world.holders(S) == [B]
    assert sorted(client.got) == sorted(world.published[S])


def test_full_disk_of_the_taker_loses_nothing():
    """
    What cannot be written at the new holder stays at the earlier one, and comes when there is room.
    """
    world, client = opened()
    client.connection += 1
    world.publish(C, S, 5)
    world.run(0.5)
    world.full_disks.add(B)
    client.connect(B)
    world.run(5)

    world.full_disks.clear()
    world.run(10)
    client.connect(B)
    world.run(10)

    assert world.holders(S) == [B]
    assert sorted(client.got) == sorted(world.published[S])
    assert client.faults == []


def test_many_sessions_move_at_once():
    """
    Hundreds of sessions of one member move at once with what waits for them, all within the two seconds that
    their clients wait, and nothing waits for a repetition.
    """
    world = World(capacity=200)
    sessions = [f"hyperty-runtime://example.com/{number}" for number in range(300)]
    for session in sessions:
        world.client(session).connect(A)
    world.run(3)
    for session in sessions:
        world.client(session).connection += 1
        world.publish(A, session, 3)
    world.run(1)

    for number, session in enumerate(sessions):
        world.client(session).connect((B, C)[number % 2])
    world.run(2)

    assert {tuple(world.client(session).recovered) for session in sessions} == {(False, True)}
    assert all(world.client(session).got == world.published[session] for session in sessions)
    assert not world.nodes[A].now.leaving


def test_lost_acknowledgement_of_the_end_is_repeated():
    """
    A handover ends at its holder although the link was lost with the last acknowledgement.
    """
    world, client = opened()
    client.connect(B)
    while not any(ended for _, ended in world.nodes[B].now.progress.values()):
        world.run(0.002)
    world.cluster.cut(A, B)
    world.run(1)
    assert world.nodes[A].now.leaving

    world.cluster.restore(A, B)
    world.run(1)

    assert not world.nodes[A].now.leaving
    assert world.holders(S) == [B]


def test_malformed_statements_change_nothing():
    """
    What is no statement, or beyond a bound, is counted and dropped.
    """
    world, client = opened()
    moves = world.nodes[A].moves

    for payload in (b"", b"\xc1", b"\x93\xa5offer\x01\x02", b"\x92\xa5shout\x01"):
        moves.member_heard(B, payload)
    world.run(1)

    assert moves.counts.malformed == 4
    assert client.is_open


class OpenNode(QuickNode):
    """
    A node whose handovers end when it is told so. It is `in_directory` until it leaves that.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.may_end = False
        self.in_directory = True

    def seal(self, release):
        return self.may_end and super().seal(release)

    def let_go(self, name):
        self.in_directory = False


def test_holder_is_found_until_its_newest_release_is_elsewhere():
    """
    A node that handed a session over, got it back, and hands it over again stays in the directory when the
    first handover ends, for the second one has not come to its new holder.
    """
    cluster, nodes = MemoryCluster(), {}
    first, second, third = (OpenNode(cluster, nodes, name) for name in NAMES)
    cluster.connect()
    first.sessions[S] = 1
    for node in (second, first):
        node.moves.take(S, b"")
        cluster.run(3.5)
    third.moves.take(S, b"")
    cluster.clock.advance(0.001)
    cluster.stop(C)
    first.in_directory = first.may_end = True

    first.moves.more(S)
    cluster.run(0.1)

    assert first.moves.under_way[2] == 1
    assert first.in_directory
    cluster.resume(C)
    cluster.run(0.1)
    assert not first.in_directory
