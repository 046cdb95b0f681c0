"""
A simulated network under faults keeps its invariants; tools/simulate does the same with a thousand nodes.
"""

import pytest
from simulating.command import main
from simulating.invariants import Judge
from simulating.run import simulate
from simulating.streams import Ledger

from tests.support.links_overlay import A, B, C, network, wire


@pytest.mark.parametrize("seed", [1, 2])
def test_invariants_hold_under_faults(seed):
    """
    Through partitions, flaps, changed costs, loss, doubling, reordering and kills no datagram loops, and no
    message is lost in silence, doubled or out of order; then all routes equal those of networkx, and nothing
    is left in memory.
    """
    run = simulate(nodes=16, faults=9, seed=seed)

    assert [] == run.judge.broken
    assert run.judge.counts["routes compared"] > 500
    assert run.judge.counts["hops"] > 500
    assert run.ledger.reasons()["acknowledged"] > 500


def test_the_judge_notices_wrong_routes():
    """
    The judge finds a route that is not the one of networkx, and a datagram that does not arrive.
    """
    world = network((A, B), (B, C))
    judge = Judge(world)
    wire(world, A, B).links[0].end.listener.routes.graph.set_links({B: 5000})
    world.nodes[A].overlay.routes.changed()
    world.run(1)
    wire(world, B, C).faults.loss = 1.0

    judge.compare_routes()
    judge.probe(30)

    assert any("routes that differ" in what for what in judge.broken)
    assert any("did not arrive" in what for what in judge.broken)


@pytest.mark.parametrize(
    ("received", "told", "forgot", "expected"),
    [
        ([1, 2, 3], [["acknowledged"]] * 3, {}, []),
        ([1, 2], [["acknowledged"]] * 3, {}, ["told otherwise"]),
        ([1, 2, 3], [["acknowledged"]] * 2 + [["stale"]], {}, ["told otherwise"]),
        ([1, 2], [["acknowledged"]] * 2 + [[]], {}, ["silence"]),
        ([1, 2, 3, 3], [["acknowledged"]] * 3, {}, ["came twice"]),
        ([1, 3, 2], [["acknowledged"]] * 3, {}, ["out of order"]),
        ([1, 2], [["acknowledged"]] * 2 + [["in-doubt"]], {}, ["in doubt"]),
        ([], [["acknowledged"]] * 2 + [["in-doubt"]], {"b": 3}, []),
    ],
)
def test_the_ledger_notices_what_streams_do_wrong(received, told, forgot, expected):
    """
    The ledger finds what was lost, doubled, disordered or kept silent about, and excuses what was forgotten.
    """
    ledger = Ledger()
    ids = [(b"a", number) for number in range(1, 4)]
    ledger.sent = {id: ("a", "b", 5) for id in ids}
    ledger.told = dict(zip(ids, told, strict=True))
    ledger.received = {"b": [(b"a", number) for number in received]}
    ledger.forgot = forgot

    broken = ledger.judge()

    assert len(broken) == min(1, len(expected))
    assert all(what.startswith(tuple(expected)) for what in broken)


def test_one_seed_gives_one_run():
    """
    Two runs with the same seed are the same, but for the CPU time.
    """
    first, second = (simulate(nodes=12, faults=3, seed=7).figures for _ in range(2))

    assert {key: first[key] for key in first if "CPU" not in key} == {
        key: second[key] for key in second if "CPU" not in key
    }


def test_the_command(capsys, tmp_path):
    """
    The command prints the figures, writes them to a file, and exits with 0.
    """
    assert 0 == main(
        ["--nodes", "8", "--faults", "1", "--seed", "3", "--json", str(tmp_path / "figures.json")]
    )

    assert "invariants broken" in capsys.readouterr().out
    assert '"broken": []' in (tmp_path / "figures.json").read_text()
