"""
Leases of a pool: no address is leased twice in the domain, whatever is killed or cut.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from msgnode.cluster.ownership.owners import owner
from msgnode.cluster.ownership.pool_leases import GRANT_SECONDS
from tests.support.cluster_leases import SCHEME, LeaseNode
from tests.support.cluster_members import MemoryCluster

NAMES = ("a", "b", "c")
NODES = tuple(f"mn://example.com/{name}" for name in NAMES)
OWNER = owner(SCHEME, NODES)
OTHERS = [node for node in NODES if node != OWNER]
ADDRESSES = [f"sip:guest{number}@example.com" for number in range(4)]


def members(count=4, listed=NAMES):
    """
    A cluster of three that share a pool.
    """
    cluster = MemoryCluster()
    nodes = {node: LeaseNode(cluster, node, listed, ADDRESSES[:count]) for node in NODES}
    cluster.connect()
    cluster.run(1)
    return cluster, nodes


def leased(cluster, node, number=1):
    """
    The addresses that a node gets; it waits for them.
    """
    got = []
    node.lease(number).addCallback(got.extend)
    cluster.run(3)
    return got


def test_addresses_are_leased_once_in_the_domain():
    """
    Sessions at all members get different addresses; when none is left they are told 503.
    """
    cluster, nodes = members()

    got = [
        *leased(cluster, nodes[OTHERS[0]], 2),
        *leased(cluster, nodes[OTHERS[1]]),
        *leased(cluster, nodes[OWNER]),
    ]

    assert sorted(got) == ADDRESSES
    assert leased(cluster, nodes[OTHERS[0]]) == []
    [why] = nodes[OTHERS[0]].refused
    assert (why.code, why.reason) == (503, "pool-empty")


def test_what_a_member_returns_is_leased_again():
    """
    The owner sees by the directory that an address is free again.
    """
    cluster, nodes = members(1)
    [address] = leased(cluster, nodes[OTHERS[0]])
    assert leased(cluster, nodes[OTHERS[1]]) == []
    cluster.run(GRANT_SECONDS)

    nodes[OTHERS[0]].release(address)
    cluster.run(1)

    assert leased(cluster, nodes[OTHERS[1]]) == [address]


def test_grant_that_nobody_uses_ends():
    """
    An address that a member was granted and never bound is free again after a while.
    """
    cluster, nodes = members(1)
    nodes[OTHERS[0]].leases.lease(SCHEME, 1)
    cluster.run(1)
    assert leased(cluster, nodes[OTHERS[1]]) == []

    cluster.run(GRANT_SECONDS)

    assert leased(cluster, nodes[OTHERS[1]]) == ADDRESSES[:1]


def test_while_the_owner_is_away_nothing_is_leased():
    """
    The sender is told which node cannot be asked.
    """
    cluster, nodes = members()
    cluster.kill(OWNER)
    cluster.run(1)

    assert leased(cluster, nodes[OTHERS[0]]) == []

    [why] = nodes[OTHERS[0]].refused
    assert (why.code, why.reason) == (503, "no-path")
    assert f"the pool {SCHEME} cannot be asked: {OWNER} is away" in str(why)


def test_owner_that_starts_again_waits_for_what_others_hold():
    """
    Until all members have told it what they hold, or their leases have ended, it grants nothing.
    """
    cluster, nodes = members(2)
    [first] = leased(cluster, nodes[OTHERS[0]])
    cluster.kill(OWNER)
    cluster.cut(OWNER, OTHERS[0])
    nodes[OWNER] = LeaseNode(cluster, OWNER, NAMES, ADDRESSES[:2])
    cluster.connect()
    cluster.run(1)

    assert leased(cluster, nodes[OTHERS[1]]) == []
    assert "not known yet which addresses" in str(nodes[OTHERS[1]].refused[-1])
    cluster.restore(OWNER, OTHERS[0])
    cluster.run(1)
    assert leased(cluster, nodes[OTHERS[1]]) == [address for address in ADDRESSES[:2] if address != first]


def test_session_that_comes_back_after_its_lease_ended_loses_the_address():
    """
    What was leased to another meanwhile is taken from the session that was away.
    """
    cluster, nodes = members(1)
    [address] = leased(cluster, nodes[OTHERS[0]])
    cluster.kill(OTHERS[0])
    cluster.run(3700)
    assert leased(cluster, nodes[OTHERS[1]]) == [address]

    back = nodes[OTHERS[0]] = LeaseNode(cluster, OTHERS[0], NAMES, ADDRESSES[:1], held=[address])
    cluster.connect()
    cluster.run(3)

    assert (back.held, back.leases.lost) == (set(), 1)
    assert nodes[OTHERS[1]].held == {address}


class LeaseMachine(RuleBasedStateMachine):
    """
    Leases, releases, kills, starts with what was held, and cuts.
    """

    def __init__(self):
        super().__init__()
        self.cluster, self.nodes = members()
        self.down = {}

    def node(self, number):
        return self.nodes.get(NODES[number])

    @rule(number=st.integers(0, 2), count=st.integers(1, 2))
    def lease(self, number, count):
        if self.node(number) is not None:
            self.node(number).lease(count)

    @rule(number=st.integers(0, 2))
    def release(self, number):
        node = self.node(number)
        if node is not None and node.held:
            node.release(min(node.held))

    @rule(number=st.integers(0, 2))
    def kill(self, number):
        node = self.nodes.pop(NODES[number], None)
        if node is not None:
            self.down[NODES[number]] = node.held
            node.directory.stop()
            self.cluster.kill(NODES[number])

    @precondition(lambda self: self.down)
    @rule()
    def start(self):
        name, held = self.down.popitem()
        self.nodes[name] = LeaseNode(self.cluster, name, NAMES, ADDRESSES, held)
        self.cluster.connect()

    @rule(one=st.integers(0, 2), other=st.integers(0, 2))
    def cut(self, one, other):
        if one != other:
            self.cluster.cut(NODES[one], NODES[other])

    @rule()
    def restore(self):
        self.cluster.cut_links.clear()
        self.cluster.connect()

    @rule(seconds=st.sampled_from([0.01, 0.1, 1.0, 30.0]))
    def wait(self, seconds):
        self.cluster.run(seconds)

    @invariant()
    def no_address_is_held_twice(self):
        held = [address for node in self.nodes.values() for address in node.held]
        held += [address for addresses in self.down.values() for address in addresses]
        assert len(held) == len(set(held)), sorted(held)


LeaseMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLeases = LeaseMachine.TestCase
