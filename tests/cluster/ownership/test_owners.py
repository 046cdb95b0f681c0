"""
The owners of what there is once in the domain.
"""

from hypothesis import given
from hypothesis import strategies as st

from msgnode.cluster.ownership.owners import owner
from tests.support.cluster_leases import LeaseNode
from tests.support.cluster_members import MemoryCluster

A, B, C = (f"mn://example.com/{name}" for name in "abc")
names = st.lists(st.from_regex(r"\A[a-z0-9]{1,8}\Z"), min_size=2, max_size=8, unique=True)


@given(names, st.text(max_size=20))
def test_a_member_that_leaves_moves_its_own_keys_only(listed, key):
    """
    Without one member a key has the same owner as before, unless that member was the owner.
    """
    view = tuple(f"mn://example.com/{name}" for name in sorted(listed))
    before = owner(key, view)

    for gone in view:
        rest = tuple(node for node in view if node != gone)
        assert (owner(key, rest) == before) == (gone != before)


def test_keys_are_shared_about_equally():
    """
    Of three members each owns about a third of many keys.
    """
    owners = [owner(f"pool{number}", (A, B, C)) for number in range(3000)]

    assert all(900 < owners.count(node) < 1100 for node in (A, B, C))


def test_members_with_other_lists_have_both_owners():
    """
    While lists differ, the owners by all of them must agree, this node's own first; then there is one again.
    """
    cluster = MemoryCluster()
    a = LeaseNode(cluster, A, ["a", "b"], [])
    b = LeaseNode(cluster, B, ["a", "b", "c"], [])
    LeaseNode(cluster, C, ["a", "b", "c"], [])
    cluster.connect()
    cluster.run(1)
    keys = [str(number) for number in range(100)]
    moved = [key for key in keys if owner(key, (A, B)) != owner(key, (A, B, C))]

    assert moved
    assert all(a.owners.of(key) == [owner(key, (A, B)), C] for key in moved)
    assert all(b.owners.of(key) == [C, owner(key, (A, B))] for key in moved)
    assert all(len(a.owners.of(key)) == 1 for key in keys if key not in moved)
    assert a.owners.everyone == {A, B, C}

    cluster.kill(A)
    a = LeaseNode(cluster, A, ["a", "b", "c"], [])
    cluster.connect()
    cluster.run(1)

    assert all(node.owners.of(key) == [owner(key, (A, B, C))] for key in keys for node in (a, b))


def test_without_a_list_nothing_has_an_owner():
    """
    A node that is not told its members decides about nothing.
    """
    assert LeaseNode(MemoryCluster(), A, [], []).owners.of("sip") == []
