"""
What a real node wrote down, mined.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic.plan import generate

from msgnode.mining.pipeline.run import MiningRun, Options
from tests.integration.process import Lines, NodeProcess

ANN, BOB = "runtime://example.org/ann", "runtime://example.org/bob"
CHAT = "comm://example.org/chat"
SM = "domain://msg-node.example.org/sm"


def conversation(port: int) -> None:
    """
    Bob subscribes, ann publishes, asks, is answered, is refused and leaves; bob loses his connection.
    """
    ann, bob = Lines(port, ANN), Lines(port, BOB)
    bob.ask({"id": 2, "type": "subscribe", "from": f"{BOB}/sm", "to": SM,
             "body": {"resources": [f"{CHAT}/changes", f"{CHAT}/status"]}})  # fmt: skip
    ann.send({"id": 3, "type": "update", "from": CHAT, "to": f"{CHAT}/changes", "body": {}})
    assert bob.receive()["id"] == 3
    ann.send({"id": 4, "type": "read", "from": ANN, "to": BOB, "body": {}})
    asked = bob.receive()
    for code in (100, 200):
        bob.send({"id": asked["id"], "type": "response", "from": BOB, "to": ANN, "body": {"code": code}})
        assert ann.receive()["body"]["code"] == code
    ann.send({"id": 5, "type": "update", "from": ANN, "to": "comm://example.org/silent/changes", "body": {}})
    refused = ann.ask({"id": 6, "type": "read", "from": "mn:/session", "to": BOB, "body": {}})
    assert refused["body"]["code"] == 403
    ann.send({"id": 7, "type": "close", "from": f"{ANN}/{ann.token}", "to": "mn:/session"})
    while ann.receive() is not None:
        pass
    bob.close()


def rows(spark, out, name):
    return [row.asDict(recursive=True) for row in spark.read.parquet(f"{out}/tables/{name}").collect()]


def test_recorded(spark, tmp_path):
    """
    The log of a real node goes through the whole tool, and what happened is found.
    """
    node = NodeProcess("--domain", "example.org", "--traffic", str(tmp_path / "traffic"))
    try:
        conversation(node.ports["line"])
    finally:
        node.stop(signal.SIGTERM)
    written = [
        line for path in (tmp_path / "traffic").glob("*.jsonl") for line in path.read_text().splitlines()
    ]

    result = MiningRun(spark, Options(str(tmp_path / "traffic"), str(tmp_path / "out")), list().append).run()

    assert (len(written), 0) == (result.lines, result.bad)
    [chain] = [row for row in rows(spark, tmp_path / "out", "chains") if row["type"] == "read"]
    assert (2, 1) == (chain["answers"], chain["number"])
    assert [] == rows(spark, tmp_path / "out", "unanswered")
    assert [(BOB, f"{CHAT}/changes")] == [
        (row["observer"], row["address"]) for row in rows(spark, tmp_path / "out", "edges")
    ]
    assert [f"{CHAT}/status"] == [row["address"] for row in rows(spark, tmp_path / "out", "orphans")]
    unheard = [row for row in rows(spark, tmp_path / "out", "publications") if row["unheard"]]
    assert ["comm://example.org/silent/changes"] == [row["address"] for row in unheard]
    assert 403 in {row["code"] for row in rows(spark, tmp_path / "out", "refusals")}
    ended = {row["ended"]: row for row in rows(spark, tmp_path / "out", "sessions")}
    assert 1 == ended["closed"]["sessions"] == ended["goes on"]["sessions"]
    assert {ANN, BOB} & {row["session"] for row in rows(spark, tmp_path / "out", "stories")}


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_of_a_run_that_is_not_done(tmp_path, sent):
    """
    Ctrl-C or SIGTERM before the report is there is exit code 130, without a traceback.
    """
    logs = Path(__file__).parents[1] / "fixtures/0.1.0"
    command = [str(Path(sys.executable).with_name("msgnode")), "mine", str(logs)]
    with subprocess.Popen(
        [*command, "--out", str(tmp_path / "out")], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        process.send_signal(sent)
        rest = process.stderr.read()

    assert 130 == process.returncode, first + rest
    assert "Traceback" not in rest


@pytest.mark.parametrize(
    "setting, said",
    [
        ("spark.master=nowhere", "Spark did not start: Master must "),
        ("spark.driver.memory=lots", "Spark did not start: Invalid maximum heap size: -Xmxlots"),
    ],
)
def test_setting_with_which_spark_does_not_start_is_told_in_one_line(tmp_path, setting, said):
    """
    A wrong value of --conf is one line on standard error, without the trace of Java.
    """
    command = [str(Path(sys.executable).with_name("msgnode")), "mine", str(tmp_path)]

    done = subprocess.run(
        [*command, "--out", str(tmp_path / "out"), "--conf", setting], capture_output=True, text=True
    )

    assert 2 == done.returncode
    [line] = done.stderr.splitlines()
    assert line.startswith(f"msgnode: {said}")


@pytest.mark.parametrize(("options", "step"), [((), "combining"), (("--follow", "--every", "1"), "report: ")])
def test_death_of_java_is_told_in_a_sentence(tmp_path, options, step):
    """
    If the process of Spark is killed, as by the system when memory ends, the tool says so and exits; also if
    it waits for more.
    """
    logs, out, tool = tmp_path / "logs", tmp_path / "out", Path(sys.executable).with_name("msgnode")
    generate(logs, 100, 1, 1, 1, hours=1)
    command = [tool, "mine", logs, "--out", out, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        said = []
        for line in process.stdout:
            said.append(line)
            if step in line:
                [java] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
                os.kill(int(java), signal.SIGKILL)
        code = process.wait(60)

    assert code == 2
    assert "msgnode: the Java process of Spark has ended; it may need more memory" in said[-1]
