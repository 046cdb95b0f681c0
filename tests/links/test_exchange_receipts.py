"""
Receipts across domains: exactly one is final, and it says which nodes the message passed.
"""

import pytest

from msgnode.links.stream.streams import Outcome
from tests.support.links_exchange import MemoryNetwork
from tests.support.policy_case import rule

A, B = "a.example", "b.example"
NODES = ["mn://a.example/n1", "mn://b.example/n1"]


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork(A, B)


def receipts(client):
    return [message["body"] for message in client.take() if message["type"] == "receipt"]


def test_client_that_does_not_acknowledge(network):
    """
    The final receipt is 202 where the client does not acknowledge, and does not say how many there are.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")

    ann.request(bob.hyperty, "ping", receipt=True, transaction="t")
    network.flow()

    [receipt] = ann.take()
    assert (receipt["id"], receipt["from"], receipt["to"]) == (7, "mn:/receipt", ann.hyperty)
    assert receipt["transaction"] == "t"
    assert [hop["node"] for hop in receipt["body"].pop("path")] == NODES
    assert receipt["body"] == {
        "code": 202,
        "description": "delivered to a client that does not acknowledge",
        "to": bob.hyperty,
        "final": True,
    }


def test_client_that_acknowledges(network):
    """
    The final receipt is 200 when the client has acknowledged, and not before.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    bob.tell(
        {
            "id": 1,
            "type": "open",
            "from": bob.runtime,
            "to": "mn:/session",
            "body": {"resume": True},
        }
    )
    bob.take()

    ann.request(bob.hyperty, "ping", receipt=True)
    network.flow()
    before = receipts(ann)
    bob.tell({"id": 0, "type": "ack", "from": bob.runtime, "to": "mn:/session", "body": {"received": 1}})
    network.flow()

    assert before == []
    [receipt] = receipts(ann)
    assert (receipt["code"], receipt["final"]) == (200, True)
    assert [hop["node"] for hop in receipt["path"]] == NODES


def test_unknown_and_refused_look_alike():
    """
    A sender of another domain cannot tell an address that nobody has from one that refuses it; the path of
    the message ends at the node there in both cases.
    """
    closed = rule("deny", {"peer.domain": {"equals": A}})
    network = MemoryNetwork(A, B)
    network[B].use(closed)
    ann, bob = network[A].client("ann"), network[B].client("bob")

    ann.request(bob.hyperty, receipt=True)
    network.flow()
    refused = ann.take()
    network[B].use()
    ann.request("hyperty://b.example/nobody", receipt=True)
    network.flow()
    unknown = ann.take()

    assert [{**message["body"], "to": ""} for message in refused if message["type"] == "receipt"] == [
        {**message["body"], "to": ""} for message in unknown if message["type"] == "receipt"
    ]
    [receipt] = [message["body"] for message in unknown if message["type"] == "receipt"]
    assert [hop["node"] for hop in receipt["path"]] == NODES
    assert receipt["path"][-1]["micros"] == 0
    [answer, other] = [[m["body"] for m in got if m["type"] == "response"] for got in (refused, unknown)]
    assert [each["code"] for each in (*answer, *other)] == [404, 404]


@pytest.mark.parametrize(("here", "code"), [(B, 404), (A, 403)])
def test_where_it_was_refused(here, code):
    """
    What the own node refuses is 403, what the other one refuses is 404.
    """
    network = MemoryNetwork(A, B)
    network[here].use(rule("deny", {"actionType": {"equals": "create"}}))
    ann = network[A].client("ann")

    ann.request("hyperty://b.example/bob", receipt=True)
    network.flow()

    got = ann.take()
    assert [message["body"]["code"] for message in got if message["type"] == "response"] == [code]
    assert [message["body"]["code"] for message in got if message["type"] == "receipt"] == [code]


@pytest.mark.parametrize(
    "outcome",
    [Outcome(408, "stale"), Outcome(504, "in-doubt"), Outcome(502, "no-path"), Outcome(502, "no-key")],
)
def test_lost_on_the_way(network, outcome):
    """
    The receipt of a message that did not arrive has the code of what happened, 408 for one that went stale.
    """
    ann = network[A].client("ann")
    network[A].streams.losing = outcome

    ann.request("hyperty://b.example/bob", "ping", receipt=True)
    network.flow()

    [body] = receipts(ann)
    assert (body["code"], body["reason"], body["final"]) == (outcome.code, outcome.reason, True)
    assert [hop["node"] for hop in body["path"]] == NODES[:1]


def test_no_room(network):
    """
    A message for which there is no room has its final receipt at once.
    """
    ann = network[A].client("ann")
    network[A].streams.room = 0

    ann.request("hyperty://b.example/bob", "ping", receipt=True)

    [body] = receipts(ann)
    assert (body["code"], body["reason"], body["final"]) == (507, "overflow", True)
    assert [hop["node"] for hop in body["path"]] == NODES[:1]


def test_drained_domain(network):
    """
    A message for a domain that an operator drains is refused, and its final receipt says so.
    """
    ann = network[A].client("ann")
    network[A].streams.drained.add(network[B].name)

    ann.request("hyperty://b.example/bob", "ping", receipt=True)

    [body] = receipts(ann)
    assert (body["code"], body["reason"], body["final"]) == (403, "policy", True)
    assert [hop["node"] for hop in body["path"]] == NODES[:1]


def test_answers_pass_while_a_domain_is_drained(network):
    """
    What clients of the drained domain have asked for is answered, by clients here and by the node.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    network[A].streams.drained.add(network[B].name)

    bob.request(ann.hyperty)
    bob.request("hyperty://a.example/nobody", id=8)
    network.flow()
    ann.tell({"id": 7, "type": "response", "from": ann.hyperty, "to": bob.hyperty, "body": {"code": 200}})
    network.flow()

    assert {(each["id"], each["body"]["code"]) for each in bob.take()} == {(7, 200), (8, 404)}


def test_waiting_for_a_route(network):
    """
    While no route leads there the receipt is 202 and not final; the final one follows.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    ann.request(bob.hyperty)
    network.flow()
    network.cut.add(frozenset((network[A].name, network[B].name)))

    ann.request(bob.hyperty, "ping", receipt=True)
    network.flow()
    waiting = receipts(ann)
    network.cut.clear()
    network.flow()

    [provisional] = waiting
    assert provisional == {
        "code": 202,
        "description": "waiting for a route",
        "to": bob.hyperty,
        "final": False,
    }
    assert [(each["code"], each["final"]) for each in receipts(ann)] == [(202, True)]


def test_stale_at_the_recipient(network):
    """
    A message that waits too long for a client that is away has the receipt 408.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    bob.drop()

    ann.request(bob.hyperty, receipt=True)
    network.flow()
    network.clock.advance(16)
    network.flow()

    assert [(each["code"], each["final"]) for each in receipts(ann)] == [(408, True)]


def test_in_doubt_and_delivered(network):
    """
    A receipt that comes after the final one is not passed on.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    ann.request(bob.hyperty, "ping", receipt=True)
    _, _, envelope, _, done = network.wire[0]

    done(envelope, Outcome(504, "in-doubt"))
    network.flow()

    assert [each["code"] for each in receipts(ann)] == [504]


def test_restart_of_the_senders_node(network):
    """
    What became of a message from before a restart is told to the session that holds its `from`.
    """
    ann = network[A].client("ann")
    ann.request("hyperty://b.example/bob", receipt=True)
    _, destination, envelope, payload, _ = network.wire.pop()

    network[A].exchange.ended(destination, envelope, payload, Outcome(504, "in-doubt"))

    receipt, answer = ann.take()
    assert (receipt["body"]["code"], answer["body"]["code"]) == (504, 504)
    assert receipt["body"]["path"] == [{"node": NODES[0], "micros": 0}]


def test_message_for_a_domain_that_was_never_reached(network):
    """
    The final receipt is 502, and its path ends at the sender's node.
    """
    ann = network[A].client("ann")
    network.cut.add(frozenset((network[A].name, network[B].name)))

    ann.request("hyperty://b.example/bob", "ping", receipt=True)

    [body] = receipts(ann)
    [hop] = body["path"]
    assert (body["code"], body["reason"], hop["node"], body["final"]) == (502, "no-path", NODES[0], True)
    assert hop["micros"] >= 0


def test_list(network):
    """
    Each address of a list has a final receipt.
    """
    ann, bob, bea = network[A].client("ann"), network[B].client("bob"), network[B].client("bea")

    ann.request([bob.hyperty, bea.hyperty, "hyperty://b.example/nobody"], "ping", receipt=True)
    network.flow()

    got = receipts(ann)
    assert {each["to"]: each["code"] for each in got} == {
        bob.hyperty: 202,
        bea.hyperty: 202,
        "hyperty://b.example/nobody": 404,
    }
    assert all(each["final"] for each in got)


def test_receipt_of_a_domain_for_another(network):
    """
    A domain gives receipts for its own addresses only.
    """
    ann = network[A].client("ann")
    ann.request("hyperty://b.example/bob", "ping", receipt=True)
    network.wire.clear()

    network.forge(B, A, [7, ann.hyperty, "hyperty://c.example/x"], kind="receipt", code=200)

    assert ann.take() == []


def test_a_receipt_with_a_name_of_many_kilobytes_is_dropped(network):
    """
    The path of a receipt has names of nodes; a client gets none that no node can have.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")

    receipt = [7, ann.hyperty, bob.hyperty, [["mn://b.example/" + "n" * 1000, 1]]]
    network.forge(B, A, receipt, kind="receipt", code=200)

    assert ann.take() == []
    assert dict(network[A].exchange.counts) == {"malformed": 1}


@pytest.mark.parametrize("code", [0, 100, -5, 299, 302, 600, 10**9])
def test_a_receipt_with_a_code_of_no_outcome_is_dropped(network, code):
    """
    A final receipt says what became of a message.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    ann.request(bob.hyperty, receipt=True)
    network.wire.clear()

    network.forge(B, A, [7, ann.hyperty, bob.hyperty], kind="receipt", code=code)
    before = receipts(ann)
    network.forge(B, A, [7, ann.hyperty, bob.hyperty], kind="receipt", code=403, text="x" * 9000)

    assert before == []
    assert network[A].exchange.counts["malformed"] == 1
    [receipt] = receipts(ann)
    assert (receipt["code"], len(receipt["description"])) == (403, 1000)


def test_words_of_another_domain_are_cleaned(network):
    """
    The text, the reason and the path that another domain gives reach the client without control characters
    and without names that no node has; each peer has a bounded number of reasons.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    path = [[NODES[0], 5], ["mn://\x1b[2J/x", 5], ["nonsense", 5], [NODES[1], 1 << 60]]
    ann.request(bob.hyperty, "ping", receipt=True)
    network.wire.clear()

    network.forge(
        B, A, [7, ann.hyperty, bob.hyperty, path], kind="receipt", code=403, text="a\x1b[2Jb", reason="a\nb"
    )
    for number in range(300):
        network[A].exchange.counts.note(B, f"reason-{number}")

    [receipt] = receipts(ann)
    assert (receipt["description"], receipt["reason"]) == ("a\ufffd[2Jb", "refused")
    assert receipt["path"] == [{"node": NODES[0], "micros": 5}, {"node": NODES[1], "micros": 1 << 40}]
    assert len(network[A].exchange.counts) <= 101
