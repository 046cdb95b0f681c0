"""
Several policies replayed over stored lines: what each would have decided, and where they differ.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from msgnode.mining.analyses.policy_replay import UNCHANGED, Replay, change
from msgnode.mining.report.units import count, share

MAX_POLICIES = 8
MAX_GROUPS = 100_000  # different combinations of decisions


@dataclass(frozen=True)
class Decisions:
    """
    How many messages the policies decided in the same way: for each policy its change, effect, rule and
    missing attribute.
    """

    each: tuple[tuple[str, str, str, str], ...]
    number: int


def replayed(messages: DataFrame, policies: Sequence[Replay]) -> list[Decisions]:
    """
    The decisions of the policies on these messages, the most frequent first. The messages are read once.
    """
    rows = messages.withColumn("why", F.lit(None).cast("string"))
    keys = []
    for at, policy in enumerate(policies):
        name = f"verdict_{at}"
        rows = policy.decided(rows).withColumnRenamed("verdict", name)
        fields = [
            F.expr(change(name)).alias("change"),
            *(F.col(f"{name}.{each}") for each in ("effect", "rule", "missing")),
        ]
        keys.append(F.when(F.col(name).isNotNull(), F.struct(*fields)).alias(f"d{at}"))
    names = [f"d{at}" for at in range(len(policies))]
    counted = rows.select(*keys).groupBy(*names).agg(F.count("*").alias("number"))
    found = counted.orderBy(F.desc("number"), *names).limit(MAX_GROUPS).collect()
    return [
        Decisions(tuple(_one(row[name]) for name in names), row.number)
        for row in found
        if any(row[name] for name in names)
    ]


def _one(found: Any) -> tuple[str, str, str, str]:
    """
    A decision as text; empty if the policy has none.
    """
    if found is None:
        return "", "", "", ""
    return found.change, found.effect or "", found.rule or "", found.missing or ""


def text(found: list[Decisions], names: list[str]) -> list[str]:
    """
    The decisions as lines of text: each policy, then where they differ.
    """
    total = sum(each.number for each in found)
    lines = [count(total, "message")]
    for at, name in enumerate(names):
        lines += ["", f"{name}:"]
        lines += [
            f"  {word}: {number:,} ({share(number, total)})" for word, number in by_change(found, at).items()
        ]
        lines += [f"    {rule}" for rule in _rules(found, at)]
    for at, name in enumerate(names[1:], 1):
        differing = differences(found, 0, at)
        lines += ["", f"{names[0]} and {name} differ in {count(sum(differing.values()), 'message')}"]
        for (one, other), number in list(differing.items())[:20]:
            lines.append(f"  {number:,}: {one}, but {other}")
    return lines


def by_change(found: list[Decisions], at: int) -> dict[str, int]:
    """
    How many messages a policy leaves as they were, would block, would carry, or cannot decide.
    """
    sums: dict[str, int] = defaultdict(int)
    for each in found:
        sums[each.each[at][0] or "no decision"] += each.number
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def differences(found: list[Decisions], one: int, other: int) -> dict[tuple[str, str], int]:
    """
    How many messages two policies decide differently, by both changes and rules.
    """
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for each in found:
        first, second = each.each[one], each.each[other]
        if first[0] != second[0]:
            sums[_said(first), _said(second)] += each.number
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def as_dict(found: list[Decisions], names: list[str]) -> dict[str, Any]:
    keys = ("change", "effect", "rule", "missing")
    return {
        "policies": names,
        "decisions": [
            {"number": each.number, "each": [dict(zip(keys, one, strict=True)) for one in each.each]}
            for each in found
        ],
    }


def _rules(found: list[Decisions], at: int) -> list[str]:
    sums: dict[str, int] = defaultdict(int)
    for each in found:
        if each.each[at][0] not in ("", UNCHANGED):
            sums[_said(each.each[at])] += each.number
    ordered = sorted(sums.items(), key=lambda item: -item[1])
    rest = sum(number for _, number in ordered[10:])
    more = [f"{rest:,}: by {count(len(ordered) - 10, 'other rule')}"] if rest else []
    return [f"{number:,}: {what}" for what, number in ordered[:10]] + more


def _said(one: tuple[str, str, str, str]) -> str:
    change, effect, rule, missing = one
    if not change:
        return "no decision"
    default = ", for no rule applies" if effect == "notApplicable" else f" by the default {effect}"
    why = f", without {missing}" if missing else f" by {rule}" if rule else default
    return f"{change}{why}"
