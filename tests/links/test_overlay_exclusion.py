"""
Domains that an operator excludes: in no route, nothing of them passes, and all is back at once afterwards.
"""

import pytest

from msgnode.links.operations import LinkName
from msgnode.links.overlay.snapshot import explain_route, network_map
from tests.support.links_overlay import A, B, C, D, costs, network, overlay, refused


@pytest.fixture
def chain():
    """
    A - B - C - D.
    """
    return network((A, B), (B, C), (C, D))


def test_an_excluded_domain_is_in_no_route(chain):
    """
    Nor is what lies behind it; the map still shows it.
    """
    overlay(chain, A).exclude(["c.example"])
    chain.run(1)

    assert {B: 10} == costs(chain, A)
    assert not list(overlay(chain, A).nodes_of("c.example"))
    assert [A, B, C, D] == [node.node for node in network_map(overlay(chain, A)).nodes]
    assert "no-path" == explain_route(overlay(chain, A), C, C).kind


def test_nothing_of_an_excluded_domain_passes(chain):
    """
    Neither to this node by another one, nor through it.
    """
    overlay(chain, A).exclude(["c.example"])
    overlay(chain, B).exclude(["d.example"])
    for source, destination in ((C, A), (D, B), (D, A), (A, D)):
        chain.send(source, destination)
    chain.run(5)

    assert not chain.arrived
    assert 1 == refused(chain, A)["banned"]
    assert 3 == refused(chain, B)["banned"]


def test_all_is_back_at_once(chain):
    """
    Its advertisements were kept, for they are not told again for twenty minutes.
    """
    overlay(chain, A).exclude(["c.example"])
    chain.run(60)
    overlay(chain, A).exclude([])
    chain.run(1)

    assert {B: 10, C: 20, D: 30} == costs(chain, A)
    assert chain.send(C, A)
    chain.run(1)
    assert 1 == len(chain.arrived)


def test_what_comes_meanwhile_is_kept_too(chain):
    """
    A node that begins to advertise while its domain is excluded has a route afterwards.
    """
    overlay(chain, A).exclude(["e.example"])
    e = chain.add("mn://e.example/n").name
    chain.join(D, e, cost=10).up()
    chain.run(10)
    before = costs(chain, A)
    overlay(chain, A).exclude([])
    chain.run(1)

    assert e not in before
    assert 40 == costs(chain, A)[e]


def test_an_excluded_domain_is_known(chain):
    """
    What is sent to it is refused as without a path, not taken for an address of a domain that contains it.
    """
    overlay(chain, A).exclude(["x.b.example"])

    assert overlay(chain, A).knows("x.b.example")
    assert not overlay(chain, A).knows("y.b.example")


def test_explanations_leave_it_out(chain):
    """
    No supposed link leads through it.
    """
    overlay(chain, A).exclude(["c.example"])
    chain.run(1)

    assert None is explain_route(overlay(chain, A), D, D).path
    assert 5 == explain_route(overlay(chain, A), D, D, costs={LinkName(A, D): 5}).supposed.cost
