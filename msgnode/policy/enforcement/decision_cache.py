"""
Verdicts: what the live policies said, remembered where only a message's header counts.
"""

from msgnode.policy.decision.decision import PERMIT, Decision
from msgnode.policy.enforcement.decision_log import RuleCounter
from msgnode.policy.language.program import Program

MAX_REMEMBERED = 8192  # outcomes; twice as many, while the older half is still asked for
MAX_KEY_CHARS = 1024  # characters of from, to and type together


class CachedDecision:
    """
    A decision, and what follows from it here.

    `plain`: the message may go on, and nothing else is to be done.
    """

    __slots__ = ("decision", "permits", "plain", "tally")

    def __init__(self, decision: Decision, passes: bool, tally: RuleCounter) -> None:
        self.decision = decision
        self.permits = decision.effect == PERMIT
        self.plain = passes and not decision.obligations and not decision.unenforced
        self.tally = tally


class DecisionCache:
    """
    The policies that are live, and what is remembered of their outcomes.
    """

    def __init__(self, program: Program, number: int) -> None:
        self.program = program
        self.number = number
        self.recent: dict[object, CachedDecision] = {}
        self._older: dict[object, CachedDecision] = {}

    def recall(self, key: object) -> CachedDecision | None:
        """
        What is not among the recent ones, and was not too long ago.
        """
        verdict = self._older.get(key)
        if verdict is not None:
            self.remember(key, verdict)
        return verdict

    def remember(self, key: object, verdict: CachedDecision) -> None:
        if len(self.recent) >= MAX_REMEMBERED:
            self.recent, self._older = {}, self.recent
        self.recent[key] = verdict
