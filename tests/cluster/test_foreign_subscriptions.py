"""
Subscriptions in another domain, by clients of members that have no links to it.
"""

from typing import Any

import msgspec
import pytest

from msgnode.links.exchange.node_parts import DomainLimits, ExchangeOptions
from msgnode.links.exchange.subscriptions.entries import BeginDomain, EndDomain, Missed, Permit
from msgnode.links.stream.streams import Envelope
from msgnode.sessions.routing import SUBSCRIBED
from tests.support.cluster_nodes import MemoryCluster
from tests.support.policy_case import rule

A, B = "a.example", "b.example"
OBJECT = f"comm://{B}/room"
TOPIC = f"{OBJECT}/changes"
NO_ANN = rule("deny", {"msgFrom": {"like": "*/ann/*"}, "direction": {"equals": "subscribe"}})


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster(3, foreign=B)


def far(cluster: MemoryCluster) -> Any:
    return cluster.nodes[f"mn://{B}/n1"]


def codes(client: Any) -> list[int]:
    return [message["body"]["code"] for message in client.take() if message["type"] == "response"]


def subscribers(cluster: MemoryCluster, **where: str) -> list[Any]:
    """
    Clients by name that are subscribed to the topic at these nodes.
    """
    clients = [cluster[node].client(name) for name, node in where.items()]
    for client, node in zip(clients, where.values(), strict=True):
        cluster[node].subscribe(client, TOPIC)
    cluster.flow()
    assert [[200]] * len(clients) == [codes(client) for client in clients]
    return clients


def publish(cluster: MemoryCluster, value: int) -> None:
    reporter = far(cluster).client(f"reporter-{value}")
    reporter.tell({"id": 3, "type": "update", "from": OBJECT, "to": TOPIC, "body": {"value": value}})
    cluster.flow()


def values(client: Any) -> list[int]:
    return [message["body"]["value"] for message in client.take() if message["type"] == "update"]


def wait(cluster: MemoryCluster, seconds: float, step: float = 5) -> None:
    for _ in range(int(seconds / step)):
        cluster.clock.advance(step)
        cluster.flow()


def bound(cluster: MemoryCluster, gateway: str = "n1") -> bool:
    session = far(cluster).node.sessions.get(cluster[gateway].name)
    return session is not None and bool(session.bindings.get(TOPIC, 0) & SUBSCRIBED)


def test_publication_travels_once_to_the_domain(cluster: MemoryCluster) -> None:
    """
    A publication crosses once between the domains, once to each member, and reaches each subscriber once.
    """
    clients = subscribers(cluster, ann="n2", al="n2", bea="n3", cid="n1")

    publish(cluster, 1)

    assert [[1]] * 4 == [values(client) for client in clients]
    sent = [envelope.kind for _, envelope, _ in far(cluster).streams.sent if envelope.kind == "message"]
    assert 1 == len(sent)


def test_each_subscriber_is_asked_with_its_identity(cluster: MemoryCluster) -> None:
    """
    The home domain decides about each client of a member with its own identity; who is refused is answered
    so, and hears nothing of what another client of its node gets.
    """
    known = {"identity.user": {"exists": False}, "direction": {"equals": "subscribe"}}
    far(cluster).use(rule("deny", known))
    ann, al = cluster["n2"].client("ann"), cluster["n2"].client("al")
    ann.session.identity = "ann@a.example"

    for client in (ann, al):
        cluster["n2"].subscribe(client, TOPIC)
    cluster.flow()
    assert ([200], [404]) == (codes(ann), codes(al))
    publish(cluster, 1)

    assert ([1], []) == (values(ann), values(al))
    assert TOPIC not in al.session.bindings


def test_answer_waits_for_the_other_domain(cluster: MemoryCluster) -> None:
    """
    While the home domain is away the client is answered 504 after 5 s, and the subscription is made when it
    is back.
    """
    ann = cluster["n2"].client("ann")
    cluster.cut.add(frozenset((cluster["n1"].name, far(cluster).name)))

    cluster["n2"].subscribe(ann, TOPIC)
    cluster.flow()
    assert [] == codes(ann)
    wait(cluster, 5)
    assert [504] == codes(ann)
    cluster.cut.clear()
    wait(cluster, 20)
    publish(cluster, 1)

    assert [1] == values(ann)


def test_subscriber_without_an_answer_hears_nothing(cluster: MemoryCluster) -> None:
    """
    A client that the home domain has not answered yet does not get what another member's client may hear.
    """
    subscribers(cluster, cid="n1")
    ann = cluster["n2"].client("ann")
    cluster.cut.add(frozenset((cluster["n2"].name, cluster["n1"].name)))
    cluster["n2"].subscribe(ann, TOPIC)
    cluster.flow()
    cluster.cut.clear()
    held, cluster.wire = list(cluster.wire), type(cluster.wire)()

    publish(cluster, 1)

    assert [] == values(ann)
    cluster.wire.extend(held)
    cluster.flow()
    publish(cluster, 2)
    assert [2] == values(ann)


def test_unsubscribed(cluster: MemoryCluster) -> None:
    """
    The home domain stops sending after the last subscriber of all members has left.
    """
    ann, bea = subscribers(cluster, ann="n2", bea="n3")

    for client, node in ((ann, "n2"), (bea, "n3")):
        assert bound(cluster)
        cluster[node].subscribe(client, TOPIC, type="unsubscribe")
        cluster.flow()
        wait(cluster, 10)

    assert not bound(cluster)


def test_revoked(cluster: MemoryCluster) -> None:
    """
    When the policies of the home domain change, a member's client that they refuse now hears no more.
    """
    ann, bea = subscribers(cluster, ann="n2", bea="n3")

    far(cluster).use(NO_ANN)
    wait(cluster, 10)
    publish(cluster, 1)

    assert ([], [1]) == (values(ann), values(bea))
    assert TOPIC not in ann.session.bindings


def test_client_of_a_member_publishes(cluster: MemoryCluster) -> None:
    """
    What a client publishes at an address of another domain goes there, although a member has subscribers of
    it, and comes back from there once.
    """
    (ann,) = subscribers(cluster, ann="n2")
    bea = cluster["n3"].client("bea")

    bea.request(TOPIC, "update", body={"value": 5})
    cluster.flow()

    assert [5] == values(ann)
    crossed = [to for to, envelope, _ in cluster["n1"].streams.sent if envelope.kind == "message" and B in to]
    assert [far(cluster).name] == crossed


def test_two_gateways() -> None:
    """
    Two members with links to one domain, each with subscribers of its own and of another member: each
    subscriber gets a publication once, and none goes back.
    """
    cluster = MemoryCluster(4, foreign=B, gateways=2)
    clients = subscribers(cluster, ann="n1", al="n2", bea="n3", cid="n4")

    publish(cluster, 1)

    assert [[1]] * 4 == [values(client) for client in clients]
    for node in ("n1", "n2"):
        sent = [to for to, envelope, _ in cluster[node].streams.sent if envelope.kind == "message"]
        assert far(cluster).name not in sent


def test_another_gateway_takes_over() -> None:
    """
    When its gateway is away, a member asks by another one, and its clients that acknowledge learn that they
    may have missed something.
    """
    cluster = MemoryCluster(3, foreign=B, gateways=2)
    ann = cluster["n3"].client("ann")
    ann.tell({"id": 60, "type": "open", "from": ann.runtime, "to": "mn:/session", "body": {"resume": True}})
    epoch = next(each["body"]["resume"]["epoch"] for each in ann.take() if each["id"] == 60)
    cluster["n3"].subscribe(ann, TOPIC)
    cluster.flow()
    assert (True, False) == (bound(cluster, "n1"), bound(cluster, "n2"))

    gone = cluster["n1"].name
    cluster.cut.update(frozenset((gone, name)) for name in cluster.nodes)
    wait(cluster, 30)
    publish(cluster, 1)

    assert bound(cluster, "n2")
    assert [1] == values(ann)
    received = {"epoch": epoch, "received": 1}
    again = {"id": 61, "type": "re-open", "from": ann.runtime, "to": "mn:/session"}
    ann.tell({**again, "body": {"runtimeToken": ann.token, "resume": received}})
    assert [None] == [each["body"]["resume"]["missed"] for each in ann.take() if each["id"] == 61]


def test_gateway_begins_again(cluster: MemoryCluster) -> None:
    """
    A gateway that starts again without its memory is asked again by the members.
    """
    (ann,) = subscribers(cluster, ann="n2")
    cluster.start(1, True)

    cluster["n2"].exchange.restarted(cluster["n1"].name)
    wait(cluster, 10)
    publish(cluster, 1)

    assert [1] == values(ann)


def test_domain_begins_again(cluster: MemoryCluster) -> None:
    """
    A domain that begins again is asked again by the gateway, for clients of members, too, which learn that
    they may have missed something.
    """
    subscribers(cluster, ann="n2")

    cluster["n1"].exchange.restarted(far(cluster).name)
    wait(cluster, 10)

    missed = [to for to, envelope, payload in cluster["n1"].streams.sent if b"missed" in payload]
    assert [cluster["n2"].name] == missed


def test_lease_of_a_member(cluster: MemoryCluster) -> None:
    """
    What a member asks for is kept while it renews the lease; what it forgot in a restart ends with that.
    """
    subscribers(cluster, ann="n2")
    wait(cluster, 8000, 100)
    kept = bound(cluster)
    cluster["n2"].exchange.stop()
    cluster.start(2, False)

    wait(cluster, 8000, 100)

    assert (True, False) == (kept, bound(cluster))


def test_domain_that_is_reached_later() -> None:
    """
    A subscription in a domain that no member reaches is accepted, and made when one does.
    """
    cluster = MemoryCluster(2)
    (ann,) = [cluster["n2"].client("ann")]
    cluster["n2"].subscribe(ann, TOPIC)
    assert [200] == codes(ann)

    cluster.add(B)
    cluster.unlinked.discard(cluster["n1"].name)
    cluster.domains.add(B)
    cluster["n1"].exchange.homes.is_linked = True
    cluster["n1"].members.start(True, lambda: [B])
    wait(cluster, 10)
    publish(cluster, 1)

    assert [1] == values(ann)


def test_session_that_has_come_from_another_member(cluster: MemoryCluster) -> None:
    """
    The subscriptions of a session that moves go with it: it hears all at its new member, without a gap, also
    if its old one has released it before the new one is heard.
    """
    (ann,) = subscribers(cluster, ann="n2")
    moved = cluster["n3"].bare("ann")
    cluster["n3"].node.routes.bind(TOPIC, moved.session, SUBSCRIBED)

    cluster["n3"].exchange.adopt(moved.session)
    cluster.clock.advance(0)
    held, cluster.wire = list(cluster.wire), type(cluster.wire)()
    assert 1 == len(held)
    cluster["n2"].node.routes.unbind(TOPIC, ann.session, ~0)
    cluster.flow()
    publish(cluster, 0)
    cluster.wire.extend(held)
    for value in (1, 2):
        publish(cluster, value)
        wait(cluster, 10)

    assert [0, 1, 2] == values(moved)
    assert [] == values(ann)


def test_bound_of_a_gateway() -> None:
    """
    The subscriptions of all members in a domain count at their gateway; one too many is answered 429.
    """
    options = ExchangeOptions(limits=DomainLimits(max_upstream=1))
    cluster = MemoryCluster(3, foreign=B, options=options)
    ann, bea = cluster["n2"].client("ann"), cluster["n3"].client("bea")

    for node, client in (("n2", ann), ("n3", bea)):
        cluster[node].subscribe(client, TOPIC)
        cluster.flow()

    assert ([200], [429]) == (codes(ann), codes(bea))


def test_entry_of_members_from_another_domain(cluster: MemoryCluster) -> None:
    """
    Another domain cannot send what only members send to each other; it is counted, and changes nothing.
    """
    (ann,) = subscribers(cluster, ann="n2")
    for number, entry in enumerate(
        (Permit(1, -1, [TOPIC]), Missed(1, B), BeginDomain(1, B), EndDomain(1, B))
    ):
        envelope = Envelope("subscription", (b"forged", number), 1000, 7)
        far(cluster).streams.send(cluster["n1"].name, envelope, msgspec.msgpack.encode(entry))
    cluster.flow()
    publish(cluster, 1)

    assert 4 == cluster["n1"].exchange.counts["malformed"]
    assert [1] == values(ann)
