"""
Ten thousand sessions move at once, as when a node is drained.
"""

from simulating.clock import HeapClock
from twisted.internet.defer import succeed

from msgnode.cluster.moves.moves import Moves
from tests.support.cluster_directory import A, B
from tests.support.cluster_members import MemoryCluster

COUNT = 10_000
CAPACITY = 256


class QuickNode:
    """
    A node that holds sessions in memory (SessionHolder, SessionDirectory). Each has five messages.
    """

    def __init__(self, cluster, nodes, name):
        self.nodes = nodes
        self.name = name
        self.sessions: dict[str, int] = {}
        self.leaving: dict[bytes, list[tuple[int, bytes]]] = {}
        self.arrived: dict[bytes, tuple[int, bool]] = {}
        self.received = 0
        members = cluster.start(name)
        self.moves = members.listener = Moves(members, self, self, cluster.clock)
        nodes[name] = self

    def other_holders(self, name):
        others = [node for node in self.nodes.values() if node is not self]
        return [(node.sessions[name], node.name) for node in others if name in node.sessions]

    def held(self, name, generation):
        pass

    def let_go(self, name):
        pass

    def generation(self, name):
        return self.sessions.get(name)

    def refusal(self, name, claim):
        return None

    def releases(self):
        return []

    def release(self, release):
        del self.sessions[release.name]
        self.leaving[release.id] = [(key, b"m" * 300) for key in range(1, 6)]
        return succeed(None)

    def state(self, release, claims):
        return b"s" * 1500

    def messages(self, release, after, most_bytes):
        return [each for each in self.leaving[release.id] if each[0] > after]

    def handed_over(self, release, key):
        self.leaving[release.id] = [each for each in self.leaving[release.id] if each[0] > key]

    def seal(self, release):
        return not self.leaving[release.id]

    def discard(self, release):
        del self.leaving[release.id]

    def progress(self, of, id):
        return self.arrived.get(id)

    def claims(self, name):
        return []

    def import_state(self, of, release, state):
        self.arrived[release.id] = (0, False)
        self.sessions[release.name] = release.generation
        return succeed(None)

    def import_messages(self, of, id, key, messages):
        self.received += len(messages)
        self.arrived[id] = (key, False)
        return succeed(None)

    def finish(self, of, id):
        self.arrived[id] = (self.arrived[id][0], True)
        return succeed(None)


def test_ten_thousand_sessions_move_at_once():
    """
    All sessions of a node move with their messages, without a repetition, over a link that has room for 256
    payloads.
    """
    cluster = MemoryCluster(clock=HeapClock(), capacity=CAPACITY)
    nodes: dict[str, QuickNode] = {}
    first, second = QuickNode(cluster, nodes, A), QuickNode(cluster, nodes, B)
    first.sessions = {f"hyperty-runtime://example.com/{number}": 1 for number in range(COUNT)}
    cluster.connect()
    outcomes: list[str] = []

    for name in list(first.sessions):
        taken = second.moves.take(name, b"token")
        assert taken is not None
        taken.addCallback(lambda outcome: outcomes.append(outcome.kind))
    cluster.run(4)  # nothing is offered again so early

    assert outcomes == ["taken"] * COUNT
    assert second.received == 5 * COUNT
    assert (first.moves.under_way, second.moves.under_way) == ((0, 0, 0), (0, 0, 0))
    assert first.leaving == {}
