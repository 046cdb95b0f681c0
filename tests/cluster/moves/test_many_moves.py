"""
Ten thousand sessions move at once, as when a node is drained.
"""

from simulating.clock import HeapClock

from tests.support.cluster_directory import A, B
from tests.support.cluster_members import MemoryCluster
from tests.support.cluster_moves import QuickNode

COUNT = 10_000
CAPACITY = 256


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
