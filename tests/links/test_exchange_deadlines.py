"""
Senders whose message got lost with the other node: each is answered at its deadline, once.
"""

from typing import Any

import pytest
from twisted.internet.task import Clock

from msgnode.links.exchange.awaited import LATE_SECONDS, AwaitedAnswers, Sent
from msgnode.links.exchange.passing.origins import REDIRECTS
from msgnode.links.stream.streams import ACKNOWLEDGED
from msgnode.protocol.message import Message
from msgnode.structures.deadlines import TURN
from tests.support.links_exchange import MemoryNetwork
from tests.support.policy_case import rule

A, B, C = "a.example", "b.example", "c.example"
BOB = "hyperty://b.example/bob"
REQUEST_SECONDS = 15


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork(A, B, C)


def cut(network: MemoryNetwork, here: str = A, there: str = B) -> None:
    network.cut.add(frozenset((network[here].name, network[there].name)))


def wait(network: MemoryNetwork, seconds: float) -> None:
    for _ in range(round(seconds)):
        network.clock.advance(1)


def told(client: Any) -> list[tuple[str, int, str]]:
    """
    The answers and receipts that came, by type, code and reason.
    """
    return [
        (each["type"], each["body"]["code"], each["body"].get("reason", ""))
        for each in client.take()
        if each["type"] in ("response", "receipt")
    ]


@pytest.mark.parametrize("has_route", [True, False])
def test_a_request_that_is_not_acknowledged(network, has_route):
    """
    A request that was sent to a node which says nothing is answered 504 at its deadline, whether the link
    with it is up or down; what the stream says of it later is no second answer.
    """
    ann = network[A].client("ann")
    ann.request(BOB)
    if not has_route:
        cut(network)

    wait(network, REQUEST_SECONDS - 1)
    before = told(ann)
    wait(network, 6)
    after = told(ann)
    _, _, envelope, _, done = network.wire.popleft()
    done(envelope, ACKNOWLEDGED)
    wait(network, 100)

    assert before == []
    assert after == [("response", 504, "in-doubt")]
    assert told(ann) == []


def test_a_node_that_was_stopped_reads_first(network):
    """
    When the process goes on after it was stopped, the acknowledgements and answers that wait in its sockets
    are taken before a request is given up.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    ann.request(bob.hyperty)
    network.flow()
    bob.tell({"id": 7, "type": "response", "from": bob.hyperty, "to": ann.hyperty, "body": {"code": 200}})
    cut(network)

    network.clock.advance(100)
    network.cut.clear()
    network.flow()
    wait(network, 100)

    assert told(ann) == [("response", 200, "")]


@pytest.mark.parametrize(("fault", "answers"), [("none", []), ("gone", [504]), ("restarted", [504])])
def test_a_request_that_was_acknowledged_and_is_lost(network, fault, answers):
    """
    If the node that took a request never comes back, or comes back without its memory, the answer is 504; if
    it is there, its client has not answered, and nobody speaks for it.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    ann.request(bob.hyperty)
    network.flow()
    if fault == "gone":
        cut(network)
    if fault == "restarted":
        network[A].exchange.restarted(network[B].name)

    wait(network, 120)

    assert [code for _, code, _ in told(ann)] == answers


def test_an_answer_that_comes_too_late(network):
    """
    Who was told that a request is in doubt gets no second answer, unless the id is used again.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    answer = {"id": 7, "type": "response", "from": bob.hyperty, "to": ann.hyperty, "body": {"code": 200}}
    ann.request(bob.hyperty)
    network.flow()
    network[A].exchange.restarted(network[B].name)
    wait(network, 120)
    first = told(ann)

    bob.tell(answer)
    network.flow()
    late, count = told(ann), network[A].exchange.counts["old-answer"]
    ann.request(bob.hyperty)
    network.flow()
    bob.tell(answer)
    network.flow()

    assert (first, late, count) == ([("response", 504, "in-doubt")], [], 1)
    assert told(ann) == [("response", 200, "")]


@pytest.mark.parametrize("to", [BOB, [BOB, "hyperty://b.example/bill"]])
@pytest.mark.parametrize(("length", "code"), [(1024, 504), (1025, 413)])
def test_an_id_of_many_characters_is_refused(network, to, length, code):
    """
    A message to another domain has an id of at most 1,024 characters, because its sender's node keeps it
    until the message is answered; its sender is told.
    """
    ann = network[A].client("ann")
    ann.request(to, id="x" * length, receipt=True)

    wait(network, 120)

    count = 1 if isinstance(to, str) else 2
    codes = [(kind, code) for kind, code, _ in told(ann)]
    assert sorted(codes) == [("receipt", code)] * count + [("response", code)] * count


def test_an_answer_with_a_long_id_is_not_refused(network):
    """
    An answer has the id of the request, which the asker's domain may have accepted.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    request = {"id": "x" * 5000, "type": "create", "from": ann.hyperty, "to": bob.hyperty, "body": {}}
    network.forge(A, B, request)

    bob.tell({**request, "type": "response", "from": bob.hyperty, "to": ann.hyperty, "body": {"code": 200}})
    network.flow()

    assert told(ann) == [("response", 200, "")]


def test_more_requests_than_the_node_notes():
    """
    If more requests wait for an answer than the node keeps, the sender of the most is told that its oldest
    ones are in doubt.
    """
    told_of: list[tuple[int, str]] = []
    table = AwaitedAnswers(lambda node: True, lambda: 0.0, most=3)
    for number in range(5):
        message = Message(number, "create", BOB, "hyperty://a.example/ann")
        told_of += [(sent.id, to) for sent, to in table.put(Sent(message, 1, False, "n", 10.0))]

    assert told_of == [(0, BOB), (1, BOB)]
    assert len(table) == 3


def test_long_names_count_more():
    """
    What the node keeps of requests that wait is bounded by their names, too.
    """
    table = AwaitedAnswers(lambda node: True, lambda: 0.0, most=100)
    for number in range(100):
        message = Message(f"{number}" + "x" * 1000, "create", BOB + "x" * 2000, "hyperty://a.example/ann")
        table.put(Sent(message, 1, False, "n", 10.0))

    assert len(table) == 100 // (1 + 3000 // 512)


def test_answers_to_a_session_are_examined_while_one_may_be_too_late():
    """
    A session that was answered in place of a recipient is one whose answers the data plane does not repeat:
    the recipient's own may still come, from a client of this node, too.
    """
    clock = Clock()
    table = AwaitedAnswers(lambda node: False, clock.seconds)
    sent = Sent(Message(7, "read", BOB, "hyperty://a.example/ann"), 1, False, "n", 10.0)
    table.put(sent)
    table.drop(sent)
    before = table.awaits(1, BOB)

    table.told(sent, BOB)

    assert (before, table.awaits(1, BOB), table.awaits(2, BOB)) == (False, True, False)
    clock.advance(LATE_SECONDS + 1)
    assert not table.awaits(1, BOB)


@pytest.mark.parametrize("code", [100, 200])
def test_a_request_that_was_answered(network, code):
    """
    After an answer, a provisional one too, none is made up.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    ann.request(bob.hyperty)
    network.flow()
    bob.tell({"id": 7, "type": "response", "from": bob.hyperty, "to": ann.hyperty, "body": {"code": code}})
    network.flow()
    cut(network)

    wait(network, 120)

    assert told(ann) == [("response", code, "")]


def test_each_address_of_a_list(network):
    """
    Of a request to several addresses, those that have not answered are answered for.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    ann.request([bob.hyperty, "hyperty://b.example/bill"])
    network.flow()  # there is no bill
    first = told(ann)
    cut(network)

    wait(network, 120)

    assert [code for _, code, _ in first] == [404]
    assert told(ann) == [("response", 504, "in-doubt")]


def test_a_receipt_of_a_message_that_is_not_acknowledged(network):
    """
    A message that was sent before its link went down waits, which its sender is told once; the final receipt
    comes when its time to live has ended, and there is one only.
    """
    ann = network[A].client("ann")
    ann.request(BOB, "update", receipt=True, ttl=60)
    accepted = told(ann)
    cut(network)

    wait(network, 10)
    waiting = told(ann)
    wait(network, 60)
    final = told(ann)
    _, _, envelope, _, done = network.wire.popleft()
    done(envelope, ACKNOWLEDGED)
    wait(network, 100)

    assert accepted == []
    assert waiting == [("receipt", 202, "")]
    assert final == [("receipt", 504, "in-doubt")]
    assert told(ann) == []


def test_a_receipt_of_a_message_that_was_acknowledged(network):
    """
    The sender of a message that the other node has is not told that it waits, and gets the receipt of that
    node when there is a path again.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    ann.request(bob.hyperty, "update", receipt=True, ttl=60)
    network.step()
    ann.request(bob.hyperty, "update", id=8)  # so that the node has something to deliver
    cut(network)
    wait(network, 20)
    waiting = told(ann)
    network.cut.clear()
    network.flow()

    assert waiting == []
    assert told(ann) == [("receipt", 202, "")]


def test_a_receipt_of_a_node_that_lost_it(network):
    """
    If the node that has acknowledged a message gives no final receipt, the sender's own node gives it.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    ann.request(bob.hyperty, "update", receipt=True, ttl=10)
    network.step()
    network.wire.clear()  # the receipt
    wait(network, 20)
    before = told(ann)

    wait(network, 120)

    assert before == []
    assert told(ann) == [("receipt", 504, "in-doubt")]


def test_a_request_that_was_redirected_to_a_node_that_is_gone(network):
    """
    The node that redirected a request answers, if the third domain never acknowledges it.
    """
    network[B].use(
        rule("permit", {"msgTo": {"like": "*/desk"}}, obligations={"redirect": "hyperty://c.example/cid"})
    )
    network.features[network[B].name] = {REDIRECTS}
    ann = network[A].client("ann")
    ann.request("hyperty://b.example/desk")
    network.step()
    cut(network, B, C)

    wait(network, 25)
    network.flow()
    wait(network, 25)
    network.flow()

    assert told(ann) == [("response", 504, "in-doubt")]


def test_requests_that_a_client_holds_delay_no_other(network):
    """
    However many requests a reachable node has taken and not answered, one to a node that is gone is answered
    within seconds.
    """
    ann, bob, carol = (network[each].client(name) for each, name in ((A, "ann"), (B, "bob"), (C, "carol")))
    for number in range(3 * TURN):
        ann.request(bob.hyperty, id=f"held {number}")
    network.flow()
    ann.request(carol.hyperty, id="gone")
    network.flow()
    cut(network, A, C)
    ann.take()
    network[A].exchange.restarted(network[C].name)

    wait(network, REQUEST_SECONDS + 5)

    assert [(each["id"], each["body"]["code"]) for each in ann.take()] == [("gone", 504)]


def test_senders_learn_in_slices_that_a_route_is_lost(network):
    """
    When a route is lost, very many senders do not hold the event loop: all learn it within some turns.
    """
    ann = network[A].client("ann")
    for number in range(3 * TURN):
        ann.request(BOB, "update", id=number, receipt=True, ttl=600)
    steps = network[A].exchange.receipts.routes_lost({network[B].name})
    told_in = []
    for _ in steps:
        told_in.append(len(ann.take()))

    assert told_in[0] < TURN
    assert sum(told_in) + len(ann.take()) == 3 * TURN
