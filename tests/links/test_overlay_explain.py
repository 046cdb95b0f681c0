"""
The explanation of routes, the map, and the snapshot for operators.
"""

import json

import pytest

from msgnode.links.operations import LinkName, MapLink
from msgnode.links.overlay.routes.explain import explain
from msgnode.links.overlay.snapshot import explain_route, network_map, snapshot, topology
from msgnode.protocol.errors import Rejected
from tests.support.links_overlay import A, B, C, D, network, overlay, wire

WORLD = ((A, B, 10), (B, C, 10), (C, D, 10), (A, D, 100), (B, D, 50))


@pytest.fixture(scope="module")
def world():
    return network(*WORLD)


@pytest.fixture(scope="module")
def known(world):
    return topology(overlay(world, A))


def hops(path):
    return [(hop.node, hop.cost) for hop in path.hops]


def test_the_path_with_the_cost_of_each_hop(known):
    """
    The explanation has each hop with its cost, and the sum.
    """
    found = explain(known, D)

    assert 30 == found.path.cost
    assert [(B, 10), (C, 10), (D, 10)] == hops(found.path)


def test_a_domain_is_its_nearest_node(known):
    """
    For a domain the route to its nearest node is explained.
    """
    assert D == explain(known, "d.example").target


def test_alternatives(known):
    """
    The best paths by other first hops, the cheapest first.
    """
    assert [(100, [(D, 100)])] == [(each.cost, hops(each)) for each in explain(known, D).alternatives]


@pytest.mark.parametrize(
    "name", [LinkName(C, D), LinkName(D, "c.example"), LinkName("d.example", "c.example")]
)
def test_without_a_link(known, name):
    """
    Without a link, named by nodes or domains, the explanation has the path that would be taken, and the
    routes that would change.
    """
    found = explain(known, D, without=[name])

    assert [(B, 10), (D, 50)] == hops(found.supposed)
    assert [(D, (B, 30), (B, 60))] == [(each.node, each.before, each.after) for each in found.changes]
    assert 30 == found.path.cost


def test_with_another_cost(known):
    """
    With another cost of a link, the explanation says what would change, and nothing changes.
    """
    found = explain(known, D, costs={LinkName(A, D): 5})

    assert [(D, 5)] == hops(found.supposed)
    assert {D: ((B, 30), (D, 5)), C: ((B, 20), (D, 15))} == {
        each.node: (each.before, each.after) for each in found.changes
    }
    assert 30 == explain(known, D).path.cost


def test_a_supposed_link(known):
    """
    A cost of a link that there is not supposes it.
    """
    assert [(C, 3), (D, 10)] == hops(explain(known, D, costs={LinkName(A, "c.example"): 3}).supposed)


def test_the_explanation_comes_true(known):
    """
    When the link is really cut, the routes are those of the explanation.
    """
    world = network(*WORLD)
    expected = explain(known, D, without=[LinkName(B, C)]).supposed

    wire(world, B, C).down()
    world.run(1)

    assert expected == explain(topology(overlay(world, A)), D).path
    assert expected.cost == overlay(world, A).routes.cost(D)


def test_no_route_is_explained_in_words(known):
    """
    Where there is no route, the explanation says why.
    """
    cut = explain(topology(overlay(network((A, B), (C, D)), A)), D)

    assert (None, f"no advertisement of {D} is known") == (cut.path, cut.reason)
    assert "it is this node" == explain(known, A).reason
    assert "no advertisement of x.example is known" == explain(known, "x.example").reason


def test_unknown_links_are_refused_in_words(known):
    """
    A link that is not known, the end of a supposed one, or a cost that cannot be is refused in words.
    """
    for options, words in (
        ({"without": [LinkName(A, C)]}, "no link between"),
        ({"costs": {LinkName(A, B): 0}}, "expected costs"),
        ({"costs": {LinkName(A, "x.example"): 1}}, "no advertisement of x.example"),
    ):
        with pytest.raises(Rejected, match=words) as found:
            explain(known, D, **options)
        assert 400 == found.value.code


@pytest.mark.parametrize(
    "target, kind, destination",
    [
        ("d.example", "remote", D),
        (C, "remote", C),
        ("a.example", "here", ""),
        (A, "here", ""),
        ("x.example", "unknown", ""),
        ("", "unknown", ""),
        ("mn://d.example/other", "no-path", ""),
    ],
)
def test_routes_for_the_admin_interface(world, target, kind, destination):
    """
    The route of an address says whether it is decided here, is reached, out of reach, or unknown.
    """
    found = explain_route(overlay(world, A), "hyperty://somewhere/1", target)

    assert (kind, destination) == (found.kind, found.destination)
    assert not found.is_supposed


def test_the_map(world):
    """
    The map has this node first, then the others by name, and each link once with the costs of both ends.
    """
    found = network_map(overlay(world, A))

    assert [(A, 0, ""), (B, 10, B), (C, 20, B), (D, 30, B)] == [
        (each.node, each.cost, each.first_hop) for each in found.nodes
    ]
    assert MapLink(one=A, other=B, costs=(10, 10), cost=10, age_seconds=0.0) in found.links
    assert 5 == len(found.links)


def test_the_snapshot(world):
    """
    The snapshot has links, nodes with costs and ages, and can be written as JSON.
    """
    found = json.loads(json.dumps(snapshot(overlay(world, A))))

    assert [B, D] == [each["node"] for each in found["links"]]
    assert [(B, 10, B, 1), (C, 20, B, 2), (D, 30, B, 3)] == [
        (each["node"], each["cost"], each["first_hop"], each["hops"]) for each in found["nodes"]
    ]
    assert all(each["age"] < 20 for each in found["nodes"])
    assert [] == found["conflicts"]
