"""
Dry run: policies decide in addition to the live ones, and their decisions are only counted.
"""

from collections import deque
from typing import Any

from msgnode.policy.decision.context import Context
from msgnode.policy.language.program import Program
from msgnode.structures.bounded_cache import BoundedCache

MAX_EXAMPLES = 20
MAX_REMEMBERED = 8192


class DryRun:
    """
    A program that decides in addition to the live one, without effect.

    `different`: how often its decision differed, out of `decided`.
    """

    def __init__(self, program: Program) -> None:
        self.decided = self.different = 0
        self.program = program
        self._recent: BoundedCache[object, tuple[str, str]] = BoundedCache(MAX_REMEMBERED)
        self._examples: deque[dict[str, Any]] = deque(maxlen=MAX_EXAMPLES)
        self._by_rule: dict[str, int] = {}

    def compare(self, key: object, context: Context, effect: str) -> None:
        """
        Decides, and compares with the `effect` of the live policies.
        """
        self.decided += 1
        found = self._recent.get(key)
        if found is None:
            found = self._decide(key, context)
        other, path = found
        if other == effect:
            return
        self.different += 1
        rule = path or "none"
        self._by_rule[rule] = self._by_rule.get(rule, 0) + 1
        message = context.message
        self._examples.append(
            {
                "id": message.id,
                "type": message.type,
                "from": message.from_[:200],
                "to": context.to[:200],
                "point": context.direction,
                "live": effect,
                "trial": other,
                "rule": path,
            }
        )

    def _decide(self, key: object, context: Context) -> tuple[str, str]:
        try:
            decision = self.program.decide(context)
        except Exception as why:  # a dry run is meant to find such failures
            return "indeterminate", f"{type(why).__name__}: {why}"[:200]
        found = decision.effect, decision.path
        if decision.remember:
            self._recent.put(key, found)
        return found

    def report(self) -> dict[str, Any]:
        return {
            "revision": self.program.revision,
            "decided": self.decided,
            "different": self.different,
            "rules": self._by_rule,
            "examples": list(self._examples),
        }
