"""
What `msgnode bench` says of the node's data plane.
"""

from msgnode.cli.bench.node_counts import NodeCounts, describe, numbers

ADMIN = "http://127.0.0.1:9092"


def test_says_how_much_the_compiled_plane_carried() -> None:
    """
    The share of messages by flow is that of the time of the measurement.
    """
    before, after = NodeCounts("native", 100, 200, 200), NodeCounts("native", 1090, 1200, 1200)

    sentence, result = describe(before, after, 900, ADMIN)

    assert sentence == "The data plane was the compiled one, which carried 99% of the messages by flow."
    assert result == {"data_plane": "native", "by_flow": 0.99}


def test_python_alone() -> None:
    """
    In Python alone nothing is carried by flow, and no share is told.
    """
    sentence, result = describe(NodeCounts("python", 0, 5, 5), NodeCounts("python", 0, 105, 105), 100, ADMIN)

    assert sentence == "The data plane was Python alone."
    assert result == {"data_plane": "python", "by_flow": 0.0}


def test_says_that_it_does_not_know() -> None:
    """
    Where no node answers, or one that sent fewer messages than arrived here, nothing is claimed.
    """
    other = NodeCounts("native", 0, 0, 0)

    for before, after, why in ((None, None, "no node answers"), (other, other, "is another one")):
        sentence, result = describe(before, after, 100, ADMIN)
        assert why in sentence and ADMIN in sentence
        assert result == {"data_plane": None, "by_flow": None}


def test_sums_metrics_over_their_labels() -> None:
    """
    Comments are left out.
    """
    metrics = '# HELP a b\na_total 12.0\na_bucket{le="1.0"} 3.0\n'

    assert numbers(metrics) == {"a_total": 12, "a_bucket": 3}
