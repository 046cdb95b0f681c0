"""
The file of service level objectives: what is accepted, and what is said about the rest.
"""

import dataclasses

import pytest

from msgnode.mining.mined.slo_file import SLO, BadSLO, parse_slos
from tests.support.examples import TOP

GOOD = """
[[slo]]
name = "reads are answered"
share = 0.99
within_ms = 500
type = ["READ"]
domain = "Example.org"

[[slo]]
name = "nothing is refused"
share = 0.999
not_refused = true
except_codes = [400]
days = 7
"""


def test_objectives_of_both_kinds():
    """
    An objective is about answers in time or about refusals; types and domains are in lower case.
    """
    first, second = parse_slos(GOOD, "slo.toml")

    assert SLO("reads are answered", 0.99, 500, type=("read",), domain=("example.org",)) == first
    assert SLO("nothing is refused", 0.999, not_refused=True, except_codes=(400,), days=7) == second


def test_the_example_in_the_documentation_is_valid():
    """
    The example in docs/mining.md is a file that the tool takes, and has every key.
    """
    text = (TOP / "docs/mining.md").read_text("utf-8")
    example = text[text.index("[[slo]]") :].partition("```")[0]

    assert ["reads are answered", "little is refused"] == [
        slo.name for slo in parse_slos(example, "mining.md")
    ]
    assert all(f"\n{field.name} = " in example for field in dataclasses.fields(SLO))


@pytest.mark.parametrize(
    "text, said",
    [
        ("[[slo]\n", "slo.toml:1: "),
        ("", "slo.toml:1: slo: missing; expected one table [[slo]] or more"),
        ("\nslo = 3\n", "slo.toml:2: slo: expected tables with the heading [[slo]]"),
        ("[[slos]]\nname = 'a'\n", "slo.toml:1: slos: unknown; the file has only tables [[slo]]"),
        ("[[slo]]\nname = 'a'\nshare = 99\n", "slo.toml:3: share: expected a number above 0 and below 1"),
        ("[[slo]]\nname = 'a'\nwithin_ms = 1\n", "slo.toml:1: share: missing"),
        (
            "[[slo]]\nname = 'a'\nshare = 0.9\n",
            "slo.toml:1: within_ms: expected either within_ms or not_refused",
        ),
        (
            "[[slo]]\nname = 'a'\nshare = 0.9\nwithin_ms = 200_000\n",
            "slo.toml:4: within_ms: expected milliseconds above 0, at most 120000, not 200000",
        ),
        (GOOD + "wihtin_ms = 3\n", "slo.toml:15: wihtin_ms: unknown; known are name, share, within_ms"),
        (
            GOOD.replace("nothing is refused", "reads are answered"),
            "slo.toml:10: name: 'reads are answered' is",
        ),
        (
            GOOD.replace("days = 7", "days = 0.5"),
            "slo.toml:14: days: expected whole days from 1 to 366, not 0.5",
        ),
        (
            GOOD.replace("type = ", "except_codes = [4]\ntype = "),
            "slo.toml:6: except_codes: only for not_refused",
        ),
    ],
)
def test_a_broken_file_is_refused_with_line_and_key(text, said):
    """
    What is wrong is named with its line and its key, and what came.
    """
    with pytest.raises(BadSLO) as refused:
        parse_slos(text, "slo.toml")

    assert str(refused.value).startswith(said)
