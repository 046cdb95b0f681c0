"""
The report of a replay: verdicts, counted.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from msgnode.policy.decision.decision import PERMIT
from msgnode.policy.replay.replay import Verdict


class Report:
    """
    The counts of the verdicts on many lines.
    """

    def __init__(self, samples: int = 5, default: str = PERMIT) -> None:
        self._default = default
        self.effects: Counter[tuple[str, str]] = Counter()
        self.rules: Counter[tuple[str, str, str]] = Counter()
        self.changed: Counter[tuple[str, str]] = Counter()
        self.samples: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        self.unread = 0
        self._most = samples

    def add(self, verdict: Verdict | None, line: Mapping[str, Any]) -> None:
        if verdict is None:
            self.unread += 1
            return
        self.effects[verdict.effect, verdict.happened] += 1
        if verdict.path:
            self.rules[verdict.path, verdict.effect, verdict.missing] += 1
        if verdict.changes(self._default):
            key = (verdict.path, verdict.effect)
            self.changed[key] += 1
            kept = self.samples.setdefault(key, [])
            if len(kept) < self._most:
                kept.append(line)

    def to_builtins(self) -> dict[str, Any]:
        """
        The report as JSON values.
        """
        return {
            "messages": sum(self.effects.values()),
            "unread": self.unread,
            "effects": [
                {"effect": effect, "happened": happened, "messages": count}
                for (effect, happened), count in sorted(self.effects.items())
            ],
            "rules": [
                {"path": path, "effect": effect, "messages": count}
                | ({"missing": missing} if missing else {})
                for (path, effect, missing), count in self.rules.most_common()
            ],
            "changes": [
                {"path": path, "effect": effect, "messages": count, "samples": self.samples[path, effect]}
                for (path, effect), count in self.changed.most_common()
            ],
        }
