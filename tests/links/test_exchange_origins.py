"""
Messages that pass on to a third domain: what their senders' nodes signed, and nothing else.
"""

import json

import msgspec
import pytest

from msgnode.links.exchange.passing.origins import MAX_HOPS, REDIRECTS
from msgnode.links.stream.streams import STALE, Envelope, Hop
from msgnode.protocol.message import decode
from tests.support.links_exchange import MemoryNetwork
from tests.support.policy_case import rule

A, B, C, D = "a.example", "b.example", "c.example", "d.example"
ROOM = "comm://b.example/room/children/"


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork(A, B, C, D)


def redirect(network, domain, from_="*/desk", to="hyperty://c.example/cid"):
    """
    Let the policies of a domain redirect, which it advertises.
    """
    network[domain].use(rule("permit", {"msgTo": {"like": from_}}, obligations={"redirect": to}))
    network.features[network[domain].name] = {REDIRECTS}


def sent(network, domain):
    """
    The envelopes and payloads of messages that a domain sent.
    """
    return [
        (envelope, payload)
        for _, envelope, payload in network[domain].streams.sent
        if envelope.kind == "message"
    ]


def codes(messages):
    return [(each["type"], each["body"].get("code"), each["body"].get("reason")) for each in messages]


# -- publications --------------------------------------------------------------------------


@pytest.mark.parametrize("to", [ROOM, [ROOM, "comm://b.example/other/changes"]])
def test_a_publication_reaches_an_observer_in_a_third_domain(network, to):
    """
    What a client of A publishes at objects of B reaches an observer in C, once for each object.
    """
    ann, cid = network[A].client("ann"), network[C].client("cid")
    network[C].subscribe(cid, ROOM, "comm://b.example/other/changes")
    network.flow()
    cid.take()

    ann.request(to, "update", body={"value": 1})
    network.flow()

    found = [(each["from"], each["to"], each["body"]) for each in cid.take()]
    assert found == [(ann.hyperty, each, {"value": 1}) for each in ([to] if isinstance(to, str) else to)]


def test_a_publication_is_taken_once(network):
    """
    The home domain cannot repeat what another domain's client published.
    """
    ann, cid = network[A].client("ann"), network[C].client("cid")
    network[C].subscribe(cid, ROOM)
    network.flow()
    cid.take()
    ann.request(ROOM, "update")
    network.flow()
    [(envelope, payload)] = sent(network, B)
    assert len(cid.take()) == 1

    network.wire.append((network[B].name, network[C].name, envelope, payload, None))
    network.flow()

    assert cid.take() == []
    assert network[C].exchange.counts["repeated"] == 1


@pytest.mark.parametrize("node", [B, D])
def test_no_node_signs_for_the_clients_of_another_domain(network, node):
    """
    A signature of a node counts for senders of its own domain only, whoever presents it.
    """
    cid, dan = network[C].client("cid"), network[node].client("dan")
    network[C].subscribe(cid, ROOM)
    network.flow()
    cid.take()
    origins = network[node].exchange.origins
    envelope = envelope_of_publication(network, node, dan)

    message = {"id": 7, "type": "update", "from": "hyperty://a.example/ann", "to": ROOM, "body": {}}
    payload = msgspec.json.encode(message)
    resigned = sign_as(origins, envelope, "hyperty://a.example/ann", payload)
    network.wire.append((network[B].name, network[C].name, resigned, payload, None))
    network.flow()

    assert cid.take() == []
    assert network[C].exchange.counts["peer"] == 1


@pytest.mark.parametrize(
    ("ahead", "arrives"), [(0, True), (-3000, True), (3000, True), (86_400, False), (-400_000, False)]
)
def test_signatures_are_good_for_a_time(network, ahead, arrives):
    """
    A signature by a clock that is far ahead, or older than its message may be, is refused.
    """
    network.ahead[A] = ahead
    ann, cid = network[A].client("ann"), network[C].client("cid")
    network[C].subscribe(cid, ROOM)
    network.flow()
    cid.take()

    ann.request(ROOM, "update")
    network.flow()

    assert len(cid.take()) == arrives
    assert network[C].exchange.counts["peer"] == (not arrives)


# -- forwarding ----------------------------------------------------------------------------


def test_a_client_forwards_to_a_third_domain(network):
    """
    A request with `forward` goes from A to B, where its recipient forwards it to C, which answers A.
    """
    ann, bob, cid = network[A].client("ann"), network[B].client("bob"), network[C].client("cid")
    ann.request(bob.hyperty, forward=True, body={"question": 1.50}, transaction="t")
    network.flow()
    [got] = bob.take()

    bob.tell({**got, "to": cid.hyperty})
    network.flow()
    [asked] = cid.take()
    assert asked == {**got, "to": cid.hyperty}
    cid.tell({"id": 7, "type": "response", "from": cid.hyperty, "to": ann.hyperty, "body": {"code": 200}})
    network.flow()

    assert [(each["from"], each["body"]["code"]) for each in ann.take()] == [(cid.hyperty, 200)]


@pytest.mark.parametrize(
    "changed", [{"body": {"question": 2}}, {"id": 8}, {"from": "hyperty://a.example/al"}]
)
def test_only_what_the_sender_signed_is_forwarded(network, changed):
    """
    A message that its recipient has changed is not forwarded to another domain: 403.
    """
    ann, bob, cid = network[A].client("ann"), network[B].client("bob"), network[C].client("cid")
    ann.request(bob.hyperty, forward=True, body={"question": 1})
    network.flow()
    [got] = bob.take()

    bob.tell({**got, "to": cid.hyperty, **changed})
    network.flow()

    assert cid.take() == []
    assert [each["body"]["code"] for each in bob.take()] == [403]


def test_what_may_not_be_forwarded_is_not_forwarded_by_another_domain(network):
    """
    A domain that lets its clients forward a message without the leave of the sender is refused.
    """
    redirect(network, B)
    ann, cid = network[A].client("ann"), network[C].client("cid")
    ann.request("hyperty://b.example/desk")
    network.flow()
    cid.take()
    [(envelope, payload)] = sent(network, B)
    origins = network[B].exchange.origins

    forged = msgspec.structs.replace(envelope, origin=msgspec.structs.replace(envelope.origin, hops=[]))
    passed = origins.passed(message_of(payload))
    assert passed is not None
    forged.origin = origins.redirect(passed, message_of(payload, cid.hyperty), C, True)
    network.wire.append((network[B].name, network[C].name, forged, payload, None))
    network.flow()

    assert cid.take() == []
    assert network[C].exchange.counts["peer"] == 1


def test_a_message_that_returns_home(network):
    """
    A client of B may forward a message of A to another client of A, who answers the sender at home.
    """
    ann, al, bob = network[A].client("ann"), network[A].client("al"), network[B].client("bob")
    ann.request(bob.hyperty, forward=True)
    network.flow()

    bob.tell({**bob.take()[0], "to": al.hyperty})
    network.flow()

    assert [each["from"] for each in al.take()] == [ann.hyperty]


def test_the_sender_of_a_message_that_returns_home_learns_that_nobody_has_it(network):
    """
    If nobody is at the address that a client of B forwards to, the sender gets one answer.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    ann.request(bob.hyperty, forward=True)
    network.flow()

    bob.tell({**bob.take()[0], "to": "hyperty://a.example/nobody"})
    network.flow()

    assert codes(ann.take()) == [("response", 404, "no-route")]


# -- redirects -----------------------------------------------------------------------------


def test_a_policy_redirects_to_a_third_domain(network):
    """
    A policy of B redirects a request of A to C, whose answer and receipt reach A; its policies see A's node.
    """
    redirect(network, B)
    network[C].use(rule("deny", {"peer.domain": {"equals": B}}))
    ann, cid = network[A].client("ann"), network[C].client("cid")

    ann.request("hyperty://b.example/desk", body={"n": 1}, receipt=True)
    network.flow()
    [asked] = cid.take()
    assert (asked["from"], asked["to"], asked["body"]["n"]) == (ann.hyperty, cid.hyperty, 1)
    cid.tell({"id": 7, "type": "response", "from": cid.hyperty, "to": ann.hyperty, "body": {"code": 200}})
    network.flow()

    found = ann.take()
    assert sorted(codes(found), key=str) == [("receipt", 202, None), ("response", 200, None)]
    assert [each["body"]["to"] for each in found if each["type"] == "receipt"] == ["hyperty://b.example/desk"]


def test_a_node_that_redirects_nothing_gets_no_signatures(network):
    """
    An ordinary request is signed only if its recipient asks for that; one that is not signed goes no further.
    """
    redirect(network, B)
    network.features.clear()
    ann, cid = network[A].client("ann"), network[C].client("cid")

    ann.request("hyperty://b.example/desk")
    ann.request(network[B].client("bob").hyperty)
    network.flow()

    assert [envelope.origin for envelope, _ in sent(network, A)] == [None, None]
    assert cid.take() == []
    assert codes(ann.take()) == [("response", 403, "peer")]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda origin: replaced(origin, signature=b"?"), "invalid"),
        (lambda origin: replaced(origin, at=origin.at + 1), "invalid"),
        (lambda origin: replaced(origin, at=origin.at - 9000, ttl=1), "too old"),
        (lambda origin: replaced(origin, at=origin.at + 9000), "future"),
        (lambda origin: replaced(origin, node="mn://a.example/n2"), "invalid"),
        (lambda origin: replaced(origin, node="mn://d.example/n1"), "does not speak"),
        (lambda origin: replaced(origin, node="nonsense"), "does not speak"),
        (lambda origin: replaced(origin, hops=[replaced(origin.hops[0], signature=b"?")]), "invalid"),
        (
            lambda origin: replaced(origin, hops=[replaced(origin.hops[0], node="mn://d.example/n1")]),
            "another",
        ),
        (lambda origin: replaced(origin, hops=origin.hops * 2), "not sent to"),
        (lambda origin: replaced(origin, hops=origin.hops * 9), "more than 8"),
    ],
)
def test_a_redirect_without_proof_is_refused_and_told(network, change, told):
    """
    A message that B passes on with a proof that is forged, old or another's is refused, and its sender told.
    """
    redirect(network, B)
    ann, cid = network[A].client("ann"), network[C].client("cid")
    ann.request("hyperty://b.example/desk", receipt=True)
    network.step()
    source, destination, envelope, payload, done = network.wire.popleft()

    envelope.origin = change(envelope.origin)
    network.wire.append((source, destination, envelope, payload, done))
    network.flow()

    assert cid.take() == []
    assert network[C].exchange.counts["peer"] == 1
    found = ann.take()
    assert sorted(codes(found), key=str) == [("receipt", 403, "peer"), ("response", 403, "peer")]
    assert {each["from"] for each in found} == {"mn:/receipt", "hyperty://b.example/desk"}
    assert all(told in str(each["body"]) for each in found)


@pytest.mark.parametrize(
    "change",
    [
        lambda origin: replaced(origin, node="nonsense"),
        lambda origin: replaced(origin, node="mn://d.example/n1"),
        lambda origin: replaced(origin, hops=[Hop("nonsense", "hyperty://c.example/cid", C, False)]),
    ],
)
def test_a_message_whose_origin_makes_no_sense_is_not_passed_on(network, change):
    """
    A node of the sender's domain may say nonsense about the origin of a message: it goes no further, and its
    sender is told.
    """
    redirect(network, B)
    ann, cid = network[A].client("ann"), network[C].client("cid")
    ann.request("hyperty://b.example/desk")
    source, destination, envelope, payload, done = network.wire.popleft()

    envelope.origin = change(envelope.origin)
    network.wire.append((source, destination, envelope, payload, done))
    network.flow()

    assert cid.take() == []
    assert network[B].exchange.counts["failed"] == 0
    assert codes(ann.take()) == [("response", 403, "peer")]


def test_a_proof_is_not_good_for_other_messages(network):
    """
    A signature is bound to the message's id, sender and bytes, and to the domain that it was sent to.
    """
    redirect(network, B)
    ann, cid = network[A].client("ann"), network[C].client("cid")
    ann.request("hyperty://b.example/desk")
    network.flow()
    cid.take()
    [(envelope, payload)] = sent(network, B)
    [(first, _)] = sent(network, A)

    elsewhere = replaced(envelope.origin.hops[0], to="hyperty://c.example/other")
    for other, bytes_ in (
        (replaced(envelope, id=(envelope.id[0], envelope.id[1] + 1)), payload),
        (replaced(envelope, origin=replaced(envelope.origin, hops=[elsewhere])), payload),
        (envelope, payload.replace(b"ann", b"al")),
        (envelope, payload.replace(b"create", b"update")),
        (envelope, payload.replace(b"desk", b"disk")),
        (envelope, payload),  # and it is taken once
    ):
        network.wire.append((network[B].name, network[C].name, other, bytes_, None))
    # D, by which it passed, claims that it was for D.
    hop = Hop(network[D].name, cid.hyperty, C, False)
    stolen = replaced(first, origin=replaced(first.origin, hops=[hop]))
    network.wire.append((network[D].name, network[C].name, stolen, payload, None))
    network.flow()

    assert cid.take() == []
    assert (network[C].exchange.counts["peer"], network[C].exchange.counts["repeated"]) == (6, 1)


def test_eight_redirects_and_no_more(network):
    """
    Two domains that redirect to each other pass a message on eight times; then its sender is told.
    """
    redirect(network, B, to="hyperty://c.example/desk")
    redirect(network, C, to="hyperty://b.example/desk")
    ann = network[A].client("ann")

    ann.request("hyperty://b.example/desk")
    network.flow()

    assert codes(ann.take()) == [("response", 403, "peer")]
    passed = [network[each].exchange.counts["passed-on"] for each in (B, C)]
    assert sum(passed) == MAX_HOPS
    assert network[B].exchange.counts["peer"] == 1


def test_two_domains_that_redirect_to_each_other_a_message_of_their_own(network):
    """
    The bound counts for messages of the two domains, too.
    """
    redirect(network, B, to="hyperty://c.example/desk")
    redirect(network, C, to="hyperty://b.example/desk")
    bob = network[B].client("bob")

    bob.request("hyperty://b.example/desk")
    network.flow()

    assert codes(bob.take()) == [("response", 403, "peer")]
    assert sum(network[each].exchange.counts["passed-on"] for each in (B, C)) == MAX_HOPS


def test_a_chain_of_redirects(network):
    """
    A message is redirected from B to C and from there to D, and what D publishes reaches C.
    """
    redirect(network, B, to="hyperty://c.example/desk")
    redirect(network, C, to="comm://d.example/desk")
    ann, dan, cid = network[A].client("ann"), network[D].client("dan"), network[C].client("cid")
    network[D].subscribe(dan, "comm://d.example/desk")
    network[C].subscribe(cid, "comm://d.example/desk")
    network.flow()
    dan.take(), cid.take()

    ann.request("hyperty://b.example/desk", "update")
    network.flow()

    for client in (dan, cid):
        assert [(each["from"], each["to"]) for each in client.take()] == [
            (ann.hyperty, "comm://d.example/desk")
        ]


def test_a_policy_that_edits_the_body_keeps_the_message_here(network):
    """
    A message whose body a policy has changed is not what its sender signed: it goes to no third domain.
    """
    both = {"redirect": "hyperty://c.example/cid", "set": {"body.x": 1}}
    network[B].use(rule("permit", {"msgTo": {"like": "*/desk"}}, obligations=both))
    network.features[network[B].name] = {REDIRECTS}
    ann, cid = network[A].client("ann"), network[C].client("cid")

    ann.request("hyperty://b.example/desk")
    network.flow()

    assert cid.take() == []
    assert codes(ann.take()) == [("response", 403, "peer")]


def test_a_redirect_that_finds_no_path(network):
    """
    The sender learns of a message that was redirected and not delivered, also after a restart of that node.
    """
    redirect(network, B)
    ann = network[A].client("ann")
    ann.request("hyperty://b.example/desk")
    network.step()
    _, _, envelope, payload, done = network.wire.popleft()

    done(envelope, STALE)
    network.flow()
    network[B].exchange.ended(network[C].name, envelope, payload, STALE)
    network.flow()

    assert codes(ann.take()) == [("response", 404, "stale")] * 2


def test_memory_of_messages_that_may_be_passed_on_is_bounded(network):
    """
    Signed messages that a peer sends are remembered up to a number of bytes.
    """
    network[B].client("bob")
    network.features[network[B].name] = {REDIRECTS}
    ann = network[A].client("ann")
    for number in range(40):
        ann.request("hyperty://b.example/bob", "update", body={"n": number, "x": "x" * 500_000})
    network.flow()

    assert 0 < network[B].exchange.origins.remembered_bytes <= 16 * 1024 * 1024


# -- helpers -------------------------------------------------------------------------------


def replaced(what, **changes):
    return msgspec.structs.replace(what, **changes)


def message_of(payload, to=None):
    message = decode(payload)
    return message if to is None else message.copy_to(to)


def envelope_of_publication(network, node, client):
    client.request(ROOM, "update")
    envelope = sent(network, node)[-1][0] if node != B else None
    if envelope is None:
        envelope = Envelope("message", (b"b", 1), 1000, 5)
    network.wire.clear()
    return envelope


def sign_as(origins, envelope, from_, payload):
    """
    The envelope with the signature of a node, for a message of another domain.
    """
    message = message_of(json.dumps({**json.loads(payload), "from": from_}).encode())
    signed = replaced(envelope, origin=None)
    origins.sign(signed, message, payload, 0, "", B)
    return signed
