"""
Clients that come back to a node which has not ended letting their session go.
"""

from pathlib import Path

from tests.support.cluster_durable import NAMES, DurableWorld

A, B, C = NAMES
S, OTHER = "runtime://example.org/1", "runtime://example.org/2"


def test_client_that_comes_back_before_its_session_has_left_keeps_it(tmp_path: Path) -> None:
    """
    A client that goes to another node, and comes back while the first one still waits until its own messages
    have arrived, has its session again.
    """
    world = DurableWorld(tmp_path)
    client = world.client(S)
    client.connect(A)
    world.client(OTHER).connect(B)
    world.run(1)
    world.slow.add((A, B))
    world.publish(A, OTHER, 1)
    client.connect(B)
    world.run(0.1)

    client.connect(A)
    world.run(1.5)

    assert client.is_open
    assert [True, True] == client.recovered


def test_session_that_came_back_is_bound_once_after_a_restart(tmp_path: Path) -> None:
    """
    A node to which a session came back while it was handing it over, and which is started again before the
    end of that, gives it each publication of its clients once.
    """
    world = DurableWorld(tmp_path)
    client = world.client(S)
    client.connect(A)
    world.run(1)
    world.stop(C)
    client.connect(B)
    world.run(0.02)
    world.members[B].sessions.drain()
    world.run(3)

    world.kill(A)
    world.start(A)
    world.publish(A, S, 5)
    world.heal()

    assert world.published[S] == sorted(client.got)


def test_client_that_comes_back_gets_nothing_that_it_had_elsewhere(tmp_path: Path) -> None:
    """
    A publication that a client got at one node comes once, although its session is at a third node by then,
    or at the first again, when the copy comes to the first that had been sent there.
    """
    world = DurableWorld(tmp_path)
    client = world.client(S)
    client.connect(A)
    world.run(1)
    world.slow.add((C, A))
    world.publish(C, S, 4)
    for name in (C, B, A):
        client.connect(name)
        world.run(3)
        world.publish(C, S, 4)
        world.run(1)
    world.slow.clear()
    world.heal()

    assert sorted(world.published[S]) == sorted(client.got)


def test_name_is_that_of_the_last_to_leave_after_a_restart(tmp_path: Path) -> None:
    """
    A node that a session has left twice, and that is started again before the end of that, hands over by the
    later one what comes to the session's name.
    """
    world = DurableWorld(tmp_path)
    client = world.client(S)
    client.connect(A)
    world.run(1)
    world.slow.add((C, A))
    world.publish(C, S, 1)
    for name in (B, A, B):
        client.connect(name)
        world.run(1.8)

    world.kill(A)
    world.start(A)

    node = world.members[A].node
    released = [each for each in node.sessions.released.values() if each.runtime == S]
    assert 2 == len(released)
    assert (max(released, key=lambda each: each.sid),) == node.routes.resolve(S)


def test_client_whose_session_is_lost_at_once_comes_back(tmp_path: Path) -> None:
    """
    A client whose session begins again at a node that has just heard of a higher one is not left with a
    connection of no session.
    """
    world = DurableWorld(tmp_path)
    client = world.client(S)
    client.connect(B)
    world.publish(B, S, 8)
    client.connect(C)
    world.publish(A, OTHER, 1)
    world.stop(A)
    world.stop(B)
    world.run(8)
    world.resume(A)
    client.connect(A)
    world.heal()

    assert sorted(world.published[S]) == sorted(client.got)


def test_message_with_one_recipient_has_no_copies(tmp_path: Path) -> None:
    """
    Only what a member has sent to several nodes is known by an id where it waits.
    """
    world = DurableWorld(tmp_path)
    for runtime, name in ((S, B), ("runtime://example.org/11", A)):  # both subscribe to one topic
        world.client(runtime).connect(name)
    world.run(1)
    world.client(S).drop()
    world.publish(A, S, 2)  # to the session, and to the topic
    world.run(1)

    session = world.members[B].node.sessions.get(S)

    assert session is not None
    assert [False, True] == [kept.copy is not None for kept in session.mailbox.waiting_messages()]


def test_sender_keeps_its_order_when_a_client_comes_back_at_once(tmp_path: Path) -> None:
    """
    Publications and messages by name of one sender come in order to a client that goes to another node and
    back, although what the sender's node sent to the first one comes late.
    """
    world = DurableWorld(tmp_path)
    client = world.client(S)
    client.connect(A)
    world.run(1)
    world.slow.add((C, A))
    for name in (B, A):
        client.connect(name)
        for _ in range(10):
            world.publish(C, S, 2)
            world.run(0.01)
    world.slow.clear()

    world.heal()

    assert world.published[S] == client.got
