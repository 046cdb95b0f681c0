"""
The alarms and the dashboard that are shipped: each metric exists, each expression is PromQL, each alarm is
in the runbook.
"""

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_docs import rows
from tests.support.examples import TOP

RULES, TESTS = TOP / "etc/prometheus/msgnode.rules.yml", TOP / "etc/prometheus/msgnode.rules.test.yml"
DASHBOARD = json.loads((TOP / "etc/grafana/msgnode.json").read_text())
RUNBOOK = (TOP / "docs/runbook.md").read_text("utf-8")
NAME = re.compile(r"\b(?:msgnode|process|python)_[a-z_]+[a-z]\b")
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is missing: Debian's package prometheus has it"
)


def promtool(*arguments: object) -> None:
    done = subprocess.run(
        ["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def known_metrics() -> set[str]:
    """
    The metrics that the documents have; other tests compare these with what a node answers.
    """
    chapters = ("## Monitoring", "## Monitoring of links", "## Monitoring of a cluster")
    cells = [row for chapter in chapters for row in rows("docs/operations.md", chapter)]
    names = {row[0].strip("`") for row in cells}
    histograms = {row[0].strip("`") for row in cells if row[1].startswith("histogram")}
    parts = {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}
    return names - histograms | parts


def unknown(text: str) -> set[str]:
    return set(NAME.findall(text)) - known_metrics()


def alarms() -> list[str]:
    return re.findall(r"^ +- alert: (\w+)$", RULES.read_text(), re.M)


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def test_every_metric_of_an_alarm_exists() -> None:
    """
    An alarm on a metric that was renamed would never ring.
    """
    wanted = "\n".join(
        line for line in RULES.read_text().splitlines() if "runbook" not in line and "#" not in line
    )

    assert unknown(wanted) == set()


def test_every_alarm_has_its_chapter_in_the_runbook() -> None:
    """
    With what to type, in the order of the rules; and each is tried by the tests of the rules.
    """
    chapters = re.findall(r"^## (\w+)$", RUNBOOK, re.M)
    linked = re.findall(r"runbook: docs/runbook\.md#(\w+)", RULES.read_text())

    assert (10, alarms()) == (len(alarms()), chapters)
    assert [name.lower() for name in alarms()] == linked
    assert set(alarms()) <= set(re.findall(r"alertname: (\w+)\n +exp_alerts", TESTS.read_text()))
    for part in re.split(r"^## ", RUNBOOK, flags=re.M)[1:]:
        assert re.search(r"^    \S", part, re.M), part


@needs_promtool
def test_the_alarms_ring_when_they_should() -> None:
    """
    promtool takes the rules, and runs their tests: a node that is well rings none, one with troubles each.
    """
    promtool("check", "rules", RULES)
    promtool("test", "rules", TESTS)


def test_every_metric_of_the_dashboard_exists() -> None:
    """
    No panel is empty because of a wrong name.
    """
    assert unknown("\n".join(expressions())) == set()
    assert len(expressions()) > 20


@needs_promtool
def test_every_expression_of_the_dashboard_is_promql(tmp_path: Path) -> None:
    """
    With the variables filled in, as Grafana does.
    """
    filled = [text.replace("$job", "msgnode").replace("$instance", ".*") for text in expressions()]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(filled)]
    path = tmp_path / "rules.yml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))

    promtool("check", "rules", path)


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    """
    What Grafana's schema of a dashboard demands: unique ids, panels on a grid of 24 columns that do not
    overlap, queries with unique letters and the data source that is chosen.
    """
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    variables = [each["name"] for each in DASHBOARD["templating"]["list"]]

    assert len(ids) == len(set(ids))
    assert variables == ["datasource", "job", "instance"]
    assert DASHBOARD["schemaVersion"] >= 36 and DASHBOARD["uid"] and DASHBOARD["title"]
    for panel in panels():
        letters = [target["refId"] for target in panel["targets"]]
        assert len(letters) == len(set(letters))
        assert {
            panel["datasource"]["uid"],
            *(target["datasource"]["uid"] for target in panel["targets"]),
        } == {"${datasource}"}
        assert panel["type"] in ("stat", "timeseries") and panel["title"] and panel["description"]
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    assert all(0 <= place["x"] and place["x"] + place["w"] <= 24 for place in places)
    for one, other in itertools.combinations(places, 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert apart or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"], (one, other)
