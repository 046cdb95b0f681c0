"""
Moves of real sessions with real disks: nodes are killed and stopped, links are cut, streams are slow, nodes
are drained, and clients go wherever they want.

After quiet no session is held twice, nothing waits to be handed over, and each client has every message once;
in order, while no node was killed, stopped, slow or cut off, and no session came back to a node that was
still handing it over. What a sender itself sends again may come twice, after its own session has begun again
at another node; and what a client got at one node, if it then went to another one that held its session, too.
"""

import shutil
import tempfile
from pathlib import Path

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.support.cluster_durable import NAMES, DurableWorld
from tests.support.fuzz import TIMES

A, B, C = NAMES
NODES = st.sampled_from(NAMES)
PAIRS = st.sampled_from(((A, B), (B, C), (A, C)))
SESSIONS = st.sampled_from(("runtime://example.org/1", "runtime://example.org/2"))


class DurableMovesMachine(RuleBasedStateMachine):
    """
    Three nodes, two sessions that go around, and a sender at each node.
    """

    @initialize(first=NODES, second=NODES)
    def begin(self, first, second):
        self.path = Path(tempfile.mkdtemp(prefix="moves-"))
        self.world = DurableWorld(self.path)
        self.is_calm = True
        self.had_two_holders = False
        for number, name in ((1, first), (2, second)):
            self.world.client(f"runtime://example.org/{number}").connect(name)
        self.world.run(1)
        for name in NAMES:
            self.publish("runtime://example.org/1", name, 4)
        self.world.run(0.05)

    @rule(session=SESSIONS, node=NODES)
    def connect(self, session, node):
        self.is_calm &= not self.world.is_leaving(session, node)
        self.had_two_holders |= len(self.world.holders(session)) > 1
        self.world.client(session).connect(node)

    @rule(session=SESSIONS)
    def lose_connection(self, session):
        self.world.client(session).drop()

    @rule(session=SESSIONS, acks=st.booleans())
    def acknowledge(self, session, acks):
        self.world.client(session).acks = acks

    @rule(session=SESSIONS, node=NODES, count=st.integers(1, 8))
    def publish(self, session, node, count):
        self.world.publish(node, session, count)

    @rule(session=SESSIONS, node=NODES, count=st.integers(1, 8))
    def publish_and_go_elsewhere(self, session, node, count):
        self.world.publish(A, session, count)
        self.connect(session, node)
        self.world.publish(C, session, count)

    @rule(pair=PAIRS, cuts=st.booleans())
    def cut_or_restore(self, pair, cuts):
        if cuts:
            self.is_calm = False
            self.world.cluster.cut(*pair)
        else:
            self.world.cluster.restore(*pair)

    @rule(pair=st.permutations(NAMES), is_slow=st.booleans())
    def slow_down(self, pair, is_slow):
        of, to, _ = pair
        if is_slow:
            self.is_calm = False
            self.world.slow.add((of, to))
        else:
            self.world.slow.discard((of, to))

    @rule(node=NODES, what=st.sampled_from(("kill", "start", "stop", "resume")))
    def disturb(self, node, what):
        self.is_calm &= what in ("start", "resume")
        getattr(self.world, what)(node)

    @rule(node=NODES)
    def drain(self, node):
        member = self.world.members.get(node)
        if member is not None and node not in self.world.stopped:
            for other in self.world.members.values():
                self.is_calm &= not other.node.sessions.released
            member.sessions.drain()

    @rule(seconds=st.sampled_from((0.005, 0.01, 0.02, 0.05, 0.5, 2.1, 8)))
    def wait(self, seconds):
        self.world.run(seconds)

    def teardown(self):
        if not hasattr(self, "world"):
            return
        try:
            self.world.heal()
            for session, client in self.world.clients.items():
                self.judge(session, client)
            for member in self.world.members.values():
                assert member.sessions.moves.under_way == (0, 0, 0)
                assert not member.node.sessions.released
        finally:
            for member in self.world.members.values():
                member.die()
            shutil.rmtree(self.path)

    def judge(self, session, client):
        world = self.world
        assert len(world.holders(session)) == 1
        assert client.is_open
        assert client.missed == 0
        published = world.published.get(session, [])
        assert [each for each in published if each not in client.got] == []
        sent_again = set().union(*[sender.sent_again for sender in world.senders.values()])
        doubled = [each for each in published if client.got.count(each) > 1 and each not in sent_again]
        assert doubled == [] or self.had_two_holders
        if self.is_calm and not sent_again:
            for source in "abc":
                got = [each for each in client.got if each[0] == source]
                assert got == [each for each in published if each[0] == source]


DurableMovesMachine.TestCase.settings = settings(
    max_examples=12 * TIMES,
    stateful_step_count=25,
    deadline=None,
    derandomize=TIMES == 1,  # else each run takes other examples
    phases=[Phase.generate],
)
TestDurableMoves = DurableMovesMachine.TestCase
