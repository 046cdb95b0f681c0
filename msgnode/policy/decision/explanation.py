"""
Explanations of decisions: each set, policy and rule, and each test with the value it saw.
"""

import json
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from msgnode.policy.decision.algorithms import first_applicable
from msgnode.policy.decision.context import Context
from msgnode.policy.decision.decision import Decision, Outcome
from msgnode.policy.decision.problems import Place, pointer
from msgnode.policy.decision.tree import Children, PolicyNode

Explained = dict[str, Any]


class Explanation(Struct, frozen=True):
    """
    An explanation of a decision.

    `tree` has an entry for each set, with entries for its policies, and so on. `skipped` has the paths that
    the index excluded. `attributes` has the values that were read.
    """

    decision: Decision
    revision: str
    tree: list[Explained]
    skipped: list[str]
    attributes: dict[str, Any]

    def to_builtins(self) -> Explained:
        """
        The explanation as JSON values.
        """
        decision = self.decision
        return {
            "effect": decision.effect,
            "path": decision.path,
            "obligations": [f"{type(each).__name__} of {each.path}" for each in decision.obligations],
            "remember": decision.remember,
            "unenforced": [{"effect": each.effect, "path": each.path} for each in decision.unenforced],
            "revision": self.revision,
            "attributes": self.attributes,
            "skipped": self.skipped,
            "sets": self.tree,
        }

    def __str__(self) -> str:
        by = f" by {self.decision.path}" if self.decision.path else ": no rule applies"
        lines = [f"{self.decision.effect}{by}"]
        for each in self.decision.unenforced:
            lines.append(f"not enforced: {each.effect} by {each.path}")
        for node in self.tree:
            lines += _lines(node, "  ")
        if self.skipped:
            few = ", ".join(self.skipped[:5]) + (", ..." if len(self.skipped) > 5 else "")
            lines.append(f"skipped by their targets: {len(self.skipped)} ({few})")
        return "\n".join(lines)


def explain(sets: Children, context: Context) -> tuple[Outcome | None, list[Explained], list[str]]:
    """
    The outcome, which equals that of `decide`, an entry for each node, and the paths that the index skips.
    """
    skipped: list[str] = []
    return *_several(sets, first_applicable, context, skipped, ()), skipped


def _several(
    below: Children, combine: Any, context: Context, skipped: list[str], above: Place
) -> tuple[Outcome | None, list[Explained]]:
    entries: dict[str, Explained] = {}

    def decide(node: PolicyNode, context: Context) -> Outcome | None:
        outcome, entries[node.path] = _one(node, context, skipped, (*above, *node.place))
        return outcome

    found = below.find(context)
    outcome = combine(found, decide, context)
    looked_at = set(found)
    for node in below.nodes:
        if node not in looked_at:
            skipped.append(node.path)
        elif node.path not in entries:
            entries[node.path] = {node.kind: node.path, "outcome": "not reached"}
    return outcome, [entries[node.path] for node in found]


def _one(
    node: PolicyNode, context: Context, skipped: list[str], place: Place
) -> tuple[Outcome | None, Explained]:
    entry: Explained = {node.kind: node.path, "at": pointer(place), "target": node.target.explain(context)}
    outcome: Outcome | None = None
    if node.outcome is not None:
        if node.target.test(context):
            entry["condition"] = node.condition.explain(context)
            outcome = node.outcome if node.condition.test(context) else None
    elif node.target.test(context):
        assert node.algorithm is not None
        entry["algorithm"] = node.algorithm.name
        below, entry["below"] = _several(node.below, node.algorithm.combine, context, skipped, place)
        outcome = node.finish(below)
    entry["outcome"] = outcome.effect if outcome is not None else "notApplicable"
    if not node.enforce:
        entry["enforce"] = False
        if outcome is not None:
            context.unenforced.append(outcome)
        outcome = None
    return outcome, entry


def _lines(entry: Explained, indent: str) -> Iterator[str]:
    kind = next(iter(entry))
    note = "" if entry.get("enforce", True) else ", not enforced"
    yield f"{indent}{kind} {entry[kind]}: {entry['outcome']}{note}"
    for name in ("target", "condition"):
        if name in entry and entry[name] != {"test": "always", "result": True}:
            yield from _tests(entry[name], f"{indent}  {name}: ")
    for below in entry.get("below", ()):
        yield from _lines(below, indent + "  ")


def _tests(entry: Explained, indent: str) -> Iterator[str]:
    """
    The lines for a condition, one for each test.
    """
    mark = "yes" if entry["result"] else "no"
    if "attribute" in entry:
        value = "missing" if entry["value"] is None else _short(entry["value"])
        wanted = _short(entry["parameter"])
        yield f"{indent}{entry['attribute']} {entry['operator']} {wanted}: {mark}, the value is {value}"
    elif "test" in entry:
        yield f"{indent}always"
    else:
        word = next(iter(entry))
        yield f"{indent}{word} of: {mark}" if word != "not" else f"{indent}not: {mark}"
        parts = entry[word] if isinstance(entry[word], list) else [entry[word]]
        blank = " " * (len(indent) + 2)
        for part in parts:
            yield from _tests(part, blank)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 100 else text[:99] + "…"
