"""
Trust between domains: a peer speaks for its own domain only, and gets what the policies allow.
"""

import json

import pytest

from msgnode.bus.flow_offers import FlowOffers
from msgnode.links.exchange.node_parts import ExchangeOptions
from msgnode.sessions.principal import Principal
from msgnode.transport.data_plane import DataPlane
from tests.support.examples import TOP
from tests.support.fakes import Client
from tests.support.links_exchange import MemoryNetwork
from tests.support.policy_case import program, rule

A, B, C = "a.example", "b.example", "c.example"


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork(A, B)


class Plane(DataPlane):
    """
    A data plane that reads and writes all clients.
    """

    def __init__(self) -> None:
        self.offered: list[tuple[str, str]] = []

    def port(self, connection: object) -> int:
        return int(isinstance(connection, Client))

    def install(self, port: int, from_: str, to: str, *rest: object) -> None:
        self.offered.append((from_, to))


def message(from_, to, **fields):
    return {"id": 7, "type": "create", "from": from_, "to": to, "body": {}, **fields}


def answers(network, source=A):
    """
    The codes and reasons that a node was answered with.
    """
    found = [
        json.loads(payload) for _, envelope, payload in network[B].streams.sent if envelope.kind == "message"
    ]
    return [(each["body"]["code"], each["body"].get("reason")) for each in found]


@pytest.mark.parametrize(
    "from_",
    [
        "hyperty://c.example/eve",
        "hyperty://b.example/bob",
        "HYPERTY://B.Example/bob",
        "hyperty://a.example@b.example/bob",
        "hyperty://xa.example/eve",
        "domain://registry.b.example",
        "mn:/session",
        "mn://a.example/n1",
        "MN://a.example/n1",
        "global://registry",
        "Global://a.example/x",
        "nonsense",
    ],
)
def test_speaks_for_its_own_domain(network, from_):
    """
    A message whose `from` is not of the domain it comes from is refused 403, above all one of this domain.
    """
    bob = network[B].client("bob")

    network.forge(A, B, message(from_, bob.hyperty))

    assert bob.take() == []
    assert answers(network) == ([] if from_.startswith("mn:") else [(403, "peer")])
    assert network[B].exchange.counts["peer"] == 1


@pytest.mark.parametrize(
    "to",
    [
        "hyperty://c.example/x",
        "mn:/session",
        "mn://b.example/n1",
        "global://registry/x",
        ["hyperty://b.example/bob", "hyperty://c.example/x"],
        ["hyperty://b.example/bob", "mn:/session"],
    ],
)
def test_no_relay(network, to):
    """
    A node takes messages for its own domain only, and none for the addresses that each node has itself.
    """
    network.domains.add(C)
    bob = network[B].client("bob")

    network.forge(A, B, message("hyperty://a.example/ann", to))

    assert bob.take() == []
    assert answers(network) == [(403, "peer")] * (len(to) if isinstance(to, list) else 1)


def test_tokens_of_a_peer(network):
    """
    Session tokens that a peer sends are masked, and counted.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")

    network.forge(A, B, message(ann.hyperty, bob.hyperty, body={"x": bob.token}, token=bob.token))

    [got] = bob.take()
    assert (got["body"], "token" in got) == ({"x": "*" * len(bob.token)}, False)
    assert network[B].exchange.counts["token"] == 1


@pytest.mark.parametrize("data", [[], "x", {"id": 1}, {"id": 1, "type": 2, "from": "x", "to": "y"}])
def test_nonsense(network, data):
    """
    What cannot be read is dropped, counted and acknowledged; the node goes on.
    """
    for kind in ("message", "subscription", "receipt", "other"):
        network.forge(A, B, data, kind=kind)

    assert network[B].exchange.counts["malformed"] == 4
    assert network.acknowledged == 4


def test_pretended_return(network):
    """
    A domain cannot pass off a message as one that a client here published.
    """
    room = "comm://b.example/room/children/"
    ann, al = network[A].client("ann"), network[A].client("al")
    network[A].subscribe(al, room)
    network.flow()
    ann.request(room, body={"value": "true"})
    network.flow()
    al.take()

    envelope = next(each for _, each, _ in network[A].streams.sent if each.kind == "message")
    network.forge(
        B, A, message(ann.hyperty, room, body={"value": "false"}), id=envelope.id, origin=envelope.origin
    )
    network.forge(
        B, A, message(ann.hyperty, room, body={"value": "false"}), id=(b"?", 1), origin=envelope.origin
    )

    assert al.take() == []
    assert network[A].exchange.counts["peer"] == 2


def test_pretended_origin(network):
    """
    A signature of a third domain's node is good for exactly the bytes that it signed.
    """
    network.add(C)
    network.domains.add(C)
    room = "comm://b.example/room/children/"
    cid, ann = network[C].client("cid"), network[A].client("ann")
    network[C].subscribe(cid, room)
    network.flow()
    cid.take()

    ann.request(room, body={"value": "true"})
    envelope = next(each for _, each, _ in network[A].streams.sent if each.kind == "message")
    network.wire.clear()
    for changed in ({"body": {"value": "false"}}, {"from": "hyperty://a.example/al"}, {"id": 8}):
        forged = {**message(ann.hyperty, room, body={"value": "true"}), **changed}
        network.forge(B, C, forged, id=envelope.id, origin=envelope.origin)

    assert cid.take() == []


def test_identity_of_the_senders_domain(network):
    """
    Policies see who a sender is as its domain says, and which domain that is; it is not verified here.
    """
    seen = rule(
        "permit",
        {
            "identity.user": {"equals": "ann@a.example"},
            "identity.issuer": {"equals": A},
            "identity.verified": {"equals": False},
            "peer.domain": {"equals": A},
            "peer.node": {"equals": network[A].name},
            "peer.kind": {"equals": "node"},
            "route.hops": {"equals": 1},
            "sessionUser": {"exists": False},
        },
    )
    network[B].use(seen, rule("deny", {"peer.domain": {"exists": True}}, 2))
    ann, al, bob = network[A].client("ann"), network[A].client("al"), network[B].client("bob")
    ann.session.identity = "ann@a.example"

    ann.request(bob.hyperty)
    al.request(bob.hyperty)
    network.flow()

    assert [each["from"] for each in bob.take()] == [ann.hyperty]


@pytest.mark.parametrize(
    "identity",
    [
        {"user": "root@b.example"},
        {"user": "root@B.Example"},
        {"user": "root@staff.b.example"},
        {"user": "user://b.example/root"},
        {"subject": "root@b.example"},
        {"user": "root", "idp": "b.example"},
    ],
)
def test_another_domain_does_not_say_who_is_a_user_of_this_one(network, identity):
    """
    What another domain says of users of this domain, or of its identity provider, does not count.
    """
    network[B].use(
        rule("deny", {"identity.user": {"exists": True}}), rule("permit", {"msgTo": {"exists": True}}, 2)
    )
    bob = network[B].client("bob")

    network.forge(A, B, message("hyperty://a.example/eve", bob.hyperty), identity=identity)
    network.forge(A, B, message("hyperty://a.example/eve", bob.hyperty), identity={"user": "eve@a.example"})

    assert len(bob.take()) == 1
    assert network[B].exchange.counts["identity"] == 1


@pytest.mark.parametrize(
    "from_",
    [
        "mn://b.example/n1",
        "MN://b.example/n1",
        "mn://a.example/n1",
        "mn:/session",
        "global://registry",
        "domain://registry.b.example",
        "DOMAIN://msg-node.b.example/sm",
        "domain://msg-node.a.example/sm",
        "hyperty://b.example/bob",
        "Hyperty://B.EXAMPLE/bob",
        "hyperty://x@b.example/bob",
    ],
)
def test_a_client_sends_from_addresses_of_its_own_domain_only(network, from_):
    """
    A client that sends from an address of a node, of a service, or of another domain is refused here.
    """
    ann, al, bob = network[A].client("ann"), network[A].client("al"), network[B].client("bob")

    ann.tell(message(from_, al.hyperty))
    ann.tell(message(from_, bob.hyperty))
    network.flow()

    assert [each["body"]["code"] for each in ann.take()] == [403, 403]
    assert (al.take(), bob.take()) == ([], [])
    assert network[A].streams.sent == []


@pytest.mark.parametrize("own", ["b.example", "c.b.example"])
def test_a_domain_above_or_below_speaks_for_itself_only(own):
    """
    Of two domains of which one contains the other, neither speaks for the other.
    """
    other = {"b.example": "c.b.example", "c.b.example": "b.example"}[own]
    network = MemoryNetwork(A, "b.example", "c.b.example")
    ann = network[A].client("ann")

    network.forge(own, A, message(f"hyperty://{own}/x", ann.hyperty))
    network.forge(own, A, message(f"hyperty://{other}/x", ann.hyperty))

    assert [each["from"] for each in ann.take()] == [f"hyperty://{own}/x"]
    assert network[A].exchange.counts["peer"] == 1


def test_policies_on_the_way_out(network):
    """
    At `out` the policies see where a message goes; what they refuse does not leave.
    """
    network[A].use(rule("deny", {"direction": {"equals": "out"}, "peer.domain": {"equals": B}}))
    ann, al = network[A].client("ann"), network[A].client("al")

    ann.request("hyperty://b.example/bob")
    ann.request(al.hyperty)

    assert [each["body"]["code"] for each in ann.take()] == [403]
    assert len(al.take()) == 1
    assert not network[A].streams.sent


def test_redirect(network):
    """
    What comes may be redirected within the domain, not on to a third.
    """
    network.add(C)
    network.domains.add(C)
    ann, bob = network[A].client("ann"), network[B].client("bob")
    for address in (bob.hyperty, "hyperty://c.example/x"):
        network[B].use(rule("permit", {"msgTo": {"like": "*/desk"}}, obligations={"redirect": address}))
        ann.request("hyperty://b.example/desk")
        network.flow()

    assert [each["to"] for each in bob.take()] == [bob.hyperty]
    assert [each["body"]["code"] for each in ann.take()] == [403]


def test_service_that_a_rule_names(network):
    """
    A service that a rule names is open to the other domain.
    """
    to = "domain://msg-node.b.example/connectors"
    network[B].use(rule("permit", {"msgTo": {"equals": to}, "peer.domain": {"equals": A}}))
    ann = network[A].client("ann")

    ann.request(to, "read")
    network.flow()

    [answer] = ann.take()
    assert (answer["from"], answer["body"]["code"]) == (to, 200)


def test_exposed_refusals():
    """
    Where the policies tell why, a foreign sender gets 403 and the reason.
    """
    network = MemoryNetwork(A, B, policy={"expose_reason": True})
    network[B].use(rule("deny", {"peer.domain": {"equals": A}}))
    ann = network[A].client("ann")

    ann.request("hyperty://b.example/bob")
    network.flow()

    [answer] = ann.take()
    assert answer["body"]["code"] == 403
    assert "Blocked by policy: 1/1/1" in answer["body"]["desc"]


def test_session_that_the_other_domain_knows(network):
    """
    A session whose user the other domain asserts may hold its addresses here; clients here reach it here.
    """
    ann, guest = network[A].client("ann"), network[A].client("guest")
    guest.session.identity = "gus@b.example"
    guest.session.proof = Principal("gus@b.example", idp=B)

    network[A].subscribe(guest, "hyperty://b.example/gus")
    network.flow()
    guest.take()
    ann.request("hyperty://b.example/gus", id=8)

    assert [each["id"] for each in guest.take()] == [8]


def test_longest_domain_wins():
    """
    Between domains that contain each other, the longest name that is known is the home.
    """
    network = MemoryNetwork("example", "b.example")
    ann, bob = network["example"].client("ann"), network["b.example"].client("bob")

    ann.request(bob.hyperty)
    ann.request("hyperty://unknown.example/x")
    network.flow()

    assert len(bob.take()) == 1
    assert len(network["example"].streams.sent) == 1


def test_plane_is_offered_nothing_that_leaves(network):
    """
    The data plane is offered flows between clients here, never one from or to another domain.
    """
    ann, al, bob = network[A].client("ann"), network[A].client("al"), network[B].client("bob")
    network[A].subscribe(ann, "comm://b.example/room/changes")
    network.flow()
    plane = Plane()
    for far in (network[A], network[B]):
        node = far.node
        node.router.flow_offers = FlowOffers(node.config, plane, node.rates, False)
    ann.request(bob.hyperty)
    bob.tell(message("comm://b.example/room", "comm://b.example/room/changes", type="update"))
    network.flow()
    al.request(ann.hyperty)

    assert plane.offered == [(al.hyperty, ann.hyperty)]


def test_options_without_a_triangle():
    """
    A client may not send from an address of the other domain that it only listens to.
    """
    network = MemoryNetwork(A, B, options=ExchangeOptions())
    network[B].client("bob")
    ann, al = network[A].client("ann"), network[A].client("al")
    network[A].subscribe(al, "hyperty://b.example/bob")
    network.flow()
    al.take()

    al.tell(message("hyperty://b.example/bob", ann.hyperty))

    assert [each["body"]["code"] for each in al.take()] == [403]
    assert ann.take() == []


def example(name):
    """
    An example of etc/policies, for the domain b.example and its partner a.example.
    """
    text = (TOP / f"etc/policies/{name}.json").read_text()
    for before, after in (("partner.example", A), ("rogue.example", A), ("example.org", B)):
        text = text.replace(before, after)
    return json.loads(text)


@pytest.mark.parametrize(
    ("name", "type", "to", "expected"),
    [
        ("federation-default-deny", "ping", "hyperty://b.example/bob", ["hyperty://b.example/bob"]),
        ("federation-default-deny", "ping", "comm://b.example/bob", []),
        ("federation-block", "ping", "hyperty://b.example/bob", []),
        ("federation-limit", "ping", "hyperty://b.example/bob", ["hyperty://b.example/bob"]),
        ("federation-limit", "create", "hyperty://b.example/bob", []),
        (
            "federation-redirect",
            "create",
            "hyperty://b.example/switchboard",
            ["hyperty://b.example/reception"],
        ),
    ],
)
def test_examples(network, name, type, to, expected):
    """
    The examples of policies between domains do what they say.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    network[B].subscribe(bob, "hyperty://b.example/reception", "comm://b.example/bob")
    bob.take()
    network[B].node.enforcement.use(program(example(name)), 1)

    ann.request(to, type)
    network.flow()

    assert [each["to"] for each in bob.take()] == expected


def test_a_blocked_domain_is_sent_nothing(network):
    """
    A rule that tests the other domain, and not the direction, also decides what is sent there; its sender is
    told.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    network[B].node.enforcement.use(program(example("federation-block")), 1)

    bob.request(ann.hyperty)
    network.flow()

    assert [each["body"]["code"] for each in bob.take()] == [403]
    assert ann.take() == []


@pytest.mark.parametrize("count", [1, 2])
def test_a_list_opens_no_service(network, count):
    """
    A service that is closed to another domain is closed to lists, too, also to one with the service alone.
    """
    service = "domain://msg-node.b.example/hyperty-address-allocation"
    others = ["hyperty://b.example/bob"][: count - 1]

    network.forge(A, B, message("hyperty://a.example/eve", [service, *others], body={"number": 1}))

    assert {code for code, _ in answers(network)} == {404}


def test_a_domain_that_changes_its_node_names_keeps_no_other_out(network):
    """
    A domain has a bounded number of nodes here, whatever they are called; the nodes of others are served.
    """
    nodes = network[B].exchange.nodes

    found = [nodes.find(f"mn://a.example/x{number}") for number in range(100)]

    assert found[0] is not None and found[-1] is None
    assert sum(session is not None for session in found) <= 64
    assert nodes.find("mn://c.example/n1") is not None
