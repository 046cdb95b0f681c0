"""
Addresses that the node of another domain allocates: they belong to the session that asked.
"""

import pytest

from msgnode.sessions.routing import ALLOCATED
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


@pytest.mark.parametrize("how", ["delete", "close", "drained"])
def test_given_back(network, how):
    """
    The address is given back when the session deletes it, or ends, even if the domain is drained.
    """
    ann = network[A].client("ann")
    [address] = allocate(network, ann)
    if how == "drained":
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
