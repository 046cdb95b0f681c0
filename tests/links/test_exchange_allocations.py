"""
Addresses that the node of another domain allocates: they belong to the session that asked.
"""

import msgspec
import pytest

from msgnode.links.stream.streams import Outcome
from msgnode.sessions.routing import ALLOCATED, OWNED
from tests.support.links_exchange import MemoryNetwork
from tests.support.policy_case import rule

A, B = "a.example", "b.example"
SERVICE = "domain://msg-node.b.example/hyperty-address-allocation"


@pytest.fixture
def network() -> MemoryNetwork:
    network = MemoryNetwork(A, B)
    network[B].use(rule("permit", {"msgTo": {"equals": SERVICE}, "peer.domain": {"equals": A}}))
    return network


def allocate(network, client, number=1, **fields):
    client.request(SERVICE, body={"value": {"number": number}, **fields})
    network.flow()
    [answer] = client.take()
    assert (answer["from"], answer["body"]["code"]) == (SERVICE, 200)
    return answer["body"]["value"]["allocated"]


def test_reached_under_the_address(network):
    """
    Clients of the other domain reach the session under its address there, and get messages from it.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    [address] = allocate(network, ann)

    bob.request(address, body={"value": 1})
    ann.tell({"id": 9, "type": "ping", "from": address, "to": bob.hyperty, "body": {}})
    network.flow()

    assert address.startswith("hyperty://b.example/")
    assert [each["to"] for each in ann.take()] == [address]
    assert [each["from"] for each in bob.take()] == [address]


def test_of_the_session_that_asked(network):
    """
    No other session here sends from the address, gets what is sent to it, or gives it back.
    """
    ann, al = network[A].client("ann"), network[A].client("al")
    [address] = allocate(network, ann)

    al.tell({"id": 9, "type": "create", "from": address, "to": "hyperty://b.example/bob"})
    al.request(SERVICE, "delete", body={"resource": [address]})
    al.request(address, "ping", id=10)

    assert [each["body"]["code"] for each in al.take()] == [403, 403]
    assert [each["id"] for each in ann.take()] == [10]
    assert not [each for each, _, _ in network[A].streams.sent[1:]]


@pytest.mark.parametrize("is_before", [False, True])
def test_a_subscriber_here_hears_what_the_other_domain_sends_there(is_before):
    """
    This node decides who hears an address that its session was given, whoever was first; its session does.
    """
    room, service = "room://b.example/1", "domain://msg-node.b.example/address-allocation"
    opened = rule("permit", {"msgTo": {"equals": service}, "peer.domain": {"equals": A}}, id="opened")
    network = MemoryNetwork(A, B, pools={"rooms": {"scheme": "room", "addresses": [room]}})
    network[B].use(opened, rule("permit"))
    ann, al, bob = network[A].client("ann"), network[A].client("al"), network[B].client("bob")

    def subscribe():
        network[A].subscribe(al, room)
        network.flow()
        assert [each["body"]["code"] for each in al.take()] == [200]

    if is_before:
        subscribe()
    ann.request(service, body={"scheme": "room"})
    network.flow()
    assert [each["body"] for each in ann.take()] == [{"code": 200, "value": {"allocated": [room]}}]
    if not is_before:
        subscribe()

    bob.tell({"id": 9, "type": "update", "from": bob.hyperty, "to": room, "body": {}})
    network.flow()

    assert [each["id"] for each in ann.take() + al.take()] == [9, 9]
    if is_before:  # the subscription is older than the allocation, and outlives it
        ann.request(service, "delete", body={"resource": [room]})
        network.flow()
        bob.tell({"id": 10, "type": "update", "from": bob.hyperty, "to": room, "body": {}})
        network.flow()
        assert [each["id"] for each in al.take()] == [10]
        bob.tell(
            {
                "id": 11,
                "type": "create",
                "from": f"{bob.runtime}/x",
                "to": service,
                "body": {"scheme": "room"},
            }
        )
        assert [each["body"]["code"] for each in bob.take()] == [200]


@pytest.mark.parametrize("how", ["delete", "close"])
@pytest.mark.parametrize("is_drained", [False, True])
def test_given_back(network, how, is_drained):
    """
    The address is given back when the session deletes it, or ends, even if the domain is drained.
    """
    ann = network[A].client("ann")
    [address] = allocate(network, ann)
    if is_drained:
        network[A].streams.drained.add(network[B].name)
    there = network[B].node.sessions.get(network[A].name)
    before = there.bindings.get(address, 0) & ALLOCATED

    if how == "delete":
        ann.request(SERVICE, "delete", body={"resource": [address]})
    else:
        ann.close()
    network.flow()

    assert before
    assert address not in there.bindings
    assert len(network[A].exchange.allocations) == 0


def test_children(network):
    """
    The children named in the request belong to the session, too.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    [address] = allocate(network, ann, childrenResources=["messages"])

    bob.request(f"{address}/children/messages", "update")
    network.flow()

    assert [each["to"] for each in ann.take()] == [f"{address}/children/messages"]


def test_keys(network):
    """
    Allocation keys are not offered: all sessions of this node would share them there.
    """
    ann = network[A].client("ann")

    ann.request(SERVICE, body={"value": {"allocationKey": "k"}})

    assert [each["body"]["code"] for each in ann.take()] == [501]


def test_addresses_that_a_domain_cannot_give(network):
    """
    A domain gives addresses of its own only.
    """
    ann = network[A].client("ann")
    ann.request(SERVICE)
    answer = {"code": 200, "value": {"allocated": ["hyperty://a.example/x", "hyperty://c.example/x", 5]}}
    network.wire.clear()

    network.forge(B, A, {"id": 7, "type": "response", "from": SERVICE, "to": ann.hyperty, "body": answer})

    assert not any(kinds & ALLOCATED for kinds in ann.session.bindings.values())
    assert network[A].exchange.counts["peer"] == 2


def test_not_opened(network):
    """
    Without a rule that names it, the allocation service is closed to other domains.
    """
    network[B].use()
    ann = network[A].client("ann")

    ann.request(SERVICE)
    network.flow()

    assert [each["body"]["code"] for each in ann.take()] == [404]


def bound_there(network):
    """
    The addresses that the node of A holds at B.
    """
    session = network[B].node.sessions.get(network[A].name)
    return [address for address, kinds in session.bindings.items() if kinds & ALLOCATED]


def wait(network, seconds):
    for _ in range(round(seconds)):
        network.clock.advance(1)


@pytest.mark.parametrize("how", ["told", "dropped", "ended"])
def test_a_grant_that_comes_too_late_is_given_back(network, how):
    """
    The addresses in an answer of which its asker learns nothing go back to their domain: it was answered 504
    before, its node knows nothing of the request any more, or its session has ended.
    """
    ann = network[A].client("ann")
    ann.request(SERVICE, body={"value": {"number": 3}, "childrenResources": ["messages"]})
    network.step()  # the request; the answer is on the wire
    granted = len(bound_there(network))
    if how == "told":
        network[A].exchange.restarted(network[B].name)
        wait(network, 30)
    elif how == "dropped":
        for number in range(10_000):
            ann.request(SERVICE, id=f"{number}", body={})
            network.wire.pop()
    else:
        ann.close()
    network.flow()
    wait(network, 10)
    network.flow()

    assert granted == 6
    assert bound_there(network) == []
    codes = [each["body"]["code"] for each in ann.take() if each["id"] == 7 and each["type"] == "response"]
    assert codes == ([] if how == "ended" else [504])


@pytest.mark.parametrize("reason", ["stale", "in-doubt"])
def test_a_grant_that_never_arrives_is_taken_back(network, reason):
    """
    The addresses in an answer that was lost on its way are free again at their domain.
    """
    ann = network[A].client("ann")
    ann.request(SERVICE, body={"value": {"number": 2}, "childrenResources": ["messages"]})
    network.step()
    granted = len(bound_there(network))
    network[B].streams.losing = Outcome(408 if reason == "stale" else 504, reason)
    network.flow()
    network[B].streams.losing = None

    network.flow()
    wait(network, 1)

    assert granted == 4
    assert bound_there(network) == []


def test_a_grant_from_before_a_restart_that_never_arrives_is_taken_back(network):
    """
    After a restart, too, the addresses in an answer that was lost are free again.
    """
    ann = network[A].client("ann")
    ann.request(SERVICE, body={"value": {}})
    network.step()
    _, destination, envelope, payload, _ = network.wire.popleft()

    network[B].exchange.ended(destination, envelope, payload, Outcome(408, "stale"))
    network.flow()

    assert bound_there(network) == []
    assert [each["body"]["code"] for each in ann.take()] == [404]


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_delete_from_before_a_restart_that_never_arrives_is_done_by_the_node(network, is_kept):
    """
    What a client had released is given back; what the restored session still has stays its own.
    """
    ann = network[A].client("ann")
    [address] = allocate(network, ann)
    ann.request(SERVICE, "delete", body={"resource": [address]})
    _, destination, envelope, payload, _ = network.wire.popleft()
    if is_kept:  # the session was written to disk before the delete, and not after it
        network[A].node.routes.bind(address, network[A].node.sessions.get(ann.runtime), ALLOCATED)

    network[A].exchange.ended(destination, envelope, payload, Outcome(408, "stale"))
    wait(network, 10)
    network.flow()

    assert bound_there(network) == ([address] if is_kept else [])


def test_without_room_an_address_is_given_back_later(network):
    """
    If the stream to the domain is full, a delete is refused, and changes nothing; the addresses of a session
    that has ended are given back when there is room.
    """
    ann = network[A].client("ann")
    [address] = allocate(network, ann)
    network[A].streams.room = 0

    ann.request(SERVICE, "delete", body={"resource": [address]})
    refused = [each["body"]["code"] for each in ann.take()]
    held = len(network[A].exchange.allocations)
    ann.close()
    wait(network, 30)
    before = bound_there(network)
    network[A].streams.room = 10
    wait(network, 6)
    network.flow()

    assert (refused, held, before) == ([507], 1, [address])
    assert bound_there(network) == []


def test_a_domain_gives_no_more_than_was_asked_for(network):
    """
    Addresses beyond the number in the request are given back.
    """
    ann = network[A].client("ann")
    ann.request(SERVICE, body={"value": {"number": 2}})
    network.wire.clear()
    allocated = [f"hyperty://b.example/{number}" for number in range(5)]
    body = {"code": 200, "value": {"allocated": allocated}}

    network.forge(B, A, {"id": 7, "type": "response", "from": SERVICE, "to": ann.hyperty, "body": body})

    assert [address for address, kinds in ann.session.bindings.items() if kinds & ALLOCATED] == allocated[:2]
    [request] = [data for _, _, data in network[A].streams.sent if b'"delete"' in data]
    assert msgspec.json.decode(request)["body"] == {"resource": allocated[2:]}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("create", {"value": {"number": 100}, "childrenResources": [f"{n}" for n in range(20)]}),
        ("create", {"value": {"number": 10**30}}),
        ("delete", {"resource": [f"hyperty://b.example/{n}" for n in range(1001)]}),
    ],
)
def test_too_many_addresses_in_one_request(network, kind, body):
    """
    One request to another domain is about a thousand addresses at most; it is refused here.
    """
    ann = network[A].client("ann")

    ann.request(SERVICE, kind, body=body)

    assert [each["body"]["code"] for each in ann.take()] == [413]
    assert not network.wire


@pytest.mark.parametrize("reason", ["stale", "refused", "busy"])
def test_a_delete_that_fails_leaves_no_address_behind(network, reason):
    """
    A client's delete that expires on its way, or that the domain refuses, is done by the node itself: the
    client has lost the addresses, so nobody else would give them back.
    """
    ann = network[A].client("ann")
    [address] = allocate(network, ann)
    if reason == "stale":
        network[A].streams.losing = Outcome(408, "stale")
    ann.request(SERVICE, "delete", body={"resource": [address]}, ttl=0.001)
    if reason != "stale":
        network.wire.clear()
        code = 429 if reason == "busy" else 404
        message = {"id": 7, "type": "response", "from": SERVICE, "to": ann.hyperty, "body": {"code": code}}
        network.forge(B, A, message)
    else:
        network.flow()
        wait(network, 60)
    network[A].streams.losing = None
    wait(network, 10)
    network.flow()

    assert bound_there(network) == []


@pytest.mark.parametrize("fault", ["stale", 429, 503])
def test_what_the_node_gives_back_is_sent_until_the_domain_has_it(network, fault):
    """
    The addresses of a session that has ended are given back again if the message is lost, or if the domain
    has no time for it.
    """
    ann = network[A].client("ann")
    [address] = allocate(network, ann)
    if fault == "stale":
        network[A].streams.losing = Outcome(408, "stale")
    ann.close()
    network.clock.advance(0)
    if fault == "stale":
        network.flow()
    else:
        [(_, _, _, payload, _)] = network.wire
        network.wire.clear()
        request = msgspec.json.decode(payload)
        answer = {"id": request["id"], "type": "response", "from": SERVICE, "to": request["from"]}
        network.forge(B, A, {**answer, "body": {"code": fault}})
    before = bound_there(network)
    network[A].streams.losing = None
    wait(network, 10)
    network.flow()

    assert before == [address]
    assert bound_there(network) == []


def test_deletes_with_the_same_id(network):
    """
    A client that uses the id of a delete again loses track of the first one; its addresses are given back all
    the same.
    """
    ann = network[A].client("ann")
    addresses = allocate(network, ann, 2)
    network[A].streams.losing = Outcome(408, "stale")

    for address in addresses:
        ann.request(SERVICE, "delete", body={"resource": [address]}, ttl=0.001)
    network.flow()
    network[A].streams.losing = None
    wait(network, 10)
    network.flow()

    assert bound_there(network) == []


def test_addresses_are_given_back_once_a_node_of_the_domain_is_known():
    """
    A session of before a restart may end before any node of the other domain is known: its addresses are
    given back later.
    """
    network = MemoryNetwork(A)
    network.domains.add(B)
    ann, address = network[A].client("ann"), "hyperty://b.example/1"
    network[A].node.routes.bind(address, ann.session, ALLOCATED | OWNED)
    network[A].exchange.allocations.start()

    ann.close()
    wait(network, 2)
    before = [data for _, _, data in network[A].streams.sent]
    network.add(B)
    wait(network, 6)

    assert before == []
    [request] = [data for _, _, data in network[A].streams.sent if b'"delete"' in data]
    assert msgspec.json.decode(request)["body"] == {"resource": [address]}


@pytest.mark.parametrize("limit", ["bindings", "memory"])
def test_a_session_without_room_gets_no_address(limit):
    """
    A grant for which the session has no room is refused as a whole, as it would be here, and is given back: a
    client is never told of an address that it does not have.
    """
    name, most = ("bindings_per_session", 5) if limit == "bindings" else ("state_bytes_per_session", 5000)
    network = MemoryNetwork(A, B)
    network[B].use(rule("permit", {"msgTo": {"equals": SERVICE}, "peer.domain": {"equals": A}}))
    ann = network[A].client("ann")
    setattr(network[A].node.config.limits, name, most)

    ann.request(SERVICE, body={"value": {"number": 100}})
    network.flow()

    assert [each["body"]["code"] for each in ann.take()] == [429]
    assert not any(kinds & ALLOCATED for kinds in ann.session.bindings.values())
    assert bound_there(network) == []


def test_a_domain_that_allocates_more_at_once_than_this_one():
    """
    How many addresses one request may ask for is the other domain's matter: the client has all it is told of.
    """
    network = MemoryNetwork(A, B)
    network[B].use(rule("permit", {"msgTo": {"equals": SERVICE}, "peer.domain": {"equals": A}}))
    network[A].node.config.allocation.per_request = 2
    ann = network[A].client("ann")

    granted = allocate(network, ann, 5)

    assert all(ann.session.bindings.get(address, 0) & ALLOCATED for address in granted)
    assert len(granted) == 5


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_delete_takes_the_children_with_it(network, is_restarted):
    """
    With an address its children are free on both sides, whether the delete names them or not: who gets the
    address next shares nothing with the one before. What was allocated earlier or later keeps its children.
    """
    ann = network[A].client("ann")
    first, second = allocate(network, ann, 2, childrenResources=["messages", "files"])
    if is_restarted:
        network[A].exchange.allocations.start()

    ann.request(SERVICE, "delete", body={"resource": [first]})
    network.flow()
    [third] = ann.take() and allocate(network, ann, childrenResources=["messages"])
    ann.request(SERVICE, "delete", body={"resource": [second], "childrenResources": ["files"]})
    network.flow()

    left = {address for address, kinds in ann.session.bindings.items() if kinds & ALLOCATED}
    assert left == {third, f"{third}/children/messages"}
    assert set(bound_there(network)) == left
    ann.request(SERVICE, "delete", body={"resource": [third]})
    network.flow()
    assert bound_there(network) == []
    assert len(network[A].exchange.allocations) == 0
