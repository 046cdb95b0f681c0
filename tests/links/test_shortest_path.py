"""
Shortest paths: the same as those of networkx, and fast enough for a thousand nodes.
"""

import random

import networkx
import pytest

from msgnode.links.overlay.routes.graph import Graph
from msgnode.links.overlay.routes.shortest_path import cost_of, first_hop_of, hops_of
from tests.support.calls import calls_of

OWN = "mn://own.example/n"


def name(number):
    return OWN if number == 0 else f"mn://d{number:04}.example/n"


class Network:
    """
    A random network, in networkx and in our graph.
    """

    def __init__(self, nodes, links, seed, most=50):
        self.chance = random.Random(seed)
        self.reference = networkx.Graph()
        self.reference.add_nodes_from(map(name, range(nodes)))
        self.graph = Graph(OWN)
        for number in range(1, nodes):
            self.link(name(number), name(self.chance.randrange(number)), self.chance.randint(1, most))
        while self.reference.number_of_edges() < links:
            one, other = self.chance.sample(range(nodes), 2)
            self.link(name(one), name(other), self.chance.randint(1, most))
        for node in self.reference:
            self.advertise(node)

    def link(self, one, other, cost):
        self.reference.add_edge(one, other, weight=cost)

    def advertise(self, node):
        links = {other: edge["weight"] for other, edge in self.reference[node].items()}
        if node == OWN:
            self.graph.set_links(links)
        else:
            self.graph.put((node, ""), False, links)

    def change(self):
        """
        Change the cost of a link, cut one or add one.
        """
        one, other = self.chance.sample(sorted(self.reference), 2)
        kind = self.chance.randrange(3)
        if kind == 0:
            self.link(one, other, self.chance.randint(1, 50))
        else:
            one, other = self.chance.choice(sorted(self.reference.edges))
            if kind == 1:
                self.reference.remove_edge(one, other)
            else:
                self.reference[one][other]["weight"] = self.chance.randint(1, 50)
        self.advertise(one)
        self.advertise(other)

    def costs(self):
        return {node: cost_of(label) for node, label in self.graph.labels().items()}

    def expected(self):
        found = dict(networkx.single_source_dijkstra_path_length(self.reference, OWN))
        del found[OWN]
        return found


@pytest.mark.parametrize("seed", range(10))
def test_costs_equal_those_of_networkx(seed):
    """
    The cost to each reachable node is what networkx computes.
    """
    network = Network(60, 120, seed)

    network.graph.compute()

    assert network.expected() == network.costs()


@pytest.mark.parametrize("seed", range(10))
def test_only_changes_that_may_matter_are_computed(seed):
    """
    After each of many changes the costs equal those of networkx, also where no computation was found
    necessary.
    """
    network = Network(40, 70, seed)
    network.graph.compute()
    spared = 0

    for _ in range(100):
        network.change()
        if network.graph.is_current:
            spared += 1
        else:
            network.graph.compute()
        assert network.expected() == network.costs()

    assert spared > 20


def test_ties_by_fewer_hops_then_name():
    """
    Of paths with the same cost the one with fewer hops is taken, then the one whose first hop has the lower
    name.
    """
    a, b, c, target = name(1), name(2), name(3), name(4)
    graph = Graph(OWN)
    graph.set_links({a: 1, b: 2, c: 2})
    graph.put((a, ""), False, {OWN: 1, b: 1})
    graph.put((b, ""), False, {OWN: 2, a: 1, target: 5})
    graph.put((c, ""), False, {OWN: 2, target: 5})
    graph.put((target, ""), False, {b: 5, c: 5})

    graph.compute()

    label = graph.labels()[target]
    assert (7, 2) == (cost_of(label), hops_of(label))
    assert b == graph.first_hops()[first_hop_of(label)]
    assert [(b, 2), (target, 5)] == graph.path(target)


def test_a_link_counts_where_both_ends_advertise_it():
    """
    A node that lists a neighbour which does not list it is not reached by that link.
    """
    a, b = name(1), name(2)
    graph = Graph(OWN)
    graph.set_links({a: 1})
    graph.put((a, ""), False, {OWN: 1})
    graph.put((b, ""), False, {a: 1, OWN: 1})

    graph.compute()

    assert {a} == set(graph.labels())


def test_the_greater_cost_counts():
    """
    Of the costs of both directions the greater counts, for our own links, too.
    """
    a, b = name(1), name(2)
    graph = Graph(OWN)
    graph.set_links({a: 1})
    graph.put((a, ""), False, {OWN: 10, b: 3})
    graph.put((b, ""), False, {a: 4})

    graph.compute()

    assert {a: 10, b: 14} == {node: cost_of(label) for node, label in graph.labels().items()}


def test_no_path_leads_through_an_end():
    """
    A CLIENT node is reached, and nothing behind it.
    """
    client, behind = name(1), name(2)
    graph = Graph(OWN)
    graph.set_links({client: 1})
    graph.put((client, ""), True, {OWN: 1, behind: 1})
    graph.put((behind, ""), False, {client: 1})

    graph.compute()

    assert {client} == set(graph.labels())


def test_no_path_leads_through_a_node_that_refuses_transit():
    """
    A node that tells two neighbours of itself by an advertisement for each is no way from one to the other.
    """
    a, peer, b = name(1), name(2), name(3)
    graph = Graph(OWN)
    graph.set_links({a: 1})
    graph.put((a, ""), False, {OWN: 1, peer: 1})
    graph.put((peer, a), False, {a: 1})
    graph.put((peer, b), False, {b: 1})
    graph.put((b, ""), False, {peer: 1})

    graph.compute()

    assert {a, peer} == set(graph.labels())


def test_removed_vertices_leave_no_trace():
    """
    A vertex that takes the place of a removed one has none of its links.
    """
    a, b, c = name(1), name(2), name(3)
    graph = Graph(OWN)
    graph.set_links({a: 1})
    graph.put((a, ""), False, {OWN: 1, b: 1, c: 1})
    graph.put((b, ""), True, {a: 1})
    graph.compute()

    graph.remove((b, ""))
    graph.put((c, ""), False, {})
    graph.compute()

    assert {a} == set(graph.labels())
    assert 2 == len(graph)


def test_changes_between_slices():
    """
    A large computation is done in slices; a change between two of them is found by the next computation.
    """
    network = Network(3000, 4000, 2)

    slices = 0
    for _ in network.graph.computing():
        slices += 1
        network.change()
    outdated = not network.graph.is_current
    network.graph.compute()

    assert slices >= 1
    assert outdated
    assert network.expected() == network.costs()


def test_a_thousand_nodes_cost_a_few_calls_for_each_link():
    """
    The shortest paths of 1,000 nodes and 5,000 links are computed with fewer than ten calls for each link.
    """
    links = 5000
    network = Network(1000, links, 1)

    def computed():
        network.graph.compute()
        network.graph.labels()

    number = calls_of(computed)

    assert network.expected() == network.costs()
    assert links / 10 < number < 10 * links
