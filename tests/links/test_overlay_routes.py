"""
Routes over links: damping, costs, ends, transit, inner nodes, and first hops that bring no acknowledgement.
"""

from itertools import pairwise

import pytest
from simulating.world import World

from msgnode.links.carrier.link import CLIENT
from tests.support.links_overlay import A, B, C, D, costs, link, network, overlay, refused, wire

INNER = "mn://b.example/inner"


class Events:
    """
    A listener to nodes that writes down what it hears.
    """

    def __init__(self):
        self.heard = []

    def node_added(self, node, kind, cost):
        self.heard.append(("added", node, kind, cost))

    def node_removed(self, node, kind):
        self.heard.append(("removed", node, kind))

    def cost_changed(self, node, kind, cost):
        self.heard.append(("cost", node, kind, cost))


def test_every_node_learns_every_route():
    """
    In a chain, each node has a route to each other one, with the sum of the costs.
    """
    world = network((A, B, 5), (B, C, 7))

    assert {B: 5, C: 12} == costs(world, A)
    assert {A: 12, B: 7} == costs(world, C)
    assert overlay(world, A).knows("c.example")
    assert [C] == list(overlay(world, A).nodes_of("c.example"))


def test_a_link_counts_after_three_seconds():
    """
    A link is in no route before it was up for 3 seconds.
    """
    world = network((A, B), settled=False)

    world.run(2.9)
    before = costs(world, A)
    world.run(0.3)

    assert {} == before
    assert {B: 10} == costs(world, A)


def test_a_link_that_flaps_waits_longer():
    """
    Each time that a link is lost doubles the time until it counts again, up to 60 seconds.
    """
    world = network((A, B))
    waits = []

    for _ in range(6):
        wire(world, A, B).down()
        world.run(0.1)
        wire(world, A, B).up()
        up = world.clock.seconds()
        while not overlay(world, A).has_route(B):
            world.run(0.5)
        waits.append(world.clock.seconds() - up)

    assert [6, 12, 24, 48, 60, 60] == [int(wait) for wait in waits]


def test_a_link_that_flaps_each_second_is_in_no_route():
    """
    A link that is lost each second is not advertised again and again: it is in no route until it is steady.
    """
    world = network((A, B), (B, C))
    before = overlay(world, A).own.number

    for _ in range(100):
        wire(world, A, B).down()
        world.run(0.5)
        wire(world, A, B).up()
        world.run(0.5)

    assert not overlay(world, C).has_route(A)
    assert overlay(world, A).own.number - before <= 2
    world.run(61)
    assert overlay(world, C).has_route(A)


def test_a_lost_link_is_advertised_at_once():
    """
    A cut is known at the far end of the network within a fraction of a second.
    """
    world = network((A, B), (B, C), (C, D))

    wire(world, C, D).down()
    world.run(0.3)

    assert {B: 10, C: 20} == costs(world, A)


def test_a_cut_link_is_gone_round():
    """
    The cheaper, longer way is taken; when it is cut, the other one; and when it is back, the cheaper again.
    """
    world = network((A, D, 100), (A, B, 10), (B, C, 10), (C, D, 10))
    cheap = costs(world, A)[D]

    wire(world, B, C).down()
    world.run(1)
    round_about = costs(world, A)[D]
    wire(world, B, C).up()
    world.run(10)

    assert (30, 100, 30) == (cheap, round_about, costs(world, A)[D])


def test_a_measured_cost_is_advertised_when_it_moves_by_a_quarter():
    """
    The round trip counts in milliseconds. Less than a quarter of change is not advertised.
    """
    world = network((A, B))
    wire(world, A, B).set_cost(None, 0.020)
    world.run(10)
    number = overlay(world, A).own.number

    wire(world, A, B).set_cost(None, 0.024)
    world.run(10)
    small = costs(world, A)[B], overlay(world, A).own.number - number
    wire(world, A, B).set_cost(None, 0.030)
    world.run(10)

    assert (40, 0) == small
    assert (60, 1) == (costs(world, A)[B], overlay(world, A).own.number - number)


def test_advertisements_are_five_seconds_apart():
    """
    However often costs change, a node advertises at most every 5 seconds.
    """
    world = network((A, B))
    number = overlay(world, A).own.number

    for cost in range(20, 70):
        wire(world, A, B).set_cost(cost, 0.001)
        world.run(1)

    assert 9 <= overlay(world, A).own.number - number <= 11


def test_asymmetric_costs():
    """
    Of the costs of both directions the greater counts, at both ends.
    """
    world = network((A, B))
    wire(world, A, B).cost = 90
    overlay(world, B).round_trip_changed(link(world, B, A))
    world.run(10)

    assert {B: 90} == costs(world, A)
    assert {A: 90} == costs(world, B)


def test_a_link_that_one_end_has_lost():
    """
    A half-open link, which one end does not have any more, is in no route of any node that can hear of it.
    """
    world = network((A, B), (B, C), (A, C, 50))

    overlay(world, B).link_down(link(world, B, C), "stalled")
    world.run(1)

    assert {B: 10, C: 50} == costs(world, A)
    assert {A: 50, B: 60} == costs(world, C)


def test_client_nodes_are_ends():
    """
    A CLIENT node is reached, and forwards nothing.
    """
    world = World(1)
    for name, kind in ((A, "SERVER"), (B, CLIENT), (C, "SERVER")):
        world.add(name, kind)
    world.join(A, B, cost=1)
    world.join(B, C, cost=1)
    world.start()
    world.run(10)

    assert {B: 1} == costs(world, A)
    assert {A: 1, C: 1} == costs(world, B)


def test_neighbours_without_transit_learn_nothing_of_others():
    """
    A neighbour without transit is told this node's link to it alone, and others are not told of it.
    """
    world = network((A, B), (B, C), transit=(False, False))

    assert {B: 10} == costs(world, A)
    assert {A: 10, C: 10} == costs(world, B)
    assert {B: 10} == costs(world, C)
    assert [(B, A)] == list(overlay(world, A).states.records)


def test_transit_through_one_node_only():
    """
    B grants transit to both peers, they none: they reach each other through B, and nothing goes through them.
    """
    world = World(1)
    for name in (A, B, C, D):
        world.add(name)
    world.join(B, A, cost=10, transit=(True, False))
    world.join(B, C, cost=10, transit=(True, False))
    world.join(D, A, cost=10, transit=(True, False))
    world.start()
    world.run(10)

    assert {B: 10, C: 20, D: 10} == costs(world, A)
    assert {A: 20, B: 10} == costs(world, C)
    assert {A: 10} == costs(world, D)


def test_inner_nodes_stay_inside():
    """
    A domain tells others its gateways only; its own nodes know all of it, and what lies beyond.
    """
    world = network((A, B), (B, INNER))

    assert {B: 10} == costs(world, A)
    assert {B: 10, A: 20} == costs(world, INNER)
    assert not any(INNER in str(record) for record in overlay(world, A).states.records.values())


def test_a_first_hop_without_acknowledgements_is_avoided():
    """
    For 60 seconds the other first hop is taken, if there is one that does not lead back.
    """
    world = network((A, B, 10), (B, D, 10), (A, C, 20), (C, D, 20))
    routes = overlay(world, A).routes

    overlay(world, A).avoid_first_hop(D)
    avoided = routes.first_hop(D), routes.first_hop(B)
    world.run(75)

    assert (C, B) == avoided
    assert B == routes.first_hop(D)


def test_a_first_hop_whose_link_went_down_a_moment_ago_is_not_taken():
    """
    Before the paths are computed again, there is no other first hop than that which is avoided.
    """
    world = network((A, B, 10), (B, D, 10), (A, C, 20), (C, D, 20))
    routes = overlay(world, A).routes

    wire(world, A, C).down()
    overlay(world, A).avoid_first_hop(D)

    assert B == routes.first_hop(D)


def test_the_way_to_a_node_with_a_new_link_is_avoided_no_more():
    """
    What did not get there by the link before says nothing of the new one.
    """
    world = network((A, B, 10), (A, C, 20), (C, B, 20))
    overlay(world, A).avoid_first_hop(B)
    avoided = overlay(world, A).routes.first_hop(B)

    wire(world, A, B).renew()
    world.run(1)

    assert (C, B) == (avoided, overlay(world, A).routes.first_hop(B))


def test_a_neighbour_that_passes_nothing_on_is_avoided_whatever_its_link():
    """
    It could else begin its link again, and have all that it does not pass on.
    """
    world = network((A, B, 10), (B, D, 10), (A, C, 20), (C, D, 20))
    overlay(world, A).avoid_first_hop(D)

    wire(world, A, B).renew()
    world.run(1)

    assert C == overlay(world, A).routes.first_hop(D)


def test_the_only_first_hop_is_not_avoided():
    """
    Where every other first hop would lead back here, the route stays as it is.
    """
    world = network((A, B, 10), (B, D, 10), (A, C, 10))

    overlay(world, A).avoid_first_hop(D)

    assert B == overlay(world, A).routes.first_hop(D)


def test_a_node_farther_than_the_hop_limit_has_no_route():
    """
    No route is longer than the hop limit of datagrams.
    """
    names = [f"mn://n{number}.example/n" for number in range(35)]
    world = network(*pairwise(names))

    assert 32 == len(costs(world, names[0]))


def test_listeners_hear_of_nodes():
    """
    A listener hears of nodes added and removed, and of costs that changed.
    """
    world = network((A, B), (B, C), settled=False)
    events = Events()
    overlay(world, A).listen_to_nodes(events)

    world.run(10)
    wire(world, B, C).set_cost(5, 0.01)
    world.run(10)
    wire(world, B, C).down()
    world.run(1)

    assert [
        ("added", B, "SERVER", 10),
        ("added", C, "SERVER", 20),
        ("cost", C, "SERVER", 15),
        ("removed", C, "SERVER"),
    ] == events.heard


@pytest.mark.parametrize("remembers", [True, False])
def test_a_restarted_node_continues_above_its_old_sequence(remembers):
    """
    A node that comes back, with its start counter or without, is believed by all.
    """
    world = network((A, B), (B, C))
    for cost in (20, 30, 40):
        wire(world, A, B).set_cost(cost, 0.01)
        world.run(6)
    world.nodes[A].kill()
    world.run(20)
    gone = costs(world, C)

    world.nodes[A].restart(remembers)
    world.run(30)

    assert {B: 10} == gone
    assert {B: 10, A: 50} == costs(world, C)
    assert world.nodes[C].overlay.keys(A) == world.nodes[A].overlay.own.keys
    assert not refused(world, C)


def test_advertisements_are_forgotten_after_an_hour():
    """
    The map forgets a node that was silent for an hour, and keeps those that refresh.
    """
    world = network((A, B), (B, C))

    world.nodes[A].kill()
    world.run(3700)

    assert [B] == [node for node, _ in overlay(world, C).states.records]
    assert {B: 10} == costs(world, C)


def test_a_node_returns_after_hours_without_its_sequence():
    """
    A node that comes back after its advertisements were forgotten, and has forgotten its sequence itself, is
    believed by nodes that remember it.
    """
    world = network((A, B), (B, C))
    wire(world, A, B).set_cost(40, 0.01)
    world.run(6)
    world.nodes[A].kill()
    world.run(2 * 3600)
    world.nodes[B].kill()
    world.nodes[B].restart(remembers=True)  # B has forgotten, C has not

    world.nodes[A].restart(remembers=False)
    world.run(60)

    assert {B: 10, A: 50} == costs(world, C)
    assert world.nodes[C].overlay.keys(A) == world.nodes[A].overlay.own.keys


def test_transit_can_be_revoked():
    """
    When the configuration grants a neighbour no transit any more, its routes to others end.
    """
    world = network((A, B), (B, C))
    before = costs(world, A)

    for end in wire(world, A, B).ends:
        end.transit = False
    world.run(30)

    assert {B: 10, C: 20} == before
    assert {B: 10} == costs(world, A)
