"""
Attacks on the link state: replays, lies, floods, numbers out of bounds, clocks apart, two nodes with one
name.
"""

import base64
import json
import random

import pytest
from simulating.clock import HeapClock
from simulating.links import End, Wire
from simulating.seal import OpenSeal
from twisted.internet.task import Clock
from twisted.logger import LogLevel, globalLogPublisher

from msgnode.links.overlay.flooding import MAX_WAITING, MAX_WAITING_BYTES
from msgnode.links.overlay.link_state import MAX_DOMAIN_NODES, MAX_DOMAINS_BY_NEIGHBOUR
from msgnode.links.overlay.overlay import Overlay
from msgnode.links.wire.entries import Digest, State, Summary
from tests.support.links_overlay import A, B, C, costs, link, network, overlay, refused, wire
from tests.support.links_signatures import DAY, NOW, Anchors, Owner, advertisement, node_keys

EVIL = "mn://evil.example/n"


class FakeLink:
    """
    A link to a peer that sends whatever a test wants.
    """

    def __init__(self, node=EVIL, kind="SERVER", transit=True):
        self.node = node
        self.kind = kind
        self.cost = 1
        self.is_steady = False
        self.round_trip = 0.001
        self.transit = transit
        self.sent = []
        self.closed = None

    def send(self, datagram):
        self.sent.append(datagram)
        return True

    def send_state(self, entry):
        self.sent.append(entry)

    def close(self, code, reason, retry_after=0.0):
        self.closed = (code, reason)


class Victim:
    """
    An overlay of b.example with real signatures, linked to a peer of evil.example.
    """

    def __init__(self, begin=0.0):
        self.clock = Clock()
        self.clock.rightNow = begin
        self.now = NOW
        self.anchors = Anchors({})
        self.own = Owner("b.example", self.anchors, lambda: self.now)
        self.evil = Owner("evil.example", self.anchors, lambda: self.now)
        self.overlay = Overlay(self.clock, B, self.own.seal, node_keys(), wall=lambda: self.now)
        self.link = FakeLink()
        self.overlay.link_up(self.link)
        self.clock.advance(4)

    def receive(self, compact):
        self.overlay.received(self.link, State(compact))

    def evil_says(self, node=EVIL, **what):
        self.receive(self.evil.seal.sign(advertisement(node, **{"links": {B: 1}, **what})))

    @property
    def refused(self):
        return dict(self.overlay.refusals.by_reason)

    @property
    def nodes(self):
        return set(self.overlay.states.nodes())


@pytest.fixture
def errors():
    """
    The events of level warn and above.
    """
    found = []

    def observe(event):
        if event["log_level"] >= LogLevel.warn:
            found.append(event)

    globalLogPublisher.addObserver(observe)
    yield found
    globalLogPublisher.removeObserver(observe)


def test_a_signed_advertisement_is_believed():
    """
    The peer's own advertisement gives a route to it.
    """
    victim = Victim()

    victim.evil_says()
    victim.clock.advance(1)

    assert victim.overlay.has_route(EVIL)
    assert {} == victim.refused


def test_a_replayed_old_advertisement():
    """
    An old advertisement is dropped before it is verified, and changes nothing.
    """
    victim = Victim()
    old = victim.evil.seal.sign(advertisement(EVIL, links={B: 1}, sequence=(1, 1)))
    victim.evil_says(links={B: 7}, sequence=(1, 2))

    for _ in range(100):
        victim.receive(old)
    victim.clock.advance(1)

    assert {"old": 100} == victim.refused
    assert 7 == victim.overlay.routes.cost(EVIL)


@pytest.mark.parametrize("days", [1, 8, 100])
def test_an_advertisement_is_not_replayed_when_its_node_is_gone(days):
    """
    The last advertisement of a node that is gone gives no route again, however long its certificate is valid.
    """
    victim = Victim()
    victim.evil = Owner("evil.example", victim.anchors, lambda: victim.now, until=NOW + 400 * DAY)
    last = victim.evil.seal.sign(advertisement(EVIL, links={B: 1}, sequence=(1, 2)))
    victim.receive(last)
    victim.clock.advance(1)
    assert victim.overlay.has_route(EVIL)
    victim.clock.pump([60] * 61)  # nobody refreshes it
    victim.now += days * DAY
    victim.clock.pump([DAY / 4] * 4 * days)

    victim.receive(last)
    victim.clock.advance(1)

    assert not victim.overlay.has_route(EVIL)
    assert {"old": 1} == victim.refused


def test_duplicates_are_dropped_before_they_are_verified():
    """
    The same advertisement a thousand times costs one verification.
    """
    victim = Victim()
    compact = victim.evil.seal.sign(advertisement(EVIL, links={B: 1}))

    for _ in range(1000):
        victim.receive(compact)

    assert 999 == victim.overlay.flooding.duplicates
    assert 0 == victim.overlay.flooding.waiting_bytes


def test_a_foreign_domain():
    """
    An advertisement for a node of another domain is refused, and logged once.
    """
    victim = Victim()

    victim.evil_says("mn://c.example/n")

    assert {"untrusted": 1} == victim.refused
    assert set() == victim.nodes


def test_refusals_are_logged_once(errors):
    """
    A thousand refusals of one peer for one reason are one line in the log, and a thousand in the counter.
    """
    victim = Victim()

    for counter in range(1000):
        victim.evil_says("mn://c.example/n", sequence=(1, counter))
        victim.clock.advance(0.01)

    assert 1 == len(errors)
    assert {"untrusted": 1000} == victim.refused


def test_links_of_others():
    """
    A node that claims links to nodes which do not list it gets no traffic of theirs.
    """
    victim = Victim()
    victim.anchors.authorities["c.example"] = victim.evil.authority

    victim.evil_says(links={B: 1, "mn://c.example/n": 1, "mn://d.example/n": 1})
    victim.clock.advance(1)

    assert [EVIL] == list(victim.overlay.routes.labels())


def test_an_unlinked_node_has_no_route():
    """
    A node that lists this node without a link is not reached.
    """
    victim = Victim()

    victim.evil_says("mn://evil.example/other")
    victim.clock.advance(1)

    assert not victim.overlay.has_route("mn://evil.example/other")


def test_a_flood_of_nodes_of_one_domain():
    """
    A domain has at most 64 nodes; more are refused, and others have room.
    """
    victim = Victim()

    for number in range(200):
        victim.evil_says(f"mn://evil.example/n{number}")
        victim.clock.advance(0.01)

    assert MAX_DOMAIN_NODES == len(victim.nodes)
    assert {"domain-full": 200 - MAX_DOMAIN_NODES} == victim.refused


def test_a_flood_of_domains():
    """
    One neighbour introduces at most half of the domains that there is room for.
    """
    world = network((A, B))

    for number in range(MAX_DOMAINS_BY_NEIGHBOUR + 100):
        node = f"mn://x{number}.example/n"
        overlay(world, B).received(link(world, B, A), State(OpenSeal(node).sign(advertisement(node))))
        world.run(0.002)

    assert MAX_DOMAINS_BY_NEIGHBOUR + 1 >= len(overlay(world, B).states.records)
    assert refused(world, B)["neighbour-domains"] >= 99


def test_a_flood_of_advertisements_of_one_node():
    """
    A node that advertises a hundred times a second is believed, but not passed on, as often.
    """
    world = network((A, B), (B, C))
    before = overlay(world, B).flooding.passed_on
    seal = OpenSeal(A)

    for counter in range(1000):
        compact = seal.sign(advertisement(A, links={B: 10}, sequence=(2, counter)))
        overlay(world, B).received(link(world, B, A), State(compact))
        world.run(0.01)

    assert overlay(world, B).flooding.passed_on - before < 40
    assert refused(world, B)["too-often"] > 950


def test_a_burst_is_verified_in_slices():
    """
    Ten thousand advertisements at once do not hold the event loop, take bounded memory, and the rest is
    refused.
    """
    victim = Victim()
    forged = victim.evil.seal.sign(advertisement(EVIL, links={B: 1}))
    head, payload, _ = forged.split(".")
    burst = [f"{head}.{payload}.{number:086}" for number in range(10_000)]

    for compact in burst:
        victim.receive(compact)

    assert victim.refused["signature"] <= 32, "in one turn"
    assert victim.overlay.flooding.waiting_bytes <= MAX_WAITING_BYTES
    assert 10_000 - MAX_WAITING - 32 == victim.refused["busy"]
    victim.clock.pump([0.01] * 600)
    assert 0 == victim.overlay.flooding.waiting_bytes
    assert MAX_WAITING + 32 == victim.refused["signature"]


def test_what_waits_of_a_lost_link_is_dropped():
    """
    When the link is down, advertisements that were not verified yet are dropped.
    """
    victim = Victim()
    for number in range(1000):
        victim.receive(f"a.b.{number}")

    victim.overlay.link_down(victim.link, "gone")

    assert 0 == victim.overlay.flooding.waiting_bytes


@pytest.mark.parametrize("sequence", [(1 << 63, 0), (1, 1 << 63), ((1 << 63) - 1, (1 << 63) - 1)])
def test_sequences_at_the_end_of_numbers(sequence):
    """
    A sequence that leaves nothing above it is refused, so that no node can be silenced by its own echo.
    """
    victim = Victim()

    victim.evil_says(sequence=sequence)

    assert {"malformed": 1} == victim.refused


def test_a_forged_echo_of_this_node():
    """
    An advertisement in this node's own name that it has not signed does not move its sequence.
    """
    victim = Victim()
    before = victim.overlay.own.sequence

    victim.evil_says(B, links={EVIL: 1}, sequence=(1000, 1))
    victim.clock.advance(10)

    assert {"untrusted": 1} == victim.refused
    assert before == victim.overlay.own.sequence


def test_an_echo_with_a_higher_sequence():
    """
    An advertisement of its own with a higher sequence makes the node continue above it.
    """
    victim = Victim()

    victim.receive(victim.own.seal.sign(advertisement(B, links={EVIL: 1}, sequence=(50, 7))))
    victim.clock.advance(10)

    assert victim.overlay.own.sequence > (50, 7)
    assert (50, 8) == max(
        victim.own.seal.read(entry.advertisement).sequence
        for entry in victim.link.sent
        if isinstance(entry, State)
    )


def test_a_certificate_that_ends():
    """
    When a certificate ends, the advertisements and routes of its node end.
    """
    victim = Victim()
    victim.evil_says()
    victim.clock.advance(1)

    victim.now += DAY
    victim.clock.advance(11)

    assert set() == victim.nodes
    assert not victim.overlay.has_route(EVIL)


def test_a_removed_authority():
    """
    When a peer's authority is removed from the configuration, its advertisements and routes end at once.
    """
    victim = Victim()
    victim.evil_says()
    victim.clock.advance(1)

    del victim.anchors.authorities["evil.example"]
    victim.evil.seal.trust_changed()
    victim.own.seal.trust_changed()
    victim.overlay.trust_changed()
    victim.clock.advance(1)

    assert set() == victim.nodes
    assert not victim.overlay.has_route(EVIL)


def test_an_inner_advertisement_from_another_domain():
    """
    An advertisement that a domain made for its own nodes only is not taken from outside.
    """
    victim = Victim()

    victim.evil_says(audience="evil.example")

    assert {"audience": 1} == victim.refused


def test_garbage():
    """
    Whatever a peer sends in the entries of the link state, it is refused without an exception.
    """
    victim = Victim()
    chance = random.Random(5)
    for length in range(300):
        victim.receive("".join(chr(chance.randrange(1, 1000)) for _ in range(length)))
        victim.receive("." * length)
    for nodes in ([], [("", 0, 0)], [("#", -1, 1 << 62)], [("nonsense#x#y", 1, 1)] * 1000):
        victim.overlay.received(victim.link, Summary(nodes))
    for digest in (b"", b"x" * 100_000):
        victim.overlay.received(victim.link, Digest(digest))

    victim.clock.pump([0.01] * 100)

    assert {"malformed": 600} == victim.refused


def test_mutants_of_a_signed_advertisement():
    """
    Whatever bytes of the header, the certificate, the content or the signature are changed, nothing is
    raised, and no other node is known.
    """
    victim = Victim()
    chance = random.Random(3)
    header, *rest = victim.evil.seal.sign(advertisement(EVIL, links={B: 1})).split(".")
    whole = json.loads(base64.urlsafe_b64decode(header + "=="))
    certificate = base64.b64decode(whole["x5c"][0])

    for number in range(600):
        whole["x5c"] = [base64.b64encode(mutant(certificate, chance)).decode()]
        parts = [text(json.dumps(whole).encode()) if number % 2 else header, *rest]
        changed = chance.randrange(3)
        content = base64.urlsafe_b64decode(parts[changed] + "==")
        parts[changed] = text(mutant(content, chance))
        victim.receive(".".join(parts))
        victim.clock.advance(0.002)

    assert set() == victim.nodes
    assert 600 == sum(victim.refused.values())
    assert {"malformed", "signature", "untrusted"} == victim.refused.keys()


def text(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def mutant(data, chance):
    """
    The bytes with some of them changed, removed or added.
    """
    found = data
    while found == data:
        at = chance.randrange(len(data))
        new = bytes(chance.randrange(256) for _ in range(chance.randrange(4)))
        found = data[:at] + new + data[at + chance.randrange(3) :]
    return found


def test_digests_that_never_agree():
    """
    A peer whose digest always differs gets a summary less and less often.
    """
    victim = Victim()
    victim.evil_says()

    for _ in range(1000):
        victim.overlay.received(victim.link, Digest(b"?" * 16))
        victim.overlay.received(victim.link, Summary([]))
        victim.clock.advance(10)

    assert 5 <= len([entry for entry in victim.link.sent if isinstance(entry, Summary)]) <= 12


def test_too_many_links():
    """
    A node has at most 256 links; the next one is closed.
    """
    victim = Victim()
    links = [FakeLink(f"mn://n{number}.example/n") for number in range(300)]

    for each in links:
        victim.overlay.link_up(each)

    assert 45 == sum(each.closed is not None for each in links)
    assert 256 == len(victim.overlay.neighbours)


def test_clocks_a_day_apart():
    """
    Ages count by the local clock, so nodes whose clocks are a day apart agree.
    """
    chance = random.Random(1)
    clock, later = HeapClock(0), HeapClock(0)
    later.rightNow = DAY
    a = Overlay(clock, A, OpenSeal(A), node_keys(), wall=clock.seconds)
    b = Overlay(later, B, OpenSeal(B), node_keys(), wall=later.seconds)
    Wire(clock, chance, End(A, a), End(B, b), cost=3).up()

    for _ in range(200):
        clock.advance(0.1)
        later.advance(0.1)

    assert a.has_route(B)
    assert b.has_route(A)


def test_lost_advertisements_are_found_by_digests():
    """
    An advertisement that was lost on the way is found by digests, and sent again.
    """
    world = network((A, B), (B, C))
    wire(world, A, B).faults.loss = 1.0
    wire(world, B, C).set_cost(99, 0.01)
    world.run(10)
    before = costs(world, A)[C]

    wire(world, A, B).faults.loss = 0.0
    world.run(70)

    assert (20, 109) == (before, costs(world, A)[C])


def test_a_map_that_is_too_large_for_a_summary():
    """
    Where the summary would not fit into a message of the link, the whole map is sent instead.
    """
    world = network((A, B))
    node = overlay(world, B)
    for number in range(2000):
        name = f"mn://{'x' * 60}{number}.{'y' * 60}.example/n"
        node.received(link(world, B, A), State(OpenSeal(name).sign(advertisement(name))))
        world.run(0.002)
    wire(world, A, B).faults.loss = 1.0
    passed = wire(world, A, B).entries

    for _ in range(2):
        node.received(link(world, B, A), Digest(b"?" * 16))
    world.run(5)

    assert 0 == node.synchronising.summaries
    assert wire(world, A, B).entries - passed >= 2000


def test_two_nodes_with_one_name(errors):
    """
    A second key for the name of a node that can be reached is refused, and the operator is notified; when the
    first one is gone, the second is believed.
    """
    world = network((A, B), (B, C))
    held = overlay(world, B).keys(A)
    claim = advertisement(A, links={B: 10}, sequence=(9, 9), keys=node_keys())
    compact = OpenSeal("another key").sign(claim)

    overlay(world, B).received(link(world, B, C), State(compact))
    world.run(1)
    conflicts = overlay(world, B).states.conflicts
    found = conflicts[A].peer, overlay(world, B).keys(A)
    wire(world, A, B).down()
    world.run(1)
    overlay(world, B).received(link(world, B, C), State(compact))

    assert (C, held) == found
    assert 1 == sum("two nodes claim the name" in event["log_format"] for event in errors)
    assert claim.keys == overlay(world, B).keys(A)
    assert {} == conflicts


def test_a_node_of_this_domain_that_was_started_again():
    """
    A node that was started again with another key is believed at once, although a third one still has a link
    to its former start, if the carrier knows that the former key is gone; what is owed to it is kept.
    """
    first, near, third = (f"mn://a.example/{number}" for number in range(3))
    world = network((first, near), (near, third), (first, third))
    distrusted = []
    overlay(world, near).distrusted = distrusted.append
    claim = advertisement(first, links={near: 10, third: 10}, sequence=(9, 9), keys=node_keys())
    compact = OpenSeal("of the second start").sign(claim)
    wire(world, first, near).down()
    world.run(0.1)

    world.nodes[near].seal.refused.add(first)
    overlay(world, near).forget_former()
    forgotten = overlay(world, near).keys(first)
    overlay(world, near).received(link(world, near, third), State(compact))

    assert (None, claim.keys) == (forgotten, overlay(world, near).keys(first))
    assert {} == overlay(world, near).states.conflicts
    assert ([], 1) == (distrusted, refused(world, near)["former-key"])


def test_two_processes_with_one_name_and_key(errors):
    """
    Two living processes with the same name and key raise their sequences without end; the operator is
    notified.
    """
    world = network((A, B))
    other = node_keys()
    for _ in range(5):
        start, counter = overlay(world, A).own.sequence
        claim = advertisement(A, links={B: 10}, sequence=(start, counter + 1), keys=other)
        overlay(world, A).received(link(world, A, B), State(OpenSeal(A).sign(claim)))
        world.run(6)

    assert [A] == list(overlay(world, A).states.conflicts)
    assert 1 == sum("another process uses the name" in event["log_format"] for event in errors)


def test_a_node_that_renews_its_key():
    """
    A node whose certificate has another key now, in the same process, is believed at once. Its former key
    is remembered for a minute, unless what is trusted changes.
    """
    world = network((A, B), (B, C))
    states = [overlay(world, node).states for node in (B, C)]
    keys = overlay(world, A).own.keys
    start, counter = overlay(world, A).own.sequence
    claim = advertisement(A, links={B: 55}, sequence=(start, counter + 1), keys=keys)

    overlay(world, B).received(link(world, B, A), State(OpenSeal("renewed").sign(claim)))
    world.run(1)
    renewed = [each.former_signer(A) is not None for each in states]
    overlay(world, C).trust_changed()
    distrusting = [each.former_signer(A) is not None for each in states]
    cost = costs(world, C)[A]
    world.run(200)  # the node itself, of the other key, has the last word

    assert 65 == cost
    assert {} == overlay(world, C).states.conflicts
    assert ([True, True], [True, False]) == (renewed, distrusting)
    assert states[0].former_signer(A) is None
