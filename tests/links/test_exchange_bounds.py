"""
Bounds of what another domain can make this node keep, send or decide.
"""

import msgspec
import pytest
from twisted.logger import globalLogPublisher

from msgnode.links.exchange.node_parts import DomainLimits, ExchangeOptions
from msgnode.links.exchange.receipts import AskedReceipts
from msgnode.links.exchange.subscriptions.grants import DECIDED
from msgnode.links.stream.streams import Outcome
from msgnode.protocol.message import Message
from msgnode.sessions.routing import ALLOCATED
from tests.support.links_exchange import MemoryNetwork
from tests.support.policy_case import rule

A, B = "a.example", "b.example"
ROOM = "comm://b.example/room/changes"
LEASE = ExchangeOptions().lease_seconds


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork(A, B)


@pytest.fixture
def logged():
    """
    The texts of all that is logged.
    """
    events = []
    globalLogPublisher.addObserver(events.append)
    yield events
    globalLogPublisher.removeObserver(events.append)


def told_of(logged):
    """
    What operators read about domains: each with the text.
    """
    return [(event["domain"], event["what"]) for event in logged if "what" in event]


def limited(*, at=B, **limits):
    network = MemoryNetwork(A, B)
    network[at].options.limits = DomainLimits(**limits)
    network[at].exchange.apply()
    return network


def ask(network, subscriber, *addresses, generation=1, source=A, **fields):
    """
    Let a node ask for what its exchange would not. The codes of the answer.
    """
    before = len(network[B].streams.sent)
    entry = ["ask", generation, subscriber, f"runtime://{A}/{subscriber}", list(addresses)]
    network.forge(source, B, entry, kind="subscription", **fields)
    answers = [
        msgspec.msgpack.decode(data) for _, _, data in network[B].streams.sent[before:] if data[0] != 0x7B
    ]
    return [code for answer in answers if answer[0] == "answer" for code in answer[2]]


def state_bytes(network):
    """
    What the node of A is charged for at B, without its session itself.
    """
    return network[B].exchange.nodes.find(network[A].name).account.bytes


def codes(client):
    return [message["body"]["code"] for message in client.take() if message["type"] == "response"]


# -- subscriptions of other domains here ---------------------------------------------------


def test_subscribers_of_one_address_are_bounded():
    """
    The subscriptions of a domain's clients are counted one by one, also those to one address.
    """
    network = limited(max_grants=3)

    answers = [ask(network, subscriber, ROOM) for subscriber in range(5)]

    assert answers == [[200], [200], [200], [429], [429]]
    assert network[B].exchange.grants.table.count(A) == 3
    assert network[B].exchange.counts["limit"] == 2


def test_a_subscription_that_is_renewed_counts_once():
    """
    A domain at its bound renews what it has.
    """
    network = limited(max_grants=1)

    assert [ask(network, 1, ROOM, generation=number) for number in (1, 2, 3)] == [[200], [200], [200]]


def test_subscriptions_are_charged(network):
    """
    Each subscriber costs memory, for which the node's session has an account.
    """
    ask(network, 1, ROOM)
    one = state_bytes(network)

    ask(network, 2, ROOM)

    assert state_bytes(network) > one + len("runtime://a.example/2")


def test_memory_of_a_domain_is_bounded():
    """
    A domain that has used the memory of a session is refused; nothing more is kept.
    """
    network = MemoryNetwork(A, B, limits={"state_bytes_per_session": 20_000})
    identity = {"user": "u" * 3000}

    answers = [ask(network, subscriber, ROOM, identity=identity) for subscriber in range(10)]

    assert answers[0] == [200]
    assert answers[-1] == [429]
    assert state_bytes(network) <= 20_000


@pytest.mark.parametrize("how", ["release", "snapshot", "lease", "policy", "asked again", "no peer"])
def test_every_end_of_a_subscription_gives_its_place_back(network, how):
    """
    However subscriptions end, they count no more, and cost no memory.
    """
    before = state_bytes(network)
    ask(network, 1, "comm://b.example/other")
    ask(network, 1, ROOM, generation=2)
    ask(network, 2, ROOM, generation=3)
    grants = network[B].exchange.grants
    assert grants.table.count(A) == 3
    session = network[B].exchange.nodes.find(network[A].name)
    deny = rule("deny", {"direction": {"equals": "subscribe"}})

    if how == "release":
        network.forge(A, B, ["release", 9, 1, [ROOM, "comm://b.example/other"]], kind="subscription")
        network.forge(A, B, ["release", 9, 2, [ROOM]], kind="subscription")
    elif how == "snapshot":
        network.forge(A, B, ["begin", 9], kind="subscription")
        network.forge(A, B, ["end", 9], kind="subscription")
    elif how == "lease":
        network.clock.pump([LEASE / 4] * 6)
    elif how == "policy":
        network[B].use(deny)
        network.clock.pump([5.0] * 3)
    elif how == "asked again":
        network[B].use(deny)
        ask(network, 1, ROOM, "comm://b.example/other", generation=10)
        ask(network, 2, ROOM, generation=11)
    else:
        network[B].exchange.forget(A)

    assert (len(grants), grants.table.count(A), grants.table.counts()) == (0, 0, {})
    assert session.account.bytes == before


def test_nodes_of_a_domain_share_its_bound():
    """
    A domain with several nodes has no more subscriptions than one with a single node.
    """
    network = limited(max_grants=2)
    network.nodes["mn://a.example/n2"] = network[A]

    ask(network, 1, ROOM)
    entry = msgspec.msgpack.encode(["ask", 1, 1, "runtime://a.example/x", [ROOM, "comm://b.example/2"]])
    envelope = next(each for _, each, _ in network[B].streams.sent if each.kind == "subscription")
    network[B].exchange.received("mn://a.example/n2", envelope, entry, (), lambda: None)
    network.flow()

    assert network[B].exchange.grants.table.count(A) == 2


def test_a_configured_domain_has_a_bound_of_its_own():
    """
    What is configured for one peer takes the place of the general bound.
    """
    network = limited(max_grants=1)
    network[B].options.limits_by_domain = {A: DomainLimits(max_grants=2)}

    assert [ask(network, subscriber, ROOM) for subscriber in range(3)] == [[200], [200], [429]]


@pytest.mark.parametrize(
    ("address", "identity"),
    [(ROOM + "x" * 3000, {}), (ROOM, {"user": "u" * 5000}), ("", {})],
)
def test_long_texts_are_not_kept(network, address, identity):
    """
    An address or an identity that is too long is refused, and stays in no table.
    """
    before = state_bytes(network)

    assert ask(network, 1, address, identity=identity) == [413]
    assert state_bytes(network) == before
    assert len(network[B].exchange.grants) == 0


def test_a_message_with_a_long_identity(network):
    """
    A message whose sender has an identity of many kilobytes is refused, and its sender is answered.
    """
    bob = network[B].client("bob")
    message = {"id": 1, "type": "read", "from": "hyperty://a.example/ann", "to": bob.hyperty}

    network.forge(A, B, message, identity={"user": "u" * 60_000})

    assert bob.take() == []
    assert network[B].exchange.counts["too-long"] == 1
    answers = [msgspec.json.decode(data) for _, _, data in network[B].streams.sent]
    assert [answer["body"]["code"] for answer in answers] == [413]


def test_many_addresses_are_decided_on_in_slices(network):
    """
    Entries with many addresses do not hold the event loop, and are taken in their order.
    """
    addresses = [f"comm://b.example/{number}" for number in range(500)]
    entries = [["ask", 1, 1, "runtime://a.example/1", addresses], ["release", 2, 1, addresses[1:]]]
    grants = network[B].exchange.grants
    envelope = network_envelope()
    done: list[int] = []

    for number, entry in enumerate(entries):
        payload = msgspec.msgpack.encode(entry)
        network[B].exchange.received(
            network[A].name, envelope, payload, (), lambda number=number: done.append(number)
        )
    at_once = len(grants)
    network.clock.turn()
    after_a_turn = len(grants)
    network.flow()

    assert (at_once, after_a_turn) == (DECIDED, 2 * DECIDED)
    assert (len(grants), done) == (1, [0, 1])


def network_envelope():
    network = MemoryNetwork(A, B)
    ask(network, 1, ROOM)
    return next(each for _, each, _ in network[B].streams.sent if each.kind == "subscription")


def test_a_peer_that_is_removed_meanwhile(network):
    """
    What a domain asked for is not taken any more when it is no peer; its entries are acknowledged.
    """
    envelope, done = network_envelope(), []
    for number in range(3):
        addresses = [f"comm://b.example/{number}-{each}" for each in range(200)]
        payload = msgspec.msgpack.encode(["ask", number, 1, "runtime://a.example/1", addresses])
        network[B].exchange.received(
            network[A].name, envelope, payload, (), lambda number=number: done.append(number)
        )

    network[B].exchange.forget(A)
    network[B].exchange.options.limits = DomainLimits(max_grants=0)
    network.clock.advance(0)

    assert sorted(done) == [0, 1, 2]
    assert len(network[B].exchange.grants) == 0


# -- addresses of single clients ----------------------------------------------------------------


@pytest.mark.parametrize(
    "address", ["hyperty://b.example/bob", "hyperty://b.example/nobody", "HYPERTY://b.example/x"]
)
def test_the_address_of_one_client_is_not_open_to_subscribers(network, address):
    """
    A client of another domain cannot listen to what is sent to one client here, or to a name not taken yet.
    """
    ann, bob, bea = network[A].client("ann"), network[B].client("bob"), network[B].client("bea")

    network[A].subscribe(ann, address)
    network.flow()
    refused = codes(ann)
    bea.request(bob.hyperty, "update")
    network.flow()

    assert refused == [404]
    assert (len(bob.take()), ann.take()) == (1, [])


def test_publications_of_a_client_are_open(network):
    """
    What a hyperty publishes about itself may be subscribed from other domains.
    """
    assert ask(network, 1, "hyperty://b.example/bob/status") == [200]


def test_a_rule_that_names_the_address_of_one_client(network):
    """
    An operator can open such an address by a rule that names it, and by none that permits everything.
    """
    everything = rule("permit", {"direction": {"equals": "subscribe"}})
    named = rule("permit", {"msgTo": {"equals": "hyperty://b.example/bob"}})

    network[B].use(everything)
    with_everything = ask(network, 1, "hyperty://b.example/bob")
    network[B].use(named, everything)
    with_name = ask(network, 1, "hyperty://b.example/bob", generation=2)

    assert (with_everything, with_name) == ([404], [200])


# -- subscriptions of clients here elsewhere ------------------------------------------------------


def swallow(network):
    """
    The other domain acknowledges everything and answers nothing.
    """
    while network.wire:
        source, destination, envelope, _, done = network.wire.popleft()
        if done is not None:
            done(envelope, Outcome(200, "acknowledged", "", ((source, 5), (destination, 7))))
        network.clock.advance(0)


def test_unanswered_entries_end(network):
    """
    Entries that another domain acknowledges and never answers are forgotten after half a lease.
    """
    ann = network[A].client("ann")
    pending = network[A].exchange.upstream.pending
    for number in range(20):
        network[A].subscribe(ann, f"comm://b.example/{number}")
        network[A].subscribe(ann, f"comm://b.example/{number}", type="unsubscribe")
        swallow(network)
    asked = len(pending)

    network.clock.advance(LEASE / 2)
    swallow(network)
    network.clock.advance(LEASE / 2)
    swallow(network)

    assert (asked, len(pending), pending.count(B)) == (20, 0, 0)


def test_a_snapshot_takes_the_place_of_what_it_asks_again(network):
    """
    Snapshots that are never answered do not add up.
    """
    ann = network[A].client("ann")
    network[A].subscribe(ann, *(f"comm://b.example/{number}" for number in range(10)))
    swallow(network)
    network.clock.advance(6)

    for _ in range(50):
        network[A].exchange.restarted(network[B].name)
        network.clock.advance(400)
        swallow(network)

    assert network[A].exchange.upstream.pending.count(B) == 10


def test_unanswered_entries_are_bounded():
    """
    While a domain answers nothing, clients can ask for so much and no more; then they are told 429.
    """
    network = limited(at=A, max_upstream=8)
    clients = [network[A].client(f"c{number}") for number in range(5)]
    told = []
    for client in clients:
        for number in range(3):
            network[A].subscribe(client, f"comm://b.example/{client.runtime[-2:]}{number}")
            network[A].subscribe(
                client, f"comm://b.example/{client.runtime[-2:]}{number}", type="unsubscribe"
            )
            swallow(network)
        told += codes(client)

    assert network[A].exchange.upstream.pending.count(B) == 8
    assert told.count(429) == 15 - 8


def test_one_client_has_a_quarter_of_the_subscriptions():
    """
    One client cannot take all the subscriptions that the node may have in a domain.
    """
    network = limited(at=A, max_upstream=8)
    ann, al = network[A].client("ann"), network[A].client("al")

    for client in (ann, al):
        for number in range(3):
            network[A].subscribe(client, f"comm://b.example/{number}")
            network.flow()

    assert (codes(ann), codes(al)) == ([200, 200, 429], [200, 200, 429])
    assert network[A].exchange.upstream.count(B) == 4


def test_a_client_at_its_limit_may_repeat_a_subscription():
    """
    A subscription that a client repeats, as after a reconnection, is no further one.
    """
    network = limited(at=A, max_upstream=4)
    ann = network[A].client("ann")

    for _ in range(3):
        network[A].subscribe(ann, ROOM)
        network.flow()

    assert codes(ann) == [200, 200, 200]


def snapshots(network):
    return sum(
        envelope.kind == "subscription" and msgspec.msgpack.decode(data)[0] == "begin"
        for _, envelope, data in network[A].streams.sent
    )


def test_a_domain_that_restarts_each_second(network):
    """
    A domain that loses its memory each second gets all subscriptions ever less often; once it is quiet, at
    once again.
    """
    ann = network[A].client("ann")
    network[A].subscribe(ann, ROOM)
    network.flow()

    for _ in range(600):
        network[A].exchange.restarted(network[B].name)
        network.clock.advance(1)
        network.flow()
    meanwhile = snapshots(network)
    network.clock.pump([60.0] * 15)
    network.flow()
    before = snapshots(network)
    network[A].exchange.restarted(network[B].name)
    network.flow()

    assert 3 <= meanwhile <= 8
    assert snapshots(network) == before + 1


# -- receipts ---------------------------------------------------------------------------------------


def forged_receipt(network, client, id=7):
    network.forge(B, A, [id, client.hyperty, "hyperty://b.example/bob"], kind="receipt", code=200)


def test_a_receipt_that_nobody_asked_for(network, logged):
    """
    Such a receipt reaches no client; it is counted, and logged once an hour for each domain.
    """
    ann = network[A].client("ann")

    for id in range(5):
        forged_receipt(network, ann, id)

    assert ann.take() == []
    assert network[A].exchange.counts["unasked"] == 5
    assert [domain for domain, what in told_of(logged) if "no client asked for" in what] == [B]


def test_a_second_receipt_is_no_offence(network):
    """
    The receipt of a message whose sender was told already is dropped, and not counted as one unasked.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    ann.request(bob.hyperty, "ping", receipt=True)
    network.flow()
    ann.take()

    forged_receipt(network, ann)

    assert (ann.take(), network[A].exchange.counts["unasked"]) == ([], 0)


def test_receipts_after_a_restart(network):
    """
    A session of before a restart gets its receipts, for as long as its messages may wait; a new one does not.
    """
    ann = network[A].client("ann")
    network[A].exchange.stop()
    network[A].exchange.start()
    al = network[A].client("al")

    forged_receipt(network, ann)
    forged_receipt(network, al)
    in_time = [[message["body"]["code"] for message in client.take()] for client in (ann, al)]
    network.clock.advance(network[A].options.max_wait_seconds)
    network.clock.advance(1)
    forged_receipt(network, ann, 8)

    assert (in_time, ann.take()) == ([[200], []], [])


def test_too_many_awaited_receipts(network):
    """
    If more receipts are awaited than the node remembers, the sender of most is told that it gets none.
    """
    ann = network[A].client("ann")
    receipts = AskedReceipts(network[A].node.routes, network.clock.seconds, most=2)

    for id in range(3):
        receipts.ask(Message(id, "ping", "hyperty://b.example/bob", ann.hyperty, receipt=True), ann.session)

    [told] = ann.take()
    assert (told["id"], told["body"]["code"], told["body"]["reason"], told["body"]["final"]) == (
        0,
        507,
        "limit",
        True,
    )


# -- sessions of other nodes --------------------------------------------------------------------------


def idle(network, seconds):
    for _ in range(int(seconds // 900) + 2):
        network.clock.advance(900)
        network.clock.advance(0)


def test_the_session_of_a_silent_node_ends(network):
    """
    A node that sends nothing, and gets nothing, for as long as a message may wait has no session any more.
    """
    ann, bob = network[A].client("ann"), network[B].client("bob")
    ann.request(bob.hyperty)
    network.flow()
    wait = network[B].options.max_wait_seconds

    idle(network, wait - 3000)
    before = network[A].name in network[B].exchange.nodes
    idle(network, 6000)

    assert before
    assert network[A].name not in network[B].exchange.nodes
    assert network[B].node.sessions.get(network[A].name) is None
    assert len(network[B].exchange.nodes) == 0


@pytest.mark.parametrize("is_reachable", [True, False])
def test_the_session_of_a_node_with_addresses(network, is_reachable):
    """
    A node whose clients have addresses here keeps its session while there is a route to it.
    """
    session = network[B].exchange.nodes.find(network[A].name)
    network[B].node.routes.bind("hyperty://b.example/given", session, ALLOCATED)
    if not is_reachable:
        network.cut.add(frozenset((network[A].name, network[B].name)))

    idle(network, network[B].options.max_wait_seconds + 3000)

    assert (network[A].name in network[B].exchange.nodes) is is_reachable


def test_a_domain_with_ever_new_nodes_replaces_its_idle_ones(network):
    """
    A domain at its bound of nodes gets room for a new one in the place of one that was silent for a lease.
    """
    nodes = network[B].exchange.nodes
    for number in range(64):
        assert nodes.find(f"mn://a.example/x{number}") is not None
    full = nodes.find("mn://a.example/new")
    network.clock.advance(LEASE)
    for number in range(1, 64):
        nodes.find(f"mn://a.example/x{number}")

    assert full is None
    assert nodes.find("mn://a.example/new") is not None
    assert ("mn://a.example/x0" in nodes, len(nodes)) == (False, 64)


# -- rates --------------------------------------------------------------------------------------------


def test_a_configured_domain_has_a_rate_of_its_own():
    """
    What is configured for one peer takes the place of the general rate; a reload counts at once.
    """
    network = limited(rate_messages=1)
    ann, bob = network[A].client("ann"), network[B].client("bob")
    network[B].options.limits_by_domain = {A: DomainLimits(rate_messages=3)}
    network[B].exchange.apply()

    for _ in range(5):
        ann.request(bob.hyperty)
    network.flow()
    refused = codes(ann)
    network[B].options.limits_by_domain = {}
    network[B].options.limits = DomainLimits()
    network[B].exchange.apply()
    ann.request(bob.hyperty)
    network.flow()

    assert (refused, codes(ann), len(bob.take())) == ([429, 429], [], 4)


def test_a_domain_beyond_its_limits_is_logged_once_an_hour(logged):
    """
    The log names a domain that sends too fast or wants too much once an hour, however often it is refused.
    """
    network = limited(rate_messages=1, max_grants=1)
    ann, bob = network[A].client("ann"), network[B].client("bob")

    for _ in range(2):
        for number in range(20):
            ann.request(bob.hyperty)
            ask(network, number, ROOM, generation=number + 1)
        network.flow()
        network.clock.advance(3600)

    found = [(domain, what.split()[2]) for domain, what in told_of(logged)]
    assert sorted(found) == [(A, "for"), (A, "for"), (A, "more"), (A, "more")]
    assert network[B].exchange.counts["rate"] > 30


def test_bytes_of_a_domain():
    """
    The bytes of a domain are limited, too; its sender is told, in a receipt as well.
    """
    network = limited(rate_bytes=1000)
    ann, bob = network[A].client("ann"), network[B].client("bob")

    ann.request(bob.hyperty, body={"value": "x" * 2000})
    ann.request(bob.hyperty, receipt=True)
    network.flow()

    told = [(message["type"], message["body"]["code"], message["body"]["reason"]) for message in ann.take()]
    assert sorted(told) == [("receipt", 429, "rate"), ("response", 429, "rate")]
    assert network[B].exchange.counts["rate"] == 1


def test_entries_count_for_the_rate_and_are_not_refused():
    """
    A domain that floods with entries about subscriptions has no rate left for messages, for a second or two.
    """
    network = limited(rate_messages=5)
    ann, bob = network[A].client("ann"), network[B].client("bob")
    answers = [ask(network, number, ROOM) for number in range(50)]

    ann.request(bob.hyperty)
    network.flow()
    refused = codes(ann)
    network.clock.advance(2)
    ann.request(bob.hyperty)
    network.flow()

    assert (answers, refused, codes(ann)) == ([[200]] * 50, [429], [])


# -- faults of a domain ---------------------------------------------------------------------------------


def test_a_domain_that_moves_to_another_node(network):
    """
    When a domain is at another node, its objects are heard from there, and requests go there.
    """
    ann = network[A].client("ann")
    network[A].subscribe(ann, ROOM)
    network.flow()
    ann.take()
    old, new = network[B], network.add(B, node="n2")
    network.cut.add(frozenset((network[A].name, old.name)))
    for _ in range(3):
        network.clock.advance(5)
        network.flow()
    bob = new.client("bob")

    bob.tell({"id": 3, "type": "update", "from": "comm://b.example/room", "to": ROOM, "body": {"value": 1}})
    ann.request(bob.hyperty)
    network.flow()

    assert [(message["type"], message["body"]) for message in ann.take()] == [("update", {"value": 1})]
    assert len(bob.take()) == 1
    assert len(new.exchange.grants) == 1


def test_subscriptions_stay_at_their_node_while_there_is_a_route(network):
    """
    A second node of the domain, however near, does not make this node ask for everything again.
    """
    ann = network[A].client("ann")
    network[A].subscribe(ann, ROOM)
    network.flow()
    second = network.add(B, node="n2")
    network.nodes = {second.name: second, **network.nodes}  # it is the nearest now

    for _ in range(20):
        network.clock.advance(5)
        network.flow()

    assert (snapshots(network), len(second.exchange.grants)) == (0, 0)


def test_a_domain_that_is_no_peer_any_more_is_asked_nothing(network):
    """
    What clients here were subscribed to in a removed domain is not asked for again, until it is back.
    """
    ann = network[A].client("ann")
    network[A].subscribe(ann, ROOM)
    network.flow()
    network.domains.discard(B)
    network[A].exchange.forget(B)
    before = len(network[A].streams.sent)

    network.clock.pump([5.0] * 1000)
    meanwhile = len(network[A].streams.sent) - before
    network.domains.add(B)
    network.clock.pump([5.0] * 400)
    network.flow()

    assert (meanwhile, bool(snapshots(network))) == (0, True)
