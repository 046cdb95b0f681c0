"""
A log with known things in it, mined in one run and in several.
"""

import gzip
import json
import shutil

import pytest
from synthetic.plan import generate
from synthetic.world import REGISTRY

from msgnode.cli.mine import _follow
from msgnode.mining.pipeline.run import MiningRun, Options

LINES = 3000
DAYS, NODES, HOURS = 4, 2, 6


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    directory = tmp_path_factory.mktemp("logs")
    return directory, generate(directory, LINES, 7, DAYS, NODES, hours=HOURS)


@pytest.fixture(scope="module")
def whole(spark, logs, tmp_path_factory):
    """
    The tables of one run over everything, and the result.
    """
    out = tmp_path_factory.mktemp("whole") / "out"
    result = MiningRun(spark, Options(str(logs[0]), str(out)), list().append).run()
    return out, result


def rows(spark, out, name):
    return [row.asDict(recursive=True) for row in spark.read.parquet(f"{out}/tables/{name}").collect()]


class TestGenerator:
    """
    What tools/make_traffic.py writes.
    """

    def test_same_seed_gives_the_same_log(self, logs, tmp_path):
        """
        The same seed gives the same bytes, and exactly as many valid lines as were asked for.
        """
        again = generate(tmp_path / "again", LINES, 7, DAYS, NODES, hours=HOURS)

        assert logs[1] == again
        names = sorted(path.name for path in logs[0].iterdir())
        assert names == sorted(path.name for path in (tmp_path / "again").iterdir())
        total = 0
        for name in names:
            assert (logs[0] / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
            if name != "truth.json":
                opened = gzip.open if name.endswith(".gz") else open
                with opened(logs[0] / name) as file:
                    total += sum(1 for _ in file)
        assert LINES + 4 == total

    def test_another_seed(self, logs, tmp_path):
        """
        Another seed gives another log.
        """
        other = generate(tmp_path / "other", 500, 8, 1, 1, hours=4)

        assert logs[1] != other


class TestTruth:
    """
    What is in the log is found.
    """

    def test_every_generated_line_is_counted(self, whole, logs):
        """
        Every line is counted, and the bad ones are kept aside.
        """
        out, result = whole

        assert (logs[1]["lines"], logs[1]["bad"]) == (result.lines, result.bad)
        aside = [
            json.loads(line) for path in out.glob("_bad/*/*.json") for line in path.read_text().splitlines()
        ]
        assert logs[1]["bad"] == len(aside)
        assert {"no version", "not JSON of the log"} == {line["why"] for line in aside}

    def test_generated_outcomes_are_as_many(self, spark, whole, logs):
        """
        Refusals, misses and answers are as many as there were.
        """
        found: dict = {}
        for row in rows(spark, whole[0], "volume"):
            found[row["outcome"]] = found.get(row["outcome"], 0) + row["messages"]
        counts = logs[1]["counts"]

        assert counts["refused"] + counts["attacks"] == found["refused"]
        assert counts["no-route"] == found["no-route"]
        assert counts["answered"] == found["answered"]

    def test_generated_visitors_and_publications_are_found(self, spark, whole, logs):
        """
        So are the visitors who post without a session, and what the node publishes itself.
        """
        found = {"rest": 0, "node": 0}
        for row in rows(spark, whole[0], "volume"):
            if row["connector"] in found:
                found[row["connector"]] += row["messages"]
        own = [row for row in rows(spark, whole[0], "publications") if row["publisher"] == REGISTRY]
        counts = logs[1]["counts"]

        assert {"rest": counts["visits"], "node": counts["announcements"]} == found
        assert counts["announcements"] == sum(row["publications"] for row in own) > 10
        assert counts["visits"] > 10

    def test_exchanges(self, spark, whole, logs):
        """
        Every request is there, and every unanswered one.
        """
        chains = rows(spark, whole[0], "chains")

        assert logs[1]["counts"]["exchanges"] == sum(row["number"] for row in chains)
        assert logs[1]["counts"]["unanswered"] == sum(row["number"] for row in chains if row["answers"] == 0)

    def test_generated_attacker_is_first_of_the_loops(self, spark, whole, logs):
        """
        The attacker is the first of the loops, and of the stories.
        """
        attack = logs[1]["attack"]
        worst = rows(spark, whole[0], "failures")[0]

        assert (attack["address"], attack["number"]) == (worst["address"], worst["failed"])
        assert (attack["date"], attack["hour"]) == (worst["date"], worst["hour"])
        assert attack["address"] in {row["about"] for row in rows(spark, whole[0], "stories")}

    def test_generated_repeating_client_is_found(self, spark, whole, logs):
        """
        The client that asks the same thing again and again is found.
        """
        loop = logs[1]["loop"]
        [worst] = [row for row in rows(spark, whole[0], "repetitions") if row["address"] == loop["address"]]

        assert (loop["to"], loop["number"], loop["number"] - 1) == (
            worst["to"],
            worst["unanswered"],
            worst["again"],
        )

    def test_so_is_the_minute_in_which_all_come_back(self, spark, whole, logs):
        """
        So is the minute in which all come back.
        """
        storm = logs[1]["storm"]
        [found] = rows(spark, whole[0], "storms")

        assert (storm["node"], storm["time"]) == (found["node"], found["time"])
        # Somebody else may come in that minute too.
        assert storm["number"] <= found["attached"] <= storm["number"] + 10

    def test_unusual_hours(self, spark, whole, logs):
        """
        The busy hour, the attack and the storm stand out by what they are, and no hour of another day does.
        """
        found = {(row["date"], row["hour"], row["measure"]) for row in rows(spark, whole[0], "anomalies")}
        busy, attack = logs[1]["busy"], logs[1]["attack"]

        assert (busy["date"], busy["hour"], "messages") in found
        assert (attack["date"], attack["hour"], "failed") in found
        assert any(measure == "connections" for _, _, measure in found)
        other = [row for row in rows(spark, whole[0], "anomalies") if row["date"] != busy["date"]]
        assert [] == other

    def test_generated_subscriptions_without_use_are_found(self, spark, whole, logs):
        """
        The address that is never published to, and the one that nobody hears.
        """
        assert logs[1]["orphan"] in {row["address"] for row in rows(spark, whole[0], "orphans")}
        unheard = [row["address"] for row in rows(spark, whole[0], "publications") if row["unheard"]]
        assert [logs[1]["unheard"]] == unheard

    def test_report_is_whole_by_itself(self, whole):
        """
        The report needs nothing from elsewhere, and has every section.
        """
        text = (whole[0] / "report.html").read_text()

        assert "<script src" not in text and "<link" not in text and "@import" not in text
        data = json.loads(text.partition('type="application/json">')[2].partition("</script>")[0])
        assert {"volume", "domains", "answers", "graph", "anomalies", "stories"} <= {
            s["id"] for s in data["sections"]
        }
        assert "attacker.example" in text


def test_piece_by_piece(spark, logs, whole, tmp_path):
    """
    Three runs over a log that grows, while files are compressed and go, give the tables of one run.

    What each run keeps is merged with what was kept before, and tables change all at once.
    """
    growing, out = tmp_path / "logs", tmp_path / "out"
    growing.mkdir()
    files = sorted(
        (path for path in logs[0].glob("traffic-*")), key=lambda path: path.name.partition("-2026")[2]
    )
    seen: list = []

    def look(step):
        seen.append({path: path.stat().st_mtime_ns for path in (out / "tables").rglob("*.parquet")})

    mine = MiningRun(spark, Options(str(growing), str(out)), look, most_parts=1, most_tail=1)
    cut = len(files) * 2 // 3
    # Even so that both nodes' files of the hour are there; one was caught while it was being written.
    for path in files[: cut - cut % NODES]:
        shutil.copy(path, growing)
    torn = growing / files[cut - cut % NODES - 1].name.removesuffix(".gz")
    opened = gzip.open if files[cut - cut % NODES - 1].suffix == ".gz" else open
    with opened(files[cut - cut % NODES - 1]) as file:
        data = file.read()
    (growing / files[cut - cut % NODES - 1].name).unlink()
    torn.write_bytes(data[: len(data) // 2])

    def grown():
        torn.unlink()
        for path in files[cut - cut % NODES - NODES :]:
            shutil.copy(path, growing)
        for path in files[: NODES * 3]:
            (growing / path.name).unlink()

    waits = iter((grown, lambda: None))
    results = [mine.run()]
    steps = len(seen)
    look("after the first run")
    with pytest.raises(StopIteration):  # nobody waits a third time
        _follow(mine.run, results.append, lambda: next(waits)())
    first, second = results  # the third found nothing new

    assert first.files > 0 and 0 < second.files < len(files)
    assert whole[1].lines == second.lines
    assert all(files == seen[steps] != {} for files in seen[steps:]) and not any(seen[:steps])
    for name in ("volume", "latency", "subscriptions"):
        [part] = (out / "parts" / name).iterdir()
        assert 1 == len(list(part.iterdir()))
    for name in whole[1].tables:
        assert rows(spark, whole[0], name) == rows(spark, out, name), name


def test_story_once(spark, logs, whole):
    """
    A story that is asked for is told, and while a log is followed only told again when something is new.
    """
    said: list = []
    mine = MiningRun(
        spark, Options(str(logs[0]), str(whole[0]), stories=(logs[1]["loop"]["address"],)), said.append
    )

    mine.run()
    steps = list(said)
    mine.run()

    assert "writing timelines" in steps and steps == said
    assert {logs[1]["loop"]["address"]} == {row["about"] for row in rows(spark, whole[0], "stories")}
