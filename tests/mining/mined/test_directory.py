"""
A mined directory: its verbs, on a log of two nodes with a message between them, and what they refuse.
"""

import json
import re
import time

import pytest
from click.testing import CliRunner

from msgnode.cli.main import main
from msgnode.mining.analyses.exchanges import SCHEMA
from msgnode.mining.mined.compare import compare
from msgnode.mining.mined.directory import MinedDirectory
from msgnode.mining.mined.period import parse_period
from tests.mining.rows import ANN, BOB, START, event, log, message
from tests.support.examples import TOP

SKEW = 5  # seconds that the clock of mn2 is ahead
SLO = """
[[slo]]
name = "answered"
share = 0.99
within_ms = 1000

[[slo]]
name = "refused"
share = 0.5
not_refused = true
domain = "a.example"
"""


def run(*arguments):
    found = CliRunner().invoke(main, ["mine", *map(str, arguments)], catch_exceptions=False)
    return found.exit_code, found.stdout, found.stderr


def across(second, id, from_, to, nodes=("mn1", "mn2"), **more):
    """
    A message that passes from one node to another within 10 ms, with the clocks as they are.
    """
    ahead = [SKEW if node == "mn2" else 0 for node in nodes]
    same = {"id": id, "transaction": f"t{id}", **more}
    return [
        message(second + ahead[0], from_, to, node=nodes[0], **same),
        message(
            second + ahead[1] + 0.01, from_, to, node=nodes[1], hops=1, source=f"mn://x/{nodes[0]}", **same
        ),
    ]


def lines():
    """
    Two hours: in the first 60 reads that are answered, in the second 60 of which 40 are not, and refusals.
    """
    found = [event(1, "opened"), event(2, "attached")]
    for at in range(60):
        found.append(message(100 + at, type="read", id=f"a{at}"))
        found.append(message(100 + at + 0.2, BOB, ANN, type="response", id=f"a{at}"))
        found.append(message(3700 + at, type="read", id=f"b{at}"))
        if at >= 40:
            found.append(message(3700 + at + 0.2, BOB, ANN, type="response", id=f"b{at}"))
        found.append(
            message(3800 + at, outcome="refused", code=429, reason="rate", id=f"c{at}", recipients=0)
        )
    # Answered in the next hour.
    found.append(message(3599.9, type="execute", id="late"))
    found.append(message(3600.2, BOB, ANN, type="response", id="late"))
    found += across(500, "ask", ANN, BOB, type="read")
    found += across(500.05, "ask", BOB, ANN, ("mn2", "mn1"), type="response")
    return found


@pytest.fixture(scope="module")
def mined(spark, tmp_path_factory):
    """
    Where the log was mined, with a report of the first minutes of its second hour, which has no line after.
    """
    directory = tmp_path_factory.mktemp("mined")
    (directory / "logs").mkdir()
    (directory / "slo.toml").write_text(SLO)
    files = {}
    for line in sorted(lines(), key=lambda line: line["time"]):
        stamp = f"{line['date'].replace('-', '')}T{line['hour']:02}"
        kept = {
            key: value for key, value in line.items() if value is not None and key not in ("date", "hour")
        }
        files.setdefault(f"traffic-{line['node']}-{stamp}.jsonl", []).append(json.dumps(kept))
    for name, texts in files.items():
        (directory / "logs" / name).write_text("\n".join(texts) + "\n")
    done = run(
        directory / "logs",
        "--out",
        directory / "out",
        "--from",
        "2026-07-31T01",
        "--to",
        "2026-07-31T01:04:30",
    )
    assert 0 == done[0], done
    return directory, done[1]


def sections(path):
    text = path.read_text()
    data = json.loads(text.partition('type="application/json">')[2].partition("</script>")[0])
    return {section["id"]: section for section in data["sections"]}


def test_a_period_is_reported_beside_everything(mined):
    """
    --from and --to write a report of the period; the report of everything and the checkpoint stay whole.
    """
    directory, said = mined
    part, whole = directory / "out/report-20260731T010000-20260731T010430.html", directory / "out/report.html"

    assert f"report: {part}" in said
    tiles = [
        {name: value for name, value, _ in sections(path)["overview"]["tiles"]} for path in (part, whole)
    ]
    assert [141, 266] == [each["messages"] for each in tiles]
    assert [40, 40] == [each["requests unanswered"] for each in tiles]
    assert "2026-07-31 01:00:00 to 2026-07-31 01:04:30 UTC, 4 min 30 s" in part.read_text()
    assert not (directory / "out/_period").exists()
    files = json.loads((directory / "out/_checkpoint.json").read_text())["batches"]
    assert 3 == sum(len(batch["files"]) for batch in files)


def test_the_report_begins_with_what_is_wrong(mined):
    """
    What goes on comes first, each finding leads to its section, and a short log is shown by minute.
    """
    directory, _ = mined
    found = sections(directory / "out/report.html")

    assert "overview" == next(iter(found))
    first, second, *_ = found["overview"]["striking"]
    assert ["60 messages", "errors", True] == [first[0], *first[2:]]
    assert first[1].startswith(
        "were refused with 429 rate (too many or too much), 23 % of all, all from a.example; "
    )
    assert first[1].endswith("still going on.")
    assert ["40 read requests", "unanswered", False] == [second[0], *second[2:]]
    assert (
        "to hyperty://b.example got no answer, 33 % of them; from 2026-07-31 01:01, over after 2 min"
        in second[1]
    )
    assert {"errors", "answers", "nodes"} <= set(found)
    labels = found["errors"]["chart"]["labels"]
    assert ("00:00", 60) == (labels[0], labels.index("01:00"))
    assert 60 == sum(found["errors"]["chart"]["series"]["429 rate"])


def test_compare_says_what_changed(mined):
    """
    Between two hours the new errors and the unanswered requests changed most.
    """
    directory, _ = mined
    hours = "2026-07-31T00..2026-07-31T01", "2026-07-31T01..2026-07-31T02"

    code, out, _ = run("compare", directory / "out", "--a", hours[0], "--b", hours[1])

    assert 0 == code
    assert "errors 429 rate: new: 831 an hour" in out
    assert "unanswered requests to hyperty://b.example of type read: new: 66.7 %" in out.replace(
        "67 %", "66.7 %"
    )


def test_compare_takes_what_the_log_has_of_a_period(mined):
    """
    A period that is not over, or from before the log, has the rates of the part that the log has; that is
    said.
    """
    directory, _ = mined
    periods = "2026-07-30T12..2026-07-31T01", "2026-07-31T01..2026-08-02"

    code, out, _ = run("compare", directory / "out", "--a", periods[0], "--b", periods[1])

    assert 0 == code
    assert ["before: 2026-07-31 00:00:01 to 2026-07-31 01:00:00, 59 min 59 s; the log begins there",
            "now:    2026-07-31 01:00:00 to 2026-07-31 01:04:20, 4 min 20 s; the log ends there",
            ] == out.splitlines()[:2]  # fmt: skip
    assert "errors 429 rate: new: 831 an hour" in out


def test_answers_after_the_end_of_a_period_count_for_their_request(mined, spark):
    """
    A request of a period is answered, though the answer came in the next hour, and in its own batch.
    """
    directory, _ = mined
    stored = MinedDirectory(spark, str(directory / "out"))

    hour = stored.rows(parse_period("2026-07-31T00..2026-07-31T01"))

    [late] = hour["exchanges"].where("type = 'execute'").collect()
    assert (1, 300_000) == (late.answers, late.micros)


def test_compare_takes_one_node_of_each_period(mined):
    """
    Two nodes are compared in the same hour.
    """
    directory, _ = mined
    hour = "2026-07-31T00..2026-07-31T01"

    code, out, _ = run("compare", directory / "out", "--a", f"{hour}@mn1", "--b", f"{hour}@mn2", "--json")

    found = {(each["measure"], each["key"]): each for each in json.loads(out)["changes"]}
    assert (0, 123, 0) == (code, found["node", "mn1"]["a"], found["node", "mn1"]["b"])
    assert 2 == found["node", "mn2"]["b"]


def test_check_fails_when_the_budget_burns(mined):
    """
    Exit code 1, and metrics in a file, when a third of the requests has no answer.
    """
    directory, _ = mined

    code, out, _ = run(
        "check", directory / "out", "--slo", directory / "slo.toml", "--prometheus", directory / "m.prom"
    )  # fmt: skip

    metrics = (directory / "m.prom").read_text()
    assert 1 == code
    assert out.startswith("answered: burning. 67 % of 123 requests answered within 1 s, objective 99 %; ")
    assert 'msgnode_slo_objective{slo="answered"} 0.99' in metrics
    [good] = [
        line for line in metrics.splitlines() if line.startswith('msgnode_slo_good_ratio{slo="answered"}')
    ]
    # 40 of 123 requests have no answer: 60 and 60, one that two nodes saw, and one between the hours.
    assert 83 / 123 == pytest.approx(float(good.split()[-1]))
    assert 'msgnode_slo_met{slo="refused"} 1' in metrics


def test_check_of_an_earlier_time_and_of_old_data(mined):
    """
    At the end of the first hour all is met; data that is too old ends with exit code 3.
    """
    directory, _ = mined
    common = ("check", directory / "out", "--slo", directory / "slo.toml", "--at", "2026-07-31T01")

    assert 0 == run(*common)[0]
    code, out, _ = run(*common, "--max-age", "10", "--json")
    assert 3 == code
    found = json.loads(out)
    assert not found["ok"] and ["met", "met"] == [each["state"] for each in found["levels"]]
    assert found["age_seconds"] == pytest.approx(time.time() - START / 1e9 - 3859, abs=600)


def test_a_conversation_is_followed_across_nodes_with_their_clocks(mined):
    """
    The lines of a transaction come in the order of what happened, with the skew of the clocks.
    """
    directory, _ = mined

    code, out, _ = run("conversation", directory / "out", "task")

    assert 0 == code
    assert "the clock of mn2 is 5 s ahead of that of mn1 (give or take 10 ms, from 2 messages)" in out
    shown = [re.findall(r"(mn\d)  (\w+)", line)[0] for line in out.splitlines()[-4:]]
    assert [("mn1", "read"), ("mn2", "read"), ("mn2", "response"), ("mn1", "response")] == shown
    assert 1 == run("conversation", directory / "out", "nobody", "--from", "2026-07-31")[0]


def test_policies_are_replayed_over_what_is_stored(mined, tmp_path):
    """
    Two policies are compared without reading the log again.
    """
    directory, _ = mined
    strict = tmp_path / "strict.json"
    text = (TOP / "etc/policies/block-partner.json").read_text()
    strict.write_text(text.replace("partner.example", "a.example"))

    code, out, _ = run(
        "replay", directory / "out", "--policy", TOP / "etc/policies/block-partner.json", "--policy", strict
    )  # fmt: skip

    assert 0 == code
    assert "266 messages" == out.splitlines()[0]
    assert f"{TOP}/etc/policies/block-partner.json:" in out and f"{strict}:" in out


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("compare", "OUT", "--a", "2026-07-31..2026-08-01@mn9", "--b", "2026-07-31..2026-08-01"),
         "has no node 'mn9', but mn1, mn2"),
        (("compare", "OUT", "--a", "2025-07-31..2025-08-01", "--b", "2026-07-31..2026-08-01"),
         "has nothing of 2025-07-31 00:00 to 2025-08-01 00:00, but 2026-07-31 00:00 to 2026-07-31 02:00"),
        (("compare", "OUT", "--a", "2026-07-32..2026-08-01", "--b", "2026-07-31..2026-08-01"),
         "'2026-07-32' is not a time in UTC"),
        (("compare", "OUT", "--a", "2026-08-01..2026-07-31", "--b", "2026-07-31..2026-08-01"),
         "ends before it begins"),
        (("conversation", "OUT", "x", "--from", "2026-08-02"),
         "out: has nothing from 2026-08-02 00:00, but 2026-07-31 00:00 to 2026-07-31 02:00"),
        (("conversation", "OUT", "x", "--to", "2026-07-30T12:30"), "has nothing to 2026-07-30 12:30, but"),
        (("check", "OUT", "--slo", "SLO", "--prometheus", "/none/x.prom"),
         "--prometheus: cannot write /none/x.prom: No such file or directory"),
        (("SLO", "--out", "OUT"), "slo.toml: is a file; give the directory with the log"),
        (("check", "OUT", "--slo", "none.toml"), "none.toml: No such file or directory"),
        (("conversation", "LOGS", "x"), "was not mined; make it with: msgnode mine LOGS --out"),
        (("replay", "OUT", "--policy", "none.json"), "none.json"),
        (("LOGS", "--out", "OUT", "--from", "2026-08-01", "--to", "2026-07-31"), "is not after"),
    ],
)  # fmt: skip
def test_bad_input_is_told_with_exit_code_2(mined, arguments, said):
    """
    An unknown time or node, a reversed period, a missing file: one sentence, exit code 2.
    """
    directory, _ = mined
    names = {"OUT": directory / "out", "LOGS": directory / "logs", "SLO": directory / "slo.toml"}

    code, _, err = run(*(names.get(each, each) for each in arguments))

    assert 2 == code
    assert said in " ".join(err.split())


def test_help_names_the_verbs_and_the_options(spark):
    """
    The help of `mine` has the options of a run and the verbs, and a verb is not taken for a directory.
    """
    code, out, _ = run("--help")

    assert 0 == code
    assert "--out DIR" in out and "LOGS" in out
    for verb in ("check", "compare", "conversation", "replay"):
        assert f"  {verb} " in out
    assert "FROM..TO[@NODE]" in run("compare", "--help")[1]


def test_a_sender_that_is_not_among_the_largest_is_not_taken_for_none(spark, monkeypatch):
    """
    Only the largest senders of each period are compared, and those have their counts in both.
    """
    monkeypatch.setattr("msgnode.mining.mined.compare.MAX_KEYS", 2)
    loud = [message(at, f"hyperty://a.example/{name}") for name in "pq" for at in range(40)]
    quiet = [message(at, "hyperty://c.example/x") for at in range(28)]
    one, other = [
        {"messages": log(spark, *rows), "events": log(spark), "exchanges": spark.createDataFrame([], SCHEMA)}
        for rows in (quiet, [*loud, *quiet])
    ]
    hour = parse_period("2026-07-31T00..2026-07-31T01")

    changes = {each.key: each for each in compare(one, other, hour, hour)}

    assert (28, 28) == (changes["hyperty://c.example/x"].a, changes["hyperty://c.example/x"].b)
    assert (0, 40) == (changes["hyperty://a.example/p"].a, changes["hyperty://a.example/p"].b)
