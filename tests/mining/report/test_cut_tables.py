"""
What the report says about rows that it does not show.
"""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from msgnode.mining.pipeline.run import MiningRun, Options
from tests.mining.rows import START, message

TARGETS = 1100  # each of them is a cause of its own


def scan() -> Iterable[dict[str, Any]]:
    """
    One sender is refused at many destinations, twice at each; later others are refused once, by types.
    """
    for at in range(2 * TARGETS):
        to = f"hyperty://host{at // 2}.example/x"
        yield message(at, "runtime://scan.example/a", to, outcome="refused", code=403)
    for at, type in enumerate(("read", "create", "delete")):
        yield message(10_000 + at, "runtime://late.example/b", type=type, outcome="refused", code=403)


@pytest.fixture(scope="module")
def sections(spark, tmp_path_factory):
    logs = tmp_path_factory.mktemp("cut")
    for line in scan():
        hour = (line["time"] - START) // 3_600_000_000_000
        line = {name: value for name, value in line.items() if name not in ("date", "hour")}
        with (logs / f"traffic-mn1-20260731T{hour:02}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
    result = MiningRun(spark, Options(str(logs), str(logs / "out")), lambda _: None).run()
    with open(result.report, encoding="utf-8") as file:
        text = file.read().partition('type="application/json">')[2].partition("</script>")[0]
    return {section["id"]: section for section in json.loads(text)["sections"]}


def test_who_sent_most_of_the_errors_is_a_share_of_all_of_them(sections):
    """
    The share of a domain is one of all messages, also of those with the last of 1,103 causes.
    """
    [found] = [each for each in sections["overview"]["striking"] if "refused with 403" in each[1]]

    assert "2,203 messages" == found[0]
    assert "99.9 % from scan.example" in found[1]


def test_timeline_that_was_cut_does_not_say_how_many_lines_there_are(sections):
    """
    Of a timeline 500 lines are kept: how many more there are is not known, only that there are some.
    """
    [told] = [each for each in sections["stories"]["tables"] if "scan.example" in each["title"]]

    assert told["more"].startswith("At least 300 more rows are not shown.")
