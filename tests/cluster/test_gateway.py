"""
Messages to and from another domain, which one member reaches for all.
"""

from typing import Any

import pytest

from msgnode.protocol.close_codes import SUPERSEDED
from msgnode.sessions.persistence import SessionMove
from tests.support.cluster_nodes import MemoryCluster
from tests.support.policy_case import rule

B = "b.example"


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster(3, foreign=B)


def far(cluster: MemoryCluster) -> Any:
    return cluster.nodes[f"mn://{B}/n1"]


def codes(messages: list[dict[str, Any]]) -> list[int]:
    return [message["body"]["code"] for message in messages if message["type"] in ("response", "receipt")]


def test_request_to_another_domain(cluster: MemoryCluster) -> None:
    """
    A client of a member without links asks a client of another domain, and gets its answers; members need
    not be asked for the way, because the gateway has told them.
    """
    ann, bob = cluster["n2"].client("ann"), far(cluster).client("bob")

    for number in range(3):
        ann.request(bob.hyperty, id=number)
        cluster.flow()
        [got] = bob.take()
        bob.tell(
            {"id": number, "type": "response", "from": bob.hyperty, "to": got["from"], "body": {"code": 200}}
        )
        cluster.flow()

    assert [200, 200, 200] == codes(ann.take())
    assert [] == cluster.directory.asked


def test_request_from_another_domain(cluster: MemoryCluster) -> None:
    """
    A client of another domain asks a client of a member without links, and gets its answer and its receipt.
    """
    ann, bob = cluster["n3"].client("ann"), far(cluster).client("bob")

    bob.request(ann.hyperty, receipt=True)
    cluster.flow()
    [got] = ann.take()
    ann.tell(
        {"id": got["id"], "type": "response", "from": ann.hyperty, "to": bob.hyperty, "body": {"code": 200}}
    )
    cluster.flow()

    assert [202, 200] == codes(bob.take())


def test_receipt_of_another_domain(cluster: MemoryCluster) -> None:
    """
    The receipt of a message to another domain comes to the client that asked, once.
    """
    ann, bob = cluster["n2"].client("ann"), far(cluster).client("bob")

    ann.request(bob.hyperty, "ping", receipt=True)
    cluster.flow()

    assert 1 == len(bob.take())
    assert [202] == codes(ann.take())


def test_refusal_of_another_domain(cluster: MemoryCluster) -> None:
    """
    A request to an address of another domain that no session has is answered 404, once.
    """
    ann = cluster["n2"].client("ann")

    ann.request(f"hyperty://{B}/nobody")
    cluster.flow()

    assert [404] == codes(ann.take())


def test_identity_of_the_sender(cluster: MemoryCluster) -> None:
    """
    The other domain gets the identity of the client that sent the message, not that of the gateway.
    """
    ann, bob = cluster["n2"].client("ann"), far(cluster).client("bob")
    ann.session.identity = "ann@a.example"

    ann.request(bob.hyperty)
    cluster.flow()

    identities = [envelope.identity for to, envelope, _ in cluster["n1"].streams.sent if B in to]
    assert ["ann@a.example"] == [each["user"] for each in identities]


def test_identity_that_another_domain_asserts(cluster: MemoryCluster) -> None:
    """
    Policies at `out` of a member know who another domain says that the sender is, and that this domain does
    not; at the gateway likewise.
    """
    out = {"direction": {"equals": "out"}}
    claimed = {**out, "identity.user": {"equals": "bob@b.example"}, "identity.issuer": {"equals": B}}
    bob, bill = far(cluster).client("bob"), far(cluster).client("bill")
    bob.session.identity = "bob@b.example"
    for node in ("n1", "n2"):
        ann = cluster[node].client(f"ann-{node}")
        cluster[node].use(
            rule("deny", {**out, "identityVerified": {"equals": "true"}}),
            rule("permit", claimed, 2),
            rule("deny", out, 3),
        )

        for client in (bob, bill):
            client.request(ann.hyperty, "ping")
        cluster.flow()

        assert [bob.hyperty] == [message["from"] for message in ann.take()], node


def test_other_domain_is_away(cluster: MemoryCluster) -> None:
    """
    While the other domain has no route, a message with a receipt waits at the gateway, and is delivered then.
    """
    ann, bob = cluster["n2"].client("ann"), far(cluster).client("bob")
    ann.request(bob.hyperty, "ping", id=6)
    cluster.flow()
    bob.take()
    cluster.cut.add(frozenset((cluster["n1"].name, far(cluster).name)))

    ann.request(bob.hyperty, "ping", receipt=True)
    cluster.flow()
    assert [] == ann.take()
    cluster.cut.clear()
    cluster.flow()

    assert 1 == len(bob.take())
    assert [202] == codes(ann.take())


def test_address_of_another_domain_outlives_the_move_of_its_session(cluster: MemoryCluster) -> None:
    """
    The node that got it keeps it while another member holds it, and then gives it back.
    """
    service = f"domain://msg-node.{B}/hyperty-address-allocation"
    far(cluster).use(rule("permit", {"msgTo": {"equals": service}, "peer.domain": {"equals": "a.example"}}))
    node, ann = cluster["n1"].node, cluster["n1"].client("ann")
    ann.request(service, body={"value": {"number": 1}})
    cluster.flow()
    [address] = ann.take()[0]["body"]["value"]["allocated"]
    session = node.sessions.get(ann.runtime)
    assert session is not None
    session.move = SessionMove(to=cluster["n2"].name)
    cluster.directory.held[address] = {cluster["n2"].name: None}

    node.sessions.release(session, SUPERSEDED)
    node.sessions.forget_released(session)
    found = []
    for holders in ({cluster["n2"].name: None}, {}):
        cluster.directory.held[address] = holders
        cluster.clock.advance(6)
        cluster.flow()
        found.append(bool(far(cluster).node.routes.resolve(address)))

    assert found == [True, False]
