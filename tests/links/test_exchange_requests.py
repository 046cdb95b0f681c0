"""
Requests and responses between domains: each runtime is connected to its own node only.
"""

import json

import pytest

from msgnode.links.exchange.node_parts import DomainLimits, ExchangeOptions
from msgnode.links.stream.streams import Outcome
from tests.support.links_exchange import MemoryNetwork

A, B, C = "a.example", "b.example", "c.example"


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork(A, B)


def codes(messages):
    return [message["body"]["code"] for message in messages if message["type"] == "response"]


@pytest.mark.parametrize(("here", "there"), [(A, B), (B, A)])
def test_request_and_three_responses(network, here, there):
    """
    A request reaches the client of the other domain as it was sent, and each of its responses comes back.
    """
    ann, bob = network[here].client("ann"), network[there].client("bob")
    request = {"id": 7, "type": "create", "from": ann.hyperty, "to": bob.hyperty, "body": {"value": 1}}

    ann.tell(request)
    network.flow()
    got = bob.take()
    for code in (100, 180, 200):
        bob.tell(
            {"id": 7, "type": "response", "from": bob.hyperty, "to": ann.hyperty, "body": {"code": code}}
        )
    network.flow()

    assert got == [request]
    assert codes(ann.take()) == [100, 180, 200]


def test_priority_and_time_to_live(network):
    """
    A request is under way for 15 seconds at most, a response for 60, anything else for a day; answers have
    priority 7, log messages 1, others 5, and what the sender says goes before.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")

    ann.request(bob.hyperty)
    ann.request(bob.hyperty, "response")
    ann.request(bob.hyperty, "ping")
    ann.request(bob.hyperty, "log", ttl=2)
    ann.request(bob.hyperty, "ping", priority=9, transaction="t", compress=True, log=False)

    sent = [envelope for _, envelope, _ in network[A].streams.sent]
    assert [each.priority for each in sent] == [5, 7, 5, 1, 9]
    assert [each.ttl_millis for each in sent] == [15_000, 60_000, 86_400_000, 2000, 86_400_000]
    assert (sent[-1].transaction, sent[-1].compress, sent[-1].log) == ("t", True, False)
    assert len({each.id for each in sent}) == 5


def test_nothing_of_the_session_leaves(network):
    """
    Tokens and `via` stay in their domain; all else of the message arrives.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")

    ann.request(bob.hyperty, token=ann.token, body={"via": "runtime://a.example/p", "x": ann.token, "y": 1})
    network.flow()

    [got] = bob.take()
    assert got["body"] == {"x": "*" * len(ann.token), "y": 1}
    assert ann.token.encode() not in b"".join(payload for _, _, payload in network[A].streams.sent)


def test_unknown_recipient(network):
    """
    A request to an address that nobody has in the other domain is answered 404, a publication is not.
    """
    ann = network[A].client("ann")

    ann.request("hyperty://b.example/nobody")
    ann.request("hyperty://b.example/nobody", "update")
    network.flow()

    assert codes(ann.take()) == [404]


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome(408, "stale"), 404),
        (Outcome(504, "in-doubt"), 504),
        (Outcome(502, "no-path"), 502),
        (Outcome(502, "no-key"), 502),
        (Outcome(403, "peer"), 403),
    ],
)
def test_lost_on_the_way(network, outcome, code):
    """
    The sender of a request that did not arrive learns why; never by 408 or 500, after which runtimes repeat.
    """
    ann = network[A].client("ann")
    network[A].streams.losing = outcome

    ann.request("hyperty://b.example/bob")
    ann.request("hyperty://b.example/bob", "response")
    network.flow()

    [answer] = ann.take()
    assert (answer["body"]["code"], answer["body"]["reason"]) == (code, outcome.reason)
    assert answer["from"] == "hyperty://b.example/bob"


def test_no_room(network):
    """
    What the stream has no room for is answered 507 at once.
    """
    ann = network[A].client("ann")
    network[A].streams.room = 0

    ann.request("hyperty://b.example/bob")

    assert codes(ann.take()) == [507]
    assert network[A].exchange.counts["overflow"] == 1


def test_domain_without_a_node(network):
    """
    A request to a domain of which no node was ever known is answered 502, with the reason.
    """
    network.domains.add(C)
    ann = network[A].client("ann")

    ann.request("hyperty://c.example/x")

    [body] = [each["body"] for each in ann.take()]
    assert (body["code"], body["reason"]) == (502, "no-path")


def test_unknown_domain(network):
    """
    A request to a domain that is neither configured nor reachable is answered: nobody has the address.
    """
    ann = network[A].client("ann")

    ann.request("hyperty://d.example/x")

    assert [message["body"]["code"] for message in ann.take()] == [404]
    assert not network[A].streams.sent


def test_waits_for_a_route(network):
    """
    What is sent while no route leads to the other domain waits in the stream of the node that was known last.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    ann.request(bob.hyperty)
    network.flow()
    network.cut.add(frozenset((network[A].name, network[B].name)))

    ann.request(bob.hyperty, id=8)
    network.flow()
    before = [message["id"] for message in bob.take()]
    network.cut.clear()
    network.flow()

    assert (before, [message["id"] for message in bob.take()]) == ([7], [8])


@pytest.mark.parametrize(("code", "expected"), [(200, [404]), (100, [])])
def test_the_asker_learns_that_its_answer_went_stale_on_the_way(network, code, expected):
    """
    In the place of an answer that could not be delivered in time, the asker gets one that says so; another
    one follows a provisional answer, in whose place there is nothing.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    ann.request(bob.hyperty, transaction="t")
    network.flow()
    bob.tell({"id": 7, "type": "response", "from": bob.hyperty, "to": ann.hyperty, "transaction": "t",
              "body": {"code": code}})  # fmt: skip
    _, _, envelope, _, done = network.wire.pop()

    done(envelope, Outcome(408, "stale"))
    network.flow()

    answers = ann.take()
    assert [each["body"]["code"] for each in answers] == expected
    assert all((each["id"], each["transaction"], each["from"]) == (7, "t", bob.hyperty) for each in answers)


def test_stale_at_the_recipient(network):
    """
    A request that waits too long for a client that is away is answered 404.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    bob.drop()

    ann.request(bob.hyperty)
    network.flow()
    network.clock.advance(16)
    network.flow()

    [answer] = ann.take()
    assert (answer["body"]["code"], answer["body"]["reason"]) == (404, "stale")


def test_sender_of_another_domain(network):
    """
    A client sends to another domain from addresses of its own domain only.
    """
    network.domains.add(C)
    ann = network[A].client("ann")

    ann.tell({"id": 1, "type": "create", "from": "hyperty://c.example/x", "to": "hyperty://b.example/bob"})
    ann.tell({"id": 1, "type": "create", "from": "domain://idm.b.example", "to": ann.hyperty})

    assert codes(ann.take()) == [403, 403]
    assert not network[A].streams.sent


def test_addresses_of_other_nodes(network):
    """
    No client opens or binds a service of a domain that a link leads to, nor the name of a node.
    """
    ann = network[A].client("ann")

    network[A].subscribe(ann, "domain://msg-node.b.example/gw")
    network[A].subscribe(ann, "mn://b.example/n1")

    assert codes(ann.take()) == [403, 403]


def test_home_domain_decides(network):
    """
    A session that is bound to an address of another domain gets nothing for it from clients of its own.
    """
    ann, eve, bob = network[A].client("ann"), network[A].client("eve"), network[B].client("bob")
    network[A].subscribe(eve, bob.hyperty)
    network.flow()
    eve.take()

    ann.request(bob.hyperty)

    assert eve.take() == []
    network.flow()
    assert [message["type"] for message in bob.take()] == ["create"]


def test_triangle():
    """
    With `triangle`, a client here may hold an address of the other domain, and gets what is sent to it.
    """
    network = MemoryNetwork(A, B, options=ExchangeOptions(triangle=frozenset({B})))
    ann, guest = network[A].client("ann"), network[A].node.client("runtime://b.example/guest")

    ann.request("runtime://b.example/guest/x")

    assert [message["type"] for message in guest.take()] == ["create"]
    assert not network[A].streams.sent


def test_registry_of_the_other_domain(network):
    """
    Services of the other node are closed to this domain, but for reading the registry; refused looks like
    unknown.
    """
    ann = network[A].client("ann")

    for to, type in (
        ("domain://registry.b.example", "read"),
        ("domain://registry.b.example", "create"),
        ("domain://msg-node.b.example/hyperty-address-allocation", "create"),
        ("domain://idm.b.example", "read"),
    ):
        ann.request(to, type)
    network.flow()

    assert [(message["from"], message["body"]["code"]) for message in ann.take()] == [
        ("domain://registry.b.example", 404),  # it has none
        ("domain://registry.b.example", 404),
        ("domain://msg-node.b.example/hyperty-address-allocation", 404),
        ("domain://idm.b.example", 404),
    ]
    assert network[B].node.traffic_recorder.messages[-4]["code"] == 501


def test_three_domains(network):
    """
    A list in `to` becomes one message for each domain; each copy is answered.
    """
    far = network.add(C)
    network.domains.add(C)
    ann = network[A].client("ann")
    here, there, yonder = network[A].client("al"), network[B].client("bob"), far.client("cid")
    addresses = [here.hyperty, there.hyperty, "hyperty://b.example/nobody", yonder.hyperty]

    ann.request(addresses)
    sent = [json.loads(payload)["to"] for _, _, payload in network[A].streams.sent]
    network.flow()

    assert sent == [["hyperty://b.example/bob", "hyperty://b.example/nobody"], "hyperty://c.example/cid"]
    assert [client.take()[0]["to"] for client in (here, there, yonder)] == [
        here.hyperty,
        there.hyperty,
        yonder.hyperty,
    ]
    assert [(m["from"], m["body"]["code"]) for m in ann.take()] == [("hyperty://b.example/nobody", 404)]


def test_rates_of_a_domain():
    """
    A domain that sends more than it may is told 429; it gets its rate back in time.
    """
    network = MemoryNetwork(A, B, options=ExchangeOptions(limits=DomainLimits(rate_messages=2)))
    ann, bob = network[A].client("ann"), network[B].client("bob")

    for _ in range(3):
        ann.request(bob.hyperty)
    network.flow()
    refused = codes(ann.take())
    network.clock.advance(1)
    ann.request(bob.hyperty)
    network.flow()

    assert (refused, codes(ann.take()), len(bob.take())) == ([429], [], 3)


def test_every_message_is_acknowledged_to_the_stream(network):
    """
    The stream may forget each message that came, whatever became of it.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")

    ann.request(bob.hyperty)
    ann.request("hyperty://b.example/nobody")
    network.forge(A, B, {"id": 1, "type": "x"})
    network.forge(A, B, {}, kind="directory")
    network.forge(A, B, {}, kind="subscription")

    assert network.acknowledged == 6  # with the answer 404


def test_no_room_at_the_recipient():
    """
    A request that is pushed out of a full queue in the other domain is answered 507, with a receipt 507.
    """
    network = MemoryNetwork(A, B, session={"queue_messages": 1})
    ann, bob = network[A].client("ann"), network[B].client("bob")
    bob.drop()

    for id in (1, 2):
        ann.request(bob.hyperty, id=id, receipt=True)
    network.flow()

    assert [(each["id"], each["type"], each["body"]["code"]) for each in ann.take()] == [
        (1, "receipt", 507),
        (1, "response", 507),
    ]


def test_sender_is_named_to_the_stream(network):
    """
    The stream knows whose each message is, so that one session cannot fill it.
    """
    ann, al, bob = network[A].client("ann"), network[A].client("al"), network[B].client("bob")

    for client in (ann, al):
        client.request(bob.hyperty)

    assert network[A].streams.senders == [ann.runtime, al.runtime]


def test_publisher_is_named_to_the_stream(network):
    """
    What a client publishes to subscribers in another domain counts for its share, too.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    network[A].subscribe(ann, "comm://b.example/room/changes")
    network.flow()
    network[B].streams.senders.clear()

    network[B].subscribe(bob, "comm://b.example/room")
    bob.tell(
        {"id": 3, "type": "update", "from": "comm://b.example/room", "to": "comm://b.example/room/changes"}
    )

    assert network[B].streams.senders == [bob.runtime]


def test_domain_that_is_no_peer_any_more(network):
    """
    What the nodes of a domain hold here ends when the domain is no longer a peer.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    network[A].subscribe(ann, "comm://b.example/room/changes")
    network.flow()

    network.domains.discard(A)
    network[B].exchange.forget(A)
    bob.request("comm://b.example/room/changes", "update")

    assert network[B].node.sessions.get(network[A].name) is None
    assert len(network[B].exchange.grants) == 0
    assert not network.wire


def test_written_before_it_leaves(network):
    """
    What comes from another domain is handed to clients within the cork, with the stream's count in one batch.
    """
    order: list[str] = []

    class Cork:
        def __enter__(self):
            order.append("cork")

        def __exit__(self, *why):
            order.append("written")

    ann, bob = network[A].client("ann"), network[B].client("bob")
    network[B].node.use_cork(Cork())
    ann.request(bob.hyperty)
    source, _, envelope, payload, _ = network.wire.popleft()
    bob.send = lambda data: order.append("sent")

    network[B].exchange.received(source, envelope, payload, (), lambda: order.append("done"))

    assert order == ["cork", "sent", "done", "written"]
