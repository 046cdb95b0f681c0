"""
Requests whose sender's or recipient's session moves meanwhile: each is answered once.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster_durable import NAMES, STEP_SECONDS, DurableWorld, RoamingClient

A, B, C = NAMES
ANN, BOB = "runtime://example.org/1", "runtime://example.org/2"
OVERDUE_SECONDS = 25  # after which a request to a node that does not answer is answered in its place


class Asking(RoamingClient):
    """
    A client that keeps the requests and answers that it gets.
    """

    def __init__(self, world: DurableWorld, runtime: str) -> None:
        super().__init__(world, runtime, subscribes=False)
        self.requests: list[dict[str, Any]] = []
        self.codes: list[int] = []

    def _hear(self, message: dict[str, Any]) -> None:
        super()._hear(message)
        if message["type"] == "read":
            self.requests.append(message)
        elif message["type"] == "response" and message["from"] != "mn:/session":
            self.codes.append(message["body"]["code"])

    def ask(self, runtime: str) -> None:
        self.send(id=7, type="read", to=f"{runtime}/x", body={})

    def answer(self) -> None:
        for request in self.requests:
            reply = {"id": request["id"], "type": "response", "from": request["to"], "to": request["from"]}
            self.send(**reply, body={"code": 200})


class World(DurableWorld):
    """
    Ann at the first node has asked bob at the third.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.ann, self.bob = Asking(self, ANN), Asking(self, BOB)
        self.clients = {ANN: self.ann, BOB: self.bob}
        self.go(self.ann, A)
        self.go(self.bob, C)

    def go(self, client: RoamingClient, name: str) -> None:
        client.connect(name)
        self.run(3)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_request_whose_sender_moved_is_answered_once(world: World) -> None:
    """
    A sender that moves, and gets its answer at its new node, gets no other when the recipient's node dies.
    """
    world.ann.ask(BOB)
    world.run(0.1)
    world.go(world.ann, B)

    world.bob.answer()
    world.run(1)
    world.kill(C)
    world.run(OVERDUE_SECONDS)

    assert [200] == world.ann.codes


def test_answer_that_came_to_the_senders_earlier_node_counts(world: World) -> None:
    """
    An answer that reaches the sender's earlier node, and comes with what that hands over, is the only one.
    """
    world.ann.ask(BOB)
    world.run(0.1)
    world.slow.add((C, A))
    world.bob.answer()
    world.run(0.1)
    world.ann.connect(B)
    world.run(0.5)
    world.slow.clear()
    world.run(5)

    world.kill(C)
    world.run(OVERDUE_SECONDS)

    assert [200] == world.ann.codes


def test_request_whose_sender_moved_is_answered_if_the_recipient_does_not(world: World) -> None:
    """
    A sender that moves is told at its new node that the recipient's node, which has died, says nothing; also
    if the node where it asked has been killed, too.
    """
    world.ann.ask(BOB)
    world.run(0.1)
    world.go(world.ann, B)

    world.kill(C)
    world.kill(A)
    world.start(A)
    world.run(OVERDUE_SECONDS)

    assert [504] == world.ann.codes


def test_request_whose_recipient_moved_to_the_sender_is_answered_once(world: World) -> None:
    """
    A recipient that moves to the sender's node, and answers there, has answered, even if the node dies where
    it got the request.
    """
    world.ann.ask(BOB)
    world.run(0.1)
    world.go(world.bob, A)

    world.bob.answer()
    world.run(1)
    world.kill(C)
    world.run(OVERDUE_SECONDS)

    assert [200] == world.ann.codes


def test_request_whose_sender_moved_to_the_recipient_is_answered_once(world: World) -> None:
    """
    A sender that moves to the recipient's node waits for it as within one node.
    """
    world.ann.ask(BOB)
    world.run(0.1)
    world.go(world.ann, C)
    world.kill(A)

    world.run(OVERDUE_SECONDS)
    before = list(world.ann.codes)
    world.bob.answer()
    world.run(1)

    assert ([], [200]) == (before, world.ann.codes)


@pytest.mark.parametrize("at", [A, B, C])
def test_request_that_waits_at_a_dead_node_is_answered_when_that_is_back(world: World, at: str) -> None:
    """
    A request that waits for an absent client, whose node is killed, and that comes to the client's new node
    when its time is over, is answered once, wherever its sender is.
    """
    world.bob.drop()
    world.ann.ask(BOB)
    world.run(0.5)
    world.kill(C)
    world.go(world.bob, B)

    world.start(C)
    world.run(5)
    if at != A:
        world.go(world.ann, at)
    world.run(OVERDUE_SECONDS)

    assert 1 == len(world.ann.codes) + len(world.bob.requests)


def test_answer_from_the_recipients_new_node_counts(world: World) -> None:
    """
    A sender whose request was answered at the recipient's new node gets no other answer when the stream to
    the earlier node, which has died before it could acknowledge the request, gives it up.
    """
    world.unheard.add((A, C))
    world.ann.ask(BOB)
    world.run(0.1)
    world.kill(C)
    world.go(world.bob, B)
    world.bob.answer()
    world.run(1)

    world.give_up(A, C)
    world.run(1)

    assert [200] == world.ann.codes


def test_answer_at_the_senders_new_node_counts(world: World) -> None:
    """
    A sender that moved, and was answered at its new node, gets no other answer when the stream of its earlier
    node gives the request up.
    """
    world.unheard.add((A, C))
    world.ann.ask(BOB)
    world.run(0.1)
    world.go(world.ann, B)
    world.bob.answer()
    world.run(1)

    world.give_up(A, C)
    world.run(1)

    assert [200] == world.ann.codes


def test_answer_that_comes_after_the_request_was_given_up_is_too_late(world: World) -> None:
    """
    A sender that moved, and was told that nothing is known of its request, does not get the answer later.
    """
    world.unheard.add((A, C))
    world.ann.ask(BOB)
    world.run(0.1)
    world.go(world.ann, B)
    world.give_up(A, C)
    world.run(1)

    world.bob.answer()
    world.run(1)

    assert [504] == world.ann.codes


def test_answer_where_the_sender_is_counts_while_the_earlier_node_hands_over(world: World) -> None:
    """
    A recipient that moved to the sender's node, and answers there, has answered, although the node where it
    got the request has not ended the handover when it dies, because a third one is away.
    """
    world.kill(B)
    world.run(1)
    world.ann.ask(BOB)
    world.run(0.1)
    world.go(world.bob, A)
    world.bob.answer()
    world.run(1)

    world.kill(C)
    world.run(OVERDUE_SECONDS)

    assert [200] == world.ann.codes


def test_answer_at_the_senders_node_counts_after_the_sender_moves_on(world: World) -> None:
    """
    A sender that was answered by a client of its own node, which had moved there, gets no other answer at its
    next node when the node dies that had got the request.
    """
    world.ann.ask(BOB)
    world.run(0.1)
    world.go(world.bob, A)
    world.bob.answer()
    world.run(1)

    world.go(world.ann, B)
    world.kill(C)
    world.run(OVERDUE_SECONDS)

    assert [200] == world.ann.codes


def test_request_that_expired_at_the_senders_node_is_answered_once(world: World) -> None:
    """
    A request that came to the sender's node with its recipient, and expired there, was answered by that.
    """
    world.bob.drop()
    world.ann.ask(BOB)
    world.run(0.5)
    world.members[C].sessions.moves.hand_over(BOB, A)
    world.run(OVERDUE_SECONDS)
    before = list(world.ann.codes)

    world.go(world.ann, B)
    world.kill(C)
    world.run(OVERDUE_SECONDS)

    assert [404] == before
    assert [404] == world.ann.codes


def test_answer_at_the_senders_node_may_be_too_late(world: World) -> None:
    """
    A sender that was told that nothing is known of its request does not get the answer later, although the
    recipient, which had it, has come to the sender's node; but that of its next request with the same id.
    """
    world.unheard.add((A, C))
    world.ann.ask(BOB)
    world.run(0.1)
    world.go(world.bob, A)
    world.give_up(A, C)
    world.run(1)
    world.bob.answer()
    world.run(1)
    before = list(world.ann.codes)

    world.bob.requests.clear()
    world.ann.ask(BOB)
    world.run(0.1)
    world.bob.answer()
    world.run(1)

    assert [504] == before
    assert [504, 200] == world.ann.codes


@pytest.mark.parametrize("first", [A, B])
def test_sender_that_was_told_moves_on_with_that(world: World, first: str) -> None:
    """
    A sender that was told in place of the recipient, by the node where it asked or for another one, does not
    get the answer where it is later.
    """
    world.unheard.add((A, C))
    world.ann.ask(BOB)
    world.run(0.1)
    world.go(world.ann, first)
    world.give_up(A, C)
    world.run(1)
    world.go(world.ann, C if first == B else B)

    world.bob.answer()
    world.run(1)

    assert [504] == world.ann.codes


def test_request_that_was_given_up_does_not_come_with_its_recipient(world: World) -> None:
    """
    A request whose sender was told that nothing is known of it is not delivered when it comes back to the
    sender's node with what the recipient's earlier node hands over.
    """
    world.slow.add((A, C))
    world.ann.ask(BOB)
    world.run(0.1)
    world.kill(C)
    world.go(world.bob, A)
    world.run(OVERDUE_SECONDS)
    before = list(world.ann.codes)

    world.start(C)
    world.slow.clear()
    world.run(10)
    world.bob.answer()
    world.run(1)

    assert [504] == before
    assert [504] == world.ann.codes


@pytest.mark.parametrize("steps", range(1, 12))
def test_request_that_expires_while_all_nodes_are_away_is_answered_once(world: World, steps: int) -> None:
    """
    All are killed as one hands the recipient's session over to another, and start when its time is over.
    """
    world.bob.drop()
    world.ann.ask(BOB)
    world.run(0.1)
    world.members[C].sessions.moves.hand_over(BOB, B)
    world.run(steps * STEP_SECONDS)
    for name in (A, B, C):
        world.kill(name)
    world.run(OVERDUE_SECONDS)
    for name in (A, B, C):
        world.start(name)
    world.ann.connect(A)
    world.run(OVERDUE_SECONDS)

    assert len(world.ann.codes) == 1
