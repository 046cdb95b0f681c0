"""
Messages between clients of one domain that are at different nodes.
"""

import json
from typing import Any

import msgspec
import pytest

from msgnode.links.exchange.receipts import RemoteReceipt
from msgnode.links.stream.streams import STALE, Envelope
from msgnode.protocol.close_codes import SUPERSEDED
from msgnode.sessions.queue import ANY_NODE
from tests.support.cluster_nodes import DOMAIN, ClusterNode, MemoryCluster
from tests.support.fakes import Client
from tests.support.policy_case import rule

TOPIC = f"comm://{DOMAIN}/chat/changes"


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster(3)


def codes(messages: list[dict[str, Any]]) -> list[int]:
    return [message["body"]["code"] for message in messages if message["type"] in ("response", "receipt")]


def subscribe(client: Client, *addresses: str) -> None:
    sm = f"domain://msg-node.{DOMAIN}/sm"
    client.tell(
        {
            "id": 3,
            "type": "subscribe",
            "from": f"{client.runtime}/sm",
            "to": sm,
            "body": {"resources": addresses},
        }
    )
    assert [200] == codes(client.take())


# -- requests ------------------------------------------------------------------------------


def test_request_and_response(cluster: MemoryCluster) -> None:
    """
    A request reaches a client of another node as it was sent, and its responses come back.
    """
    ann, bob = cluster["n1"].client("ann"), cluster["n2"].client("bob")
    request = {"id": 7, "type": "create", "from": ann.hyperty, "to": bob.hyperty, "body": {"value": 1}}

    ann.tell(request)
    cluster.flow()
    got = bob.take()
    for code in (100, 200):
        bob.tell(
            {"id": 7, "type": "response", "from": bob.hyperty, "to": ann.hyperty, "body": {"code": code}}
        )
    cluster.flow()

    assert got == [request]
    assert codes(ann.take()) == [100, 200]


def test_address_below_a_runtime(cluster: MemoryCluster) -> None:
    """
    What is below a runtimeURL is reached through the node where its session is, without being told.
    """
    ann, bob = cluster["n1"].bare("ann"), cluster["n2"].bare("bob")

    sent = ann.post(f"{bob.runtime}/registry/x")
    cluster.flow()

    assert [sent] == bob.take()
    assert [] == [address for address in cluster.directory.held if "bob" in address]


def test_hyperty_without_an_allocation_is_answered(cluster: MemoryCluster) -> None:
    """
    The route that a node learns from a hyperty's first message is one for the whole domain, and no other node
    learns another one.
    """
    ann, bob = cluster["n1"].bare("ann"), cluster["n2"].client("bob")
    mallory = cluster["n3"].bare("mallory")
    hyperty = f"hyperty://{DOMAIN}/unknown"

    ann.tell({"id": 7, "type": "create", "from": hyperty, "to": bob.hyperty, "body": {}})
    cluster.flow()
    mallory.tell({"id": 8, "type": "create", "from": hyperty, "to": bob.hyperty, "body": {}})
    cluster.flow()
    bob.tell({"id": 7, "type": "response", "from": bob.hyperty, "to": hyperty, "body": {"code": 200}})
    cluster.flow()

    assert ([200], []) == (codes(ann.take()), mallory.take())


def test_request_to_a_member_that_is_silent(cluster: MemoryCluster) -> None:
    """
    A request whose time ends before its node is reached is answered 404, and a receipt says 408.
    """
    ann, bob = cluster["n1"].client("ann"), cluster["n2"].client("bob")
    cluster["n1"].streams.losing = STALE

    ann.request(bob.hyperty)
    ann.request(bob.hyperty, "ping", id=8, receipt=True)
    cluster.flow()

    assert [404, 408] == codes(ann.take())


def test_messages_of_before_a_restart(cluster: MemoryCluster) -> None:
    """
    The sender of a message from before a restart, which was lost then, gets its answer and its receipt.
    """
    ann, bob = cluster["n1"].client("ann"), cluster["n2"].client("bob")
    ann.request(bob.hyperty, receipt=True)
    [(to, envelope, payload)] = cluster["n1"].streams.sent
    cluster.wire.clear()

    cluster["n1"].exchange.ended(to, envelope, payload, STALE)

    assert [408, 404] == codes(ann.take())


def test_unknown_address_is_asked_for(cluster: MemoryCluster) -> None:
    """
    Who holds an address that the directory does not have is asked at all members, once in a second for one
    that no member holds, and not for publications; the sender's messages stay in their order.
    """
    ann, bob = cluster["n1"].client("ann"), cluster["n2"].client("bob")
    cluster.directory.hidden.add(bob.hyperty)

    nobody = f"hyperty://{DOMAIN}/nobody"

    ann.request(TOPIC, "update")
    for number in range(3):
        ann.request(bob.hyperty, "ping", id=number)
        ann.request(nobody, "ping", id=number, receipt=True)
    cluster.flow()

    assert [0, 1, 2] == [message["id"] for message in bob.take()]
    assert [bob.hyperty, nobody, bob.hyperty, bob.hyperty] == cluster.directory.asked
    assert [404, 404, 404] == codes(ann.take())


def test_address_is_not_unknown_because_a_member_is_busy(cluster: MemoryCluster) -> None:
    """
    If a member did not answer, the next message to that address asks again.
    """
    ann, bob = cluster["n1"].client("ann"), cluster["n2"].client("bob")
    cluster.directory.hidden.add(bob.hyperty)
    cluster.directory.busy = True
    ann.request(bob.hyperty, "ping", id=1, receipt=True)
    cluster.directory.busy = False

    ann.request(bob.hyperty, "ping", id=2)
    cluster.flow()

    assert [404] == codes(ann.take())
    assert [2] == [message["id"] for message in bob.take()]


def test_member_that_holds_it_no_more(cluster: MemoryCluster) -> None:
    """
    A request that comes to a node which no longer holds its address is answered 404.
    """
    ann, bob = cluster["n1"].client("ann"), cluster["n2"].client("bob")

    ann.request(bob.hyperty)
    bob.close()
    cluster.flow()

    assert [404] == codes(ann.take())


def test_message_follows_an_address_that_only_asking_finds(cluster: MemoryCluster) -> None:
    """
    A message that comes to a node which no longer holds its address, and does not know yet which one does, is
    sent on to the one that says so.
    """
    ann, bob = cluster["n1"].client("ann"), cluster["n2"].client("bob")
    ann.request(bob.hyperty, "update", id=9)
    cluster["n1"].node.settle()
    bob.post(f"domain://msg-node.{DOMAIN}/sm", "unsubscribe", body={"resource": bob.hyperty})
    carl = cluster["n3"].bare("carl")
    subscribe(carl, bob.hyperty)
    cluster.directory.hidden.add(bob.hyperty)

    cluster.flow()

    assert [9] == [message["id"] for message in carl.take()]


# -- publications --------------------------------------------------------------------------


def test_one_copy_for_each_member(cluster: MemoryCluster) -> None:
    """
    A publication goes once to each node with subscribers, and there to each of them; also to those here.
    """
    ann = cluster["n1"].client("ann")
    hearers = [cluster[node].bare(f"{node}-{number}") for node in ("n1", "n2", "n3") for number in range(3)]
    for hearer in hearers:
        subscribe(hearer, TOPIC)

    ann.request(TOPIC, "update", id=8)
    sent = len(cluster.wire)
    cluster.flow()

    assert 2 == sent
    assert [["update"]] * 9 == [[message["type"] for message in hearer.take()] for hearer in hearers]


def test_subscriber_that_leaves(cluster: MemoryCluster) -> None:
    """
    A node whose last subscriber has left gets no more copies.
    """
    ann = cluster["n1"].client("ann")
    hearers = [cluster["n2"].bare(f"b{number}") for number in range(2)]
    for hearer in hearers:
        subscribe(hearer, TOPIC)

    hearers[0].close()
    ann.request(TOPIC, "update", id=8)
    hearers[1].close()
    ann.request(TOPIC, "update", id=9)

    assert 1 == len(cluster.wire)


def test_receipt_of_one_recipient(cluster: MemoryCluster) -> None:
    """
    The node that delivers a message gives its receipt, exactly one.
    """
    ann, bob = cluster["n1"].client("ann"), cluster["n2"].client("bob")

    ann.request(bob.hyperty, "ping", receipt=True)
    cluster.flow()

    [receipt] = ann.take()
    assert (202, True, bob.hyperty) == tuple(receipt["body"][key] for key in ("code", "final", "to"))


def test_receipt_of_several_recipients(cluster: MemoryCluster) -> None:
    """
    For several recipients there is one receipt at once, as at one node.
    """
    ann = cluster["n1"].client("ann")
    for node in ("n1", "n2", "n3"):
        subscribe(cluster[node].bare(f"{node}-x"), TOPIC)

    ann.request(TOPIC, "update", id=8, receipt=True)
    cluster.flow()

    assert [202] == codes(ann.take())


def test_list_of_recipients(cluster: MemoryCluster) -> None:
    """
    A message to a list reaches each address, at whichever node it is.
    """
    ann = cluster["n1"].client("ann")
    others = [cluster[node].client(f"b{node}") for node in ("n1", "n2", "n3")]

    ann.request([other.hyperty for other in others], "ping")
    cluster.flow()

    assert [1, 1, 1] == [len(other.take()) for other in others]


# -- what is one in the domain ---------------------------------------------------------------


def test_answer_waits_until_members_know(cluster: MemoryCluster) -> None:
    """
    The answer to a subscription leaves when the members know of it.
    """
    bob = cluster["n2"].bare("bob")
    settling = cluster.directory.settling = []

    sm = f"domain://msg-node.{DOMAIN}/sm"
    bob.tell(
        {"id": 3, "type": "subscribe", "from": f"{bob.runtime}/sm", "to": sm, "body": {"resources": [TOPIC]}}
    )
    before = bob.take()
    settling[0].callback(None)

    assert ([], [200]) == (before, codes(bob.take()))


def test_addresses_of_before_the_start_are_told() -> None:
    """
    What sessions held before the node joined its cluster is told then.
    """
    alone = MemoryCluster(0)
    node = ClusterNode(alone, "n9", 9)
    bob = node.client("bob")
    assert {} == alone.directory.held

    node.exchange.start()
    node.members.start()

    assert {bob.hyperty: {node.name: None}} == alone.directory.held
    assert {bob.runtime: {node.name: None}} == alone.directory.runtimes


def test_topics_of_a_node_stay_there(cluster: MemoryCluster) -> None:
    """
    Addresses that belong to each node itself are not told.
    """
    members = cluster["n1"].members
    members.bound("mn:/sessions")
    members.opened("mn://b.example/n1")

    assert ({}, {}, 0) == (cluster.directory.held, cluster.directory.runtimes, members.changes)


# -- policies --------------------------------------------------------------------------------


def test_policies_at_in_and_out(cluster: MemoryCluster) -> None:
    """
    Policies at `in` are asked where the sender is, those at `out` where the recipient is, and no message
    between two nodes of the domain is one of a peer.
    """
    ann, bob = cluster["n1"].client("ann"), cluster["n2"].client("bob")
    peer = rule("deny", {"peer.domain": {"exists": True}}, 3)
    cluster["n2"].use(rule("deny", {"direction": {"equals": "in"}}), peer)
    cluster["n1"].use(rule("deny", {"direction": {"equals": "out"}}), peer)

    ann.request(bob.hyperty, "ping")
    cluster.flow()
    assert ["ping"] == [message["type"] for message in bob.take()]

    cluster["n1"].use(rule("permit"))
    cluster["n2"].use(rule("deny", {"direction": {"equals": "out"}}))
    ann.request(bob.hyperty, "update", id=8, receipt=True)
    ann.request(bob.hyperty, id=9)
    cluster.flow()

    assert ([403, 403], []) == (codes(ann.take()), bob.take())


def test_policy_at_out_knows_the_sender(cluster: MemoryCluster) -> None:
    """
    Where the recipient is, policies know who the sender is, as its own node has verified.
    """
    ann, al, bob = cluster["n1"].client("ann"), cluster["n1"].client("al"), cluster["n2"].client("bob")
    ann.session.identity = "ann@a.example"
    only_ann = {"direction": {"equals": "out"}, "identity.user": {"equals": "ann@a.example"}}
    cluster["n2"].use(rule("permit", only_ann), rule("deny", {"direction": {"equals": "out"}}, 2))

    for client in (ann, al):
        client.request(bob.hyperty, "ping")
    cluster.flow()

    assert [ann.hyperty] == [message["from"] for message in bob.take()]


# -- addresses of others ---------------------------------------------------------------------


def ask_for(client: Any, address: str) -> int:
    sm = f"domain://msg-node.{DOMAIN}/sm"
    client.request(sm, "subscribe", body={"resources": [address]})
    return codes(client.take())[-1]


def test_address_below_a_runtime_at_another_node_cannot_be_bound(cluster: MemoryCluster) -> None:
    """
    What is below the runtimeURL of a session at another node is that session's, as it is at one node.
    """
    ann, bob = cluster["n1"].client("ann"), cluster["n2"].client("bob")

    assert 403 == ask_for(ann, f"{bob.runtime}/y")
    assert 200 == ask_for(ann, f"{ann.runtime}/y")
    assert 200 == ask_for(ann, f"runtime://{DOMAIN}/nobody/y")


def test_from_check_knows_what_sessions_at_other_nodes_hold() -> None:
    """
    With session.from_check a client can neither send from a hyperty that a session at another node has, nor
    bind it; while that node is suspected, it can.
    """
    cluster = MemoryCluster(2, session={"from_check": "refuse"})
    ann, bob = cluster["n1"].client("ann"), cluster["n2"].client("bob")

    ann.tell({"id": 1, "type": "ping", "from": bob.hyperty, "to": bob.hyperty, "body": {}})
    cluster.flow()
    spoofed = bob.take()
    refused = [message["body"]["code"] for message in ann.take()]
    bound = ask_for(ann, bob.hyperty)
    cluster.directory.suspected.add(cluster["n2"].name)

    assert ([], [403], 403) == (spoofed, refused, bound)
    assert 200 == ask_for(ann, bob.hyperty)


# -- hostile or broken members -----------------------------------------------------------------


def test_malformed_messages_of_a_member_are_counted(cluster: MemoryCluster) -> None:
    """
    A message of a member that is no message is counted, and nothing of it is delivered.
    """
    bob = cluster["n2"].client("bob")
    n1, n2 = cluster["n1"].name, cluster["n2"]
    for kind, payload in (
        ("message", b"nonsense"),
        ("message", b"{}"),
        ("receipt", b"\xc1"),
        ("unknown", b""),
        ("messages", b""),
    ):
        n2.exchange.received(n1, Envelope(kind, (b"x", 1), 1000, 5), payload, (), lambda: None)

    assert 5 == n2.exchange.counts["malformed"]
    assert [] == bob.take()


# -- sessions that move --------------------------------------------------------------------


def test_session_that_is_being_handed_over_gets_what_clients_here_send_at_its_new_node(
    cluster: MemoryCluster,
) -> None:
    """
    While a session that has left is still being handed over, messages to its name go to its new node only,
    as those of clients elsewhere do: the node that it moves on to would get them late from here.
    """
    first, second = cluster["n1"], cluster["n2"]
    ann, bob = first.client("ann"), first.bare("bob")
    session = first.node.sessions.get(bob.runtime)
    first.node.sessions.release(session, SUPERSEDED)
    again = second.bare("bob")

    ann.tell({"id": 1, "type": "update", "from": ann.hyperty, "to": f"{bob.runtime}/x", "body": {"n": 1}})
    cluster.flow()

    assert [1] == [message["body"]["n"] for message in again.take()]
    assert 0 == session.mailbox.queued


@pytest.mark.parametrize("of", ["n1", "n2"])
def test_receipt_follows_a_session_that_has_moved(cluster: MemoryCluster, of: str) -> None:
    """
    The receipt of a message that waited for its recipient, at this node or at another one, reaches the sender
    where its session is by then.
    """
    first, third = cluster["n1"], cluster["n3"]
    ann, bob = first.bare("ann"), cluster[of].bare("bob")
    bob.drop()
    ann.tell({"id": 5, "type": "update", "from": ann.runtime, "to": bob.runtime, "body": {}, "receipt": True})
    cluster.flow()
    session = first.node.sessions.get(ann.runtime)
    first.node.sessions.release(session, SUPERSEDED)
    first.node.sessions.forget_released(session)
    ann = third.bare("ann")

    again = Client(cluster[of].node)
    again.reopen(f"{bob.runtime}/{bob.token}")
    cluster.flow()

    assert [(5, 202)] == [(m["id"], m["body"]["code"]) for m in ann.take() if m["type"] == "receipt"]


@pytest.mark.parametrize("is_moved", [True, False])
def test_receipt_that_was_asked_for_before_a_restart_and_moves(
    cluster: MemoryCluster, is_moved: bool
) -> None:
    """
    A session has asked for a receipt here, has been elsewhere while this node was started again, and is back:
    it gets it. One that has never moved has not asked.
    """
    first, second = cluster["n1"], cluster["n2"]
    ann = first.bare("ann")
    session = first.node.sessions.get(ann.runtime)
    assert session is not None
    session.generation = 3 if is_moved else 1
    envelope = Envelope("receipt", (b"n2", 1), 1000, 5, code=200)
    payload = msgspec.msgpack.encode(RemoteReceipt(5, ann.runtime, f"runtime://{DOMAIN}/bob"))

    first.exchange.received(second.name, envelope, payload, (), lambda: None)

    assert ([(5, 200)] if is_moved else []) == [(each["id"], each["body"]["code"]) for each in ann.take()]


def test_answer_of_a_node_follows_a_session_that_has_moved(cluster: MemoryCluster) -> None:
    """
    A request that did not get to its member in time is answered where its sender's session is by then.
    """
    first, third = cluster["n1"], cluster["n3"]
    ann, bob = first.bare("ann"), cluster["n2"].bare("bob")
    ann.tell({"id": 6, "type": "read", "from": ann.runtime, "to": f"{bob.runtime}/x", "body": {}})
    cluster.clock.advance(0)
    (_, _, envelope, _, done) = cluster.wire.popleft()
    session = first.node.sessions.get(ann.runtime)
    first.node.sessions.release(session, SUPERSEDED)
    first.node.sessions.forget_released(session)
    ann = third.bare("ann")

    assert done is not None
    done(envelope, STALE)
    cluster.flow()

    assert [(6, 404)] == [(message["id"], message["body"]["code"]) for message in ann.take()]


@pytest.mark.parametrize("at", ["n1", "n2", "n3"])
def test_request_that_moved_with_its_recipient_is_answered_where_its_sender_is(
    cluster: MemoryCluster, at: str
) -> None:
    """
    A request that came to a node with the session that it is for, and expires there, is answered at whichever
    node its sender is.
    """
    ann, bob = cluster[at].bare("ann"), cluster["n2"].bare("bob")
    bob.drop()
    session = cluster["n2"].node.sessions.get(bob.runtime)
    request = {"id": 8, "type": "read", "from": ann.runtime, "to": f"{bob.runtime}/x", "body": {}}
    now = cluster["n2"].node.sessions.now()

    session.mailbox.adopt(json.dumps(request).encode(), now + 5, 5, asker=ANY_NODE)
    cluster.clock.advance(6)
    cluster.flow()

    assert [(8, 404, "stale")] == [(m["id"], m["body"]["code"], m["body"]["reason"]) for m in ann.take()]
