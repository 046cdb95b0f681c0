"""
A policy decided over the log, on the executors.
"""

import subprocess
import sys

import pytest
from pyspark.sql import functions as F

from msgnode.mining.analyses import policy_replay
from msgnode.mining.analyses.analysis import asked
from msgnode.mining.reading.log_files import Unreadable
from tests.mining.rows import ANN, BOB, log, message, table
from tests.support.examples import TOP

PARTNER = "hyperty://partner.example/x"


def test_what_a_policy_would_have_blocked_and_what_it_leaves(spark):
    """
    What a policy would have blocked, and what it leaves as it was; with the last as a sample.
    """
    policy = policy_replay.load_policy(str(TOP / "etc/policies/block-partner.json"), "a.example")
    rows = log(
        spark,
        message(1),
        message(2, PARTNER),
        message(3, ANN, PARTNER, id="3"),
        message(4, ANN, PARTNER, outcome="refused", code=403),
    ).withColumn("why", F.lit(None).cast("string"))

    found = table(
        policy_replay.decisions_in_all(asked(policy_replay.decisions, policy.decided(rows))),
        "effect",
        "change",
        "number",
        "last.id",
    )

    assert ("deny", "would be blocked", 2, "3") == found[0]
    assert {("deny", "as it was", 1, "1"), ("notApplicable", "as it was", 1, "1")} == set(found[1:])


def test_subscribed(spark):
    """
    A subscription is decided by what was subscribed, as the node does.
    """
    policy = policy_replay.load_policy(str(TOP / "etc/policies/block-partner.json"), "a.example")
    desk = "domain://msg-node.a.example/sm"
    rows = log(
        spark,
        *(
            message(number, to=desk, type="subscribe", outcome="answered", resources=[address])
            for number, address in enumerate(("comm://partner.example/o", "comm://a.example/o"))
        ),
    ).withColumn("why", F.lit(None).cast("string"))

    found = table(asked(policy_replay.decisions, policy.decided(rows)), "effect", "change", "number")

    assert {("deny", "would be blocked", 1), ("notApplicable", "as it was", 1)} == set(found)


def test_default(spark):
    """
    What no rule applies to goes by the default, which is part of what makes two runs the same.
    """
    path = str(TOP / "etc/policies/block-partner.json")
    policy = policy_replay.load_policy(path, "a.example", "deny")
    rows = log(spark, message(1), message(2, outcome="refused", code=403))
    rows = rows.withColumn("why", F.lit(None).cast("string"))

    found = table(asked(policy_replay.decisions, policy.decided(rows)), "effect", "change", "number")

    assert {("notApplicable", "would be blocked", 1), ("notApplicable", "as it was", 1)} == set(found)
    assert policy.revision != policy_replay.load_policy(path, "a.example").revision


def test_undecidable(spark):
    """
    A rate depends on what came before; the log line by itself cannot tell.
    """
    policy = policy_replay.load_policy(str(TOP / "etc/policies/rate-limit.json"), "")
    rows = log(spark, message(1), message(2, BOB, ANN)).withColumn("why", F.lit(None).cast("string"))

    found = table(
        policy_replay.decisions_in_all(asked(policy_replay.decisions, policy.decided(rows))),
        "change",
        "missing",
        "number",
    )

    assert [("undecidable", "what came before", 2)] == found


def test_without_msgspec():
    """
    A cluster without msgspec mines; only --policy needs it, and says so.
    """
    script = (
        "import sys; sys.modules['msgspec'] = None\n"
        "from msgnode.mining.pipeline import run\n"
        "try: run.policy_replay()\n"
        "except run.Unreadable as why: print(why)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=TOP)

    assert done.stdout.startswith("--policy needs msgspec here and on every executor")
    assert done.stdout.endswith("pip install msgspec\n")


def test_unsound(tmp_path):
    """
    A policy that is none is refused before anything starts, with the place.
    """
    (tmp_path / "bad.json").write_text('{"id": 5,')

    with pytest.raises(Unreadable, match=r"bad\.json:1:"):
        policy_replay.load_policy(str(tmp_path / "bad.json"), "")
    with pytest.raises(Unreadable, match="No such file"):
        policy_replay.load_policy(str(tmp_path / "none.json"), "")
