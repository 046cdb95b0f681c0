"""
Moves of sessions against a model: nodes are killed and stopped, links are cut, clients go wherever they want.

After quiet nobody holds a session twice, nothing waits to be handed over, and each client has every message
once; in order, wherever the holder of before could be waited for.
"""

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.support.cluster_moves import NAMES, A, B, C, World
from tests.support.fuzz import TIMES

NODES = st.sampled_from(NAMES)
PAIRS = st.sampled_from(((A, B), (B, C), (A, C)))
SESSIONS = st.sampled_from(("hyperty-runtime://e/s1", "hyperty-runtime://e/s2"))


class MovesMachine(RuleBasedStateMachine):
    """
    Three nodes, two sessions, and all that may happen to them.
    """

    @initialize(capacity=st.sampled_from((4, 1000)), first=NODES, second=NODES)
    def begin(self, capacity, first, second):
        self.world = World(capacity=capacity)
        for number, name in ((1, first), (2, second)):
            self.world.client(f"hyperty-runtime://e/s{number}").connect(name)
        self.world.run(1)

    @rule(session=SESSIONS, node=NODES)
    def connect(self, session, node):
        self.world.client(session).connect(node)

    @rule(session=SESSIONS)
    def lose_connection(self, session):
        client = self.world.client(session)
        client.connection += 1
        client.is_open = False

    @rule(session=SESSIONS, acks=st.booleans())
    def acknowledge(self, session, acks):
        self.world.client(session).acks = acks

    @rule(session=SESSIONS, node=NODES, count=st.integers(1, 12))
    def publish(self, session, node, count):
        self.world.publish(node, session, count)

    @rule(pair=PAIRS)
    def cut(self, pair):
        self.world.cluster.cut(*pair)

    @rule(pair=PAIRS)
    def restore(self, pair):
        self.world.cluster.restore(*pair)

    @rule(node=NODES)
    def kill(self, node):
        self.world.kill(node)

    @rule(node=NODES)
    def start(self, node):
        self.world.start(node)

    @rule(node=NODES)
    def stop(self, node):
        self.world.stop(node)

    @rule(node=NODES)
    def resume(self, node):
        self.world.resume(node)

    @rule(seconds=st.sampled_from((0.002, 0.006, 0.01, 0.05, 0.5, 2.1, 8)))
    def wait(self, seconds):
        self.world.run(seconds)

    def teardown(self):
        if not hasattr(self, "world"):
            return
        world = self.world
        world.cluster.cut_links.clear()
        for name in NAMES:
            world.resume(name)
            world.start(name)
        world.cluster.connect()
        world.run(5)
        for session, client in world.clients.items():
            client.acks = True
            client.connect((world.holders(session) or [A])[-1])
        for _ in range(4):
            world.run(5)
            for client in world.clients.values():
                if not client.is_open:
                    client.connect(client.node)
        world.run(15)
        for session, client in world.clients.items():
            self.judge(session, client)
        assert {node.moves.under_way for node in world.nodes.values()} == {(0, 0, 0)}

    def judge(self, session, client):
        world = self.world
        assert len(world.holders(session)) == 1
        assert client.is_open
        assert client.faults == []
        for node in world.nodes.values():
            assert [leaving for leaving in node.now.leaving.values() if leaving.release.name == session] == []
            others = [name for name in world.holders(session) if name != node.name]
            assert list(node.directory.holders(session)) == others
        published = world.published.get(session, [])
        assert sorted(client.got) == sorted(published)
        if not world.excused and all(client.recovered[1:]):
            for source in "abc":
                assert [id for id in client.got if id[0] == source] == [
                    id for id in published if id[0] == source
                ]


MovesMachine.TestCase.settings = settings(
    max_examples=15 * TIMES, stateful_step_count=30, phases=[Phase.reuse, Phase.generate]
)
TestMoves = MovesMachine.TestCase
