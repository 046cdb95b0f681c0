"""
The language, row by row: tests/policy/semantics.json.
"""

import json

import pytest

from msgnode.policy.decision.problems import PolicyRefused
from tests.support.policy_case import GROUPS, HERE, context, document, program

ROWS = json.loads((HERE / "policy/semantics.json").read_text("utf-8"))


def named(row):
    return f"{row['row']}"


@pytest.mark.parametrize("row", [row for row in ROWS if "cases" in row], ids=named)
@pytest.mark.parametrize("index", [True, False], ids=["indexed", "unindexed"])
def test_decides(row, index):
    """
    A policy says of each message what the row says, and explains the same.
    """
    made = program(document(row), groups=GROUPS, index=index)

    for case in row["cases"]:
        decision = made.decide(context(case))
        explained = made.explain(context(case)).decision
        assert case["expect"] == decision.effect
        assert decision == explained
        if "obligations" in case:
            assert case["obligations"] == [each.path for each in decision.obligations]
    assert row.get("lint", "") in " ".join(lint.text for lint in made.lints)


@pytest.mark.parametrize("row", [row for row in ROWS if "refused" in row], ids=named)
def test_refuses(row):
    """
    A policy that cannot be meant is refused, in exactly these words.
    """
    with pytest.raises(PolicyRefused) as caught:
        program(document(row), groups=GROUPS)

    assert [row["refused"]] == [problem.text for problem in caught.value.problems]


def test_complete():
    """
    No row is left out.
    """
    found = {row["row"] for row in ROWS}

    assert set(range(1, 105)) <= found
