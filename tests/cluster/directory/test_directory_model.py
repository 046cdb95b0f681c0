"""
The directories of a cluster against the truth: after any losses, kills and stops all members agree.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from msgnode.cluster.directory.limits import DirectoryLimits
from tests.support.cluster_directory import A, B, C, DirectoryNode
from tests.support.cluster_members import MemoryCluster
from tests.support.fuzz import TIMES

NODES = st.sampled_from((A, B, C))
PAIRS = st.sampled_from(((A, B), (B, C), (A, C)))
ADDRESSES = [f"comm://example.com/{number}" for number in range(6)]
ADDRESSES += ["hyperty-runtime://e/r0/sm", "hyperty-runtime://e/r0"]
RUNTIMES = [f"hyperty-runtime://e/r{number}" for number in range(4)]
MANY = [f"comm://example.com/many/{number}" for number in range(400)]
LIMITS = DirectoryLimits(log_bytes=3000, lease_seconds=100)
QUIET = 20.0


class DirectoryMachine(RuleBasedStateMachine):
    """
    Three nodes whose links have little room and are cut, and which are killed and stopped.
    """

    @initialize(capacity=st.integers(2, 6))
    def begin(self, capacity):
        self.cluster = MemoryCluster(max_payload=2000, capacity=capacity)
        self.nodes = {name: DirectoryNode(self.cluster, name, LIMITS) for name in (A, B, C)}
        self.cluster.connect()

    @rule(node=NODES, address=st.sampled_from(ADDRESSES))
    def bind(self, node, address):
        self.nodes[node].bind(address)

    @rule(node=NODES, address=st.sampled_from(ADDRESSES))
    def unbind(self, node, address):
        self.nodes[node].unbind(address)

    @rule(node=NODES, first=st.integers(0, 399), count=st.integers(1, 400))
    def bind_many(self, node, first, count):
        self.nodes[node].bind(*MANY[first : first + count])

    @rule(node=NODES, first=st.integers(0, 399), count=st.integers(1, 400))
    def unbind_many(self, node, first, count):
        self.nodes[node].unbind(*MANY[first : first + count])

    @rule(node=NODES, name=st.sampled_from(RUNTIMES), generation=st.integers(0, 3))
    def open(self, node, name, generation):
        self.nodes[node].open(name, generation)

    @rule(node=NODES, name=st.sampled_from(RUNTIMES))
    def close(self, node, name):
        self.nodes[node].close(name)

    @rule(pair=PAIRS)
    def cut(self, pair):
        self.cluster.cut(*pair)

    @rule(pair=PAIRS)
    def restore(self, pair):
        self.cluster.restore(*pair)

    @rule(pair=PAIRS)
    def blink(self, pair):
        self.cluster.cut(*pair)
        self.cluster.restore(*pair)

    @rule(node=NODES)
    def start_again(self, node):
        """
        The node is killed and starts again with what it held.
        """
        old = self.nodes[node]
        self.cluster.kill(node)
        old.directory.stop()
        new = self.nodes[node] = DirectoryNode(self.cluster, node, LIMITS)
        for name, generation in old.sessions.items():
            new.open(name, generation)
        new.bind(*old.bound)
        self.cluster.connect()

    @rule(node=NODES)
    def stop(self, node):
        self.cluster.stop(node)

    @rule(node=NODES)
    def resume(self, node):
        self.cluster.resume(node)

    @rule(pair=PAIRS, payload=st.binary(max_size=40))
    def send_garbage(self, pair, payload):
        self.nodes[pair[0]].directory.member_heard(pair[1], payload)

    @rule(seconds=st.sampled_from((0, 0.001, 0.003, 0.05, 1, 20, 120)))
    def wait(self, seconds):
        self.cluster.run(seconds)
        self.cluster.clock.advance(0)

    @rule(node=NODES, address=st.sampled_from(ADDRESSES + RUNTIMES + MANY))
    def look_up(self, node, address):
        """
        A lookup never fails and names no stranger; waiting for a change, and a question, end in time.
        """
        directory = self.nodes[node].directory
        others = {A, B, C} - {node}
        assert set(directory.holders(address)) <= others
        assert {name for name, _ in directory.sessions(address)} <= others
        done, asked = directory.settled(address), directory.ask(address, 0.5)
        found: list[str] = []
        asked.addCallback(lambda nodes: found.extend(nodes or ()))
        self.cluster.run(1.1)
        assert done.called
        assert asked.called
        assert set(found) <= others

    @rule(node=NODES, number=st.integers(0, 99), seconds=st.sampled_from((0.0, 0.003, 0.6)))
    def bind_and_settle(self, node, number, seconds):
        """
        When a change is settled in time, all members that are not suspected have it.
        """
        address, binder = f"comm://example.com/settled/{number}", self.nodes[node]
        binder.bind(address)
        late = binder.directory.counts.unsettled
        found = []

        def settled(done):
            if binder.directory.counts.unsettled == late:
                found.extend(
                    node in self.nodes[other].directory.holders(address)
                    for other in (A, B, C)
                    if other != node and not binder.directory.is_suspected(other)
                )

        binder.directory.settled(address).addCallback(settled)
        self.cluster.run(seconds)
        binder.unbind(address)
        assert all(found)

    def teardown(self):
        if not hasattr(self, "cluster"):
            return
        for name in self.nodes:
            self.cluster.resume(name)
        self.cluster.cut_links.clear()
        self.cluster.connect()
        self.cluster.run(QUIET)
        for name, node in self.nodes.items():
            others = {other: self.nodes[other] for other in sorted(self.nodes) if other != name}
            for address in {*ADDRESSES, *MANY}:
                assert node.directory.holders(address) == _holders(others, address), (name, address)
            for runtime in RUNTIMES:
                held = [(n.sessions[runtime], other) for other, n in others.items() if runtime in n.sessions]
                found = [(entry.generation, other) for other, entry in node.directory.sessions(runtime)]
                assert found == sorted(held)
                assert node.directory.holders(runtime) == _holders(others, runtime)
            assert node.directory.table.count == sum(n.directory.own.count for n in others.values())
            assert not any(node.directory.is_suspected(other) for other in others)
            node.directory.stop()
        assert all(not node.directory.table.needs_sweep for node in self.nodes.values())


def _holders(others, address):
    """
    The nodes that hold the address: a session with that name, or above it, comes before what is bound.
    """
    for name in (address, address.rpartition("/")[0]):
        held = [(others[node].sessions[name], node) for node in others if name in others[node].sessions]
        if held and (name == address or address.startswith("hyperty-runtime:")):
            return (max(held)[1],) if max(held)[0] else tuple(sorted(node for _, node in held))
    return tuple(node for node in others if address in others[node].directory.own)


DirectoryMachine.TestCase.settings = settings(max_examples=40 * TIMES, stateful_step_count=40)
TestDirectory = DirectoryMachine.TestCase
