"""
Subscriptions across domains: what is published travels once to each node, and each subscriber is permitted.
"""

import msgspec
import pytest

from msgnode.links.exchange.node_parts import DomainLimits, ExchangeOptions
from msgnode.links.stream.streams import Outcome
from msgnode.sessions.routing import SUBSCRIBED
from tests.support.links_exchange import MemoryNetwork
from tests.support.policy_case import rule

A, B, C = "a.example", "b.example", "c.example"
OBJECT = "comm://b.example/room"


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork(A, B)


def codes(client):
    return [message["body"]["code"] for message in client.take() if message["type"] == "response"]


def observers(network, *names, domain=A, address=f"{OBJECT}/changes"):
    """
    Clients that are subscribed to the address.
    """
    clients = [network[domain].client(name) for name in names]
    for client in clients:
        network[domain].subscribe(client, address)
    network.flow()
    for client in clients:
        assert codes(client) == [200]
    return clients


def publish(network, reporter, value, **fields):
    message = {"id": 3, "type": "update", "from": OBJECT, "to": f"{OBJECT}/changes", "body": {"value": value}}
    reporter.tell({**message, **fields})
    network.flow()


def messages_of(far):
    return [envelope for _, envelope, _ in far.streams.sent if envelope.kind == "message"]


def bound(network, address=f"{OBJECT}/changes"):
    session = network[B].node.sessions.get(network[A].name)
    return session is not None and bool(session.bindings.get(address, 0) & SUBSCRIBED)


def test_three_observers(network):
    """
    A publication travels once to the other node, and reaches each of its observers as it was sent.
    """
    three = observers(network, "ann", "al", "ada")
    bob = network[B].client("bob")

    publish(network, bob, 1)

    assert [[message["body"] for message in client.take()] for client in three] == [[{"value": 1}]] * 3
    assert len(messages_of(network[B])) == 1


def test_answer_comes_from_the_other_domain(network):
    """
    The observer's node answers when the home domain has, and not before.
    """
    ann = network[A].client("ann")

    network[A].subscribe(ann, f"{OBJECT}/changes")
    before = codes(ann)
    network.flow()

    assert (before, codes(ann)) == ([], [200])


def test_manager_of_the_other_node_is_the_own(network):
    """
    A subscription sent to the other node's manager is the same as one sent to the own.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")

    network[A].subscribe(ann, f"{OBJECT}/changes", to="domain://msg-node.b.example/sm")
    network.flow()
    [answer] = ann.take()
    publish(network, bob, 1)

    assert (answer["from"], answer["body"]["code"]) == ("domain://msg-node.b.example/sm", 200)
    assert len(ann.take()) == 1


def test_refused_there(network):
    """
    A subscriber that the home domain refuses is told 404, and hears nothing, though another one may.
    """
    network[B].use(rule("deny", {"msgFrom": {"like": "*/ann/*"}, "direction": {"equals": "subscribe"}}))
    [al] = observers(network, "al")
    ann, bob = network[A].client("ann"), network[B].client("bob")

    network[A].subscribe(ann, f"{OBJECT}/changes")
    publish(network, bob, 1)

    assert codes(ann) == [404]
    assert len(al.take()) == 1
    assert not ann.session.bindings.get(f"{OBJECT}/changes")


def test_unanswered(network):
    """
    Without an answer in five seconds the observer is told 504; the node goes on asking.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    network[A].streams.losing = Outcome(502, "no-path")
    network[A].subscribe(ann, f"{OBJECT}/changes")
    network.flow()

    network.clock.advance(4.9)
    before = codes(ann)
    network.clock.advance(0.1)
    after = codes(ann)
    network[A].streams.losing = None
    network.flow()
    network.clock.advance(5)
    network.flow()
    publish(network, bob, 1)

    assert (before, after) == ([], [504])
    assert len(ann.take()) == 1


def test_no_room_for_a_subscription(network):
    """
    A subscription for which the stream has no room is answered 507.
    """
    ann = network[A].client("ann")
    network[A].streams.room = 0

    network[A].subscribe(ann, f"{OBJECT}/changes")
    network.clock.advance(0)

    assert codes(ann) == [507]


@pytest.mark.parametrize("how", ["unsubscribe", "close"])
def test_last_one_takes_it_back(network, how):
    """
    When the last observer unsubscribes or goes, the other node hears no more; not when the first does.
    """
    ann, al = observers(network, "ann", "al")

    for client, still in ((ann, True), (al, False)):
        if how == "close":
            client.close()
        else:
            network[A].subscribe(client, f"{OBJECT}/changes", type="unsubscribe")
        network.clock.advance(0)
        network.flow()
        assert bound(network) is still

    assert (len(network[A].exchange.upstream), len(network[B].exchange.grants)) == (0, 0)


def test_lease(network):
    """
    A subscription that is not renewed ends with its lease; one that is renewed stays.
    """
    ann, al = observers(network, "ann"), observers(network, "al", address="comm://b.example/other")
    for _ in range(10):
        network.clock.advance(400)
        network.flow()
    renewed = bound(network)

    network[A].exchange.stop()
    for _ in range(10):
        network.clock.advance(500)
        network.flow()

    assert (renewed, bound(network)) == (True, False)
    assert ann and al


@pytest.mark.parametrize(("lease", "most"), [(120.0, 80), (0.001, 260)])
def test_the_home_domain_grants_a_shorter_lease(network, lease, most):
    """
    A subscription is renewed within the lease that the home domain grants, not the one of the own node; a
    domain that grants next to nothing is not asked all the time.
    """
    network[B].options.lease_seconds = 120.0
    ann = observers(network, "ann")
    network[B].options.lease_seconds = lease
    network[A].subscribe(ann[0], f"{OBJECT}/children/1")
    network.flow()
    network[B].options.lease_seconds = 120.0  # it ends nothing here before
    before = len(network[A].streams.sent)
    for _ in range(720):
        network.clock.advance(5)
        network.flow()
        assert bound(network)

    assert 3600 / 120 <= len(network[A].streams.sent) - before <= 3 * most


@pytest.mark.parametrize("how", ["revoked", "begun again"])
def test_a_client_learns_that_it_may_have_missed_something(network, how):
    """
    A client that acknowledges learns at its next `re-open` that its subscriptions had a gap: the home domain
    revoked one, or its node began again, perhaps without its memory. One that had no gap learns nothing.
    """
    ann, al = network[A].client("ann"), network[A].client("al")
    opened = {"id": 60, "type": "open", "to": "mn:/session", "body": {"resume": True}}
    epochs = {}
    for client, address in ((ann, f"{OBJECT}/changes"), (al, "comm://c.example/room/changes")):
        client.tell({**opened, "from": client.runtime})
        network[A].subscribe(client, address)
        network.flow()
        epochs[client] = next(each["body"]["resume"] for each in client.take() if each["id"] == 60)

    if how == "revoked":
        network[B].use(rule("deny", {"msgFrom": {"like": "*/ann/*"}, "direction": {"equals": "subscribe"}}))
    else:
        network[A].exchange.restarted(network[B].name)
    for _ in range(4):
        network.clock.advance(5)
        network.flow()

    for client, missed in ((ann, None), (al, 0)):
        received = {"epoch": epochs[client]["epoch"], "received": 1}
        again = {"id": 61, "type": "re-open", "from": client.runtime, "to": "mn:/session"}
        client.tell({**again, "body": {"runtimeToken": client.token, "resume": received}})
        [answer] = [each["body"] for each in client.take() if each["id"] == 61]
        assert answer["resume"]["missed"] is missed, client.runtime


def test_revoked(network):
    """
    When the policies of the home domain change, a subscriber that they refuse now hears no more.
    """
    ann, al = observers(network, "ann", "al")
    bob = network[B].client("bob")

    network[B].use(rule("deny", {"msgFrom": {"like": "*/ann/*"}, "direction": {"equals": "subscribe"}}))
    for _ in range(3):
        network.clock.advance(5)
    network.flow()
    publish(network, bob, 1)

    assert [message["type"] for message in ann.take()] == []
    assert [message["type"] for message in al.take()] == ["update"]


def test_own_identity_of_each_subscriber(network):
    """
    A client without a user cannot ride on the subscription of one that has a user.
    """
    network[B].use(rule("deny", {"identity.user": {"exists": False}, "direction": {"equals": "subscribe"}}))
    ann, al, bob = network[A].client("ann"), network[A].client("al"), network[B].client("bob")
    ann.session.identity = "ann@a.example"

    network[A].subscribe(ann, f"{OBJECT}/changes")
    network[A].subscribe(al, f"{OBJECT}/changes")
    network.flow()
    publish(network, bob, 1)

    assert (codes(al), [m["type"] for m in ann.take()]) == ([404], ["response", "update"])


def test_publication_overtakes_the_answer(network):
    """
    What is published after the home domain has permitted it counts, although the answer is still under way.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    network[A].subscribe(ann, f"{OBJECT}/changes")
    source, destination, envelope, payload, _ = network.wire.popleft()

    network[B].exchange.received(source, envelope, payload, (), lambda: None)
    answer = network.wire.popleft()
    publish(network, bob, 1)
    network.wire.append(answer)
    network.flow()

    assert destination == network[B].name
    assert [message["type"] for message in ann.take()] == ["update", "response"]


def test_older_answer(network):
    """
    An answer to what was not asked is ignored.
    """
    [ann] = observers(network, "ann")

    network.forge(B, A, ["answer", 1, [403], "no", "policy"], kind="subscription")

    assert ann.session.bindings[f"{OBJECT}/changes"]
    assert network[A].exchange.counts["old-answer"] == 1


@pytest.mark.parametrize(
    ("theirs", "code"), [(403, 403), (500, 502), (408, 404), (0, 502), (100, 502), (-1, 502), (99_999, 502)]
)
def test_a_client_gets_a_failure_for_any_code_of_a_refusal(network, theirs, code):
    """
    Clients repeat a request ten times at once after 408 or 500; and what is not permitted is a failure,
    whatever number the other domain gives it. Its text is bounded.
    """
    ann = network[A].client("ann")
    network[A].subscribe(ann, f"{OBJECT}/changes")
    *_, payload, _ = network.wire.popleft()
    generation = msgspec.msgpack.decode(payload)[1]

    network.forge(B, A, ["answer", generation, [theirs], "no" * 100_000, "policy"], kind="subscription")

    [response] = ann.take()
    assert (response["type"], response["body"]["code"]) == ("response", code)
    assert len(response["body"]["desc"]) < 2000
    assert f"{OBJECT}/changes" not in ann.session.bindings


def test_new_epoch_of_the_home_domain(network):
    """
    A home domain that has lost its memory gets all subscriptions again, in a snapshot that drops others.
    """
    observers(network, "ann")
    network[B].exchange.stop()
    far = network.add(B)
    bob = far.client("bob")
    session = far.exchange.nodes.find(network[A].name)
    far.node.routes.bind("comm://b.example/forgotten", session, SUBSCRIBED)
    far.exchange.stop()
    far.exchange.grants.start()

    network[A].exchange.restarted(far.name)
    network.flow()
    publish(network, bob, 1)

    assert bound(network)
    assert not bound(network, "comm://b.example/forgotten")


def test_restart_of_the_observers_node(network):
    """
    A node that restarts asks again for what its sessions were subscribed to.
    """
    ann = network[A].client("ann")
    network[A].node.routes.bind(f"{OBJECT}/changes", ann.session, SUBSCRIBED)
    network[A].exchange.stop()

    network[A].exchange.start()
    network.flow()
    publish(network, network[B].client("bob"), 1)

    assert len(ann.take()) == 1


def test_child_of_an_observer(network):
    """
    What an observer creates reaches the reporter and each other observer once, not the observer itself if its
    stub marks what it sends.
    """
    children = f"{OBJECT}/children/"
    ann, al = observers(network, "ann", "al", address=children)
    bob = network[B].client("bob")
    network[B].subscribe(bob, children)
    bob.take()

    ann.request(children, body={"value": "hello", "via": "runtime://a.example/stub"})
    network.flow()

    assert [[message["body"] for message in each.take()] for each in (ann, al, bob)] == [
        [],
        [{"value": "hello"}],
        [{"value": "hello"}],
    ]


def test_child_for_a_third_domain(network):
    """
    What a client of one domain creates in another reaches observers in a third, signed by its node.
    """
    network.add(C)
    network.domains.add(C)
    children = f"{OBJECT}/children/"
    network[B].use(rule("permit"))
    [cid] = observers(network, "cid", domain=C, address=children)
    ann = network[A].client("ann")

    ann.request(children, body={"value": "hello"})
    network.flow()

    [got] = cid.take()
    assert (got["from"], got["body"]["value"]) == (ann.hyperty, "hello")


def test_deleted_object_and_both_directions(network):
    """
    The other direction works the same, for every type of message.
    """
    room = "comm://a.example/room"
    [bob] = observers(network, "bob", domain=B, address=room)
    ann = network[A].client("ann")

    for type in ("create", "update", "delete"):
        ann.request(room, type)
        network.flow()

    assert [message["type"] for message in bob.take()] == ["create", "update", "delete"]


def test_bounds():
    """
    Neither node keeps more subscriptions than it may.
    """
    network = MemoryNetwork(A, B, options=ExchangeOptions(limits=DomainLimits(max_grants=1)))
    observers(network, "ann")
    al = network[A].client("al")
    network[A].subscribe(al, "comm://b.example/other")
    network.flow()
    there = codes(al)
    network[A].options.limits = DomainLimits(max_upstream=1)
    network[A].subscribe(al, "comm://b.example/other")
    network.clock.advance(0)

    assert (there, codes(al)) == ([429], [429])
    assert (len(network[A].exchange.upstream), len(network[B].exchange.grants)) == (1, 1)


def test_addresses_that_cannot_be_subscribed(network):
    """
    The node's own addresses, a runtime's, those of other domains and for others' clients are refused.
    """
    bob = network[B].client("bob")
    for number, (from_, address) in enumerate(
        (
            ("runtime://a.example/ann", "domain://registry.b.example"),
            ("runtime://a.example/ann", f"{bob.runtime}/x"),
            ("runtime://a.example/ann", "comm://c.example/room"),
            ("runtime://b.example/eve", f"{OBJECT}/changes"),
        )
    ):
        network.forge(A, B, ["ask", number, 1, from_, [address]], kind="subscription")

    assert len(network[B].exchange.grants) == 0
