"""
Replay of the traffic log: each line gets the verdict that a program would have given.

The log has no bodies and no identities. A rule that tests them may apply or not; if the decision depends on
it, the line is `undecidable`, with the path of that rule.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from msgnode.policy.decision.conditions import AttributeTest, holds
from msgnode.policy.decision.decision import DENY, NOT_APPLICABLE, PERMIT, Outcome
from msgnode.policy.decision.obligations import RateLimit, too_large
from msgnode.policy.decision.rates import RateLimits
from msgnode.policy.decision.redirects import follow
from msgnode.policy.decision.tree import Children, PolicyNode
from msgnode.policy.language.program import Program
from msgnode.policy.replay.log_context import LogContext, NotLogged, places

UNDECIDABLE = "undecidable"

# Codes of refusals before any policy is evaluated.
_BEFORE = {400, 401}
# Codes of refusals by a policy. A message too long for the node has no line of its own in the log.
_BLOCKED = {403, 413, 429, 500, 503}


class Verdict(Struct, frozen=True):
    """
    The decision that a message would have had, and its actual outcome.

    `effect` is permit, deny, notApplicable or undecidable. `path` is the rule that decides or is unknown;
    `missing` is the attribute that it needs. `happened` is `blocked`, `carried`, or `unasked` if no policy
    was evaluated.
    """

    effect: str
    path: str
    happened: str
    missing: str = ""

    def changes(self, default: str = PERMIT) -> bool:
        """
        Would the outcome certainly have been different? `default` is the effect if no rule applies.
        """
        effect = default if self.effect == NOT_APPLICABLE else self.effect
        return (effect, self.happened) in ((DENY, "carried"), (PERMIT, "blocked"))


def judge(
    program: Program,
    line: Mapping[str, Any],
    domain: str = "",
    limits: RateLimits | None = None,
    default: str = PERMIT,
) -> Verdict | None:
    """
    The verdict for a line; None if the line is not one of a message that policies apply to.

    `domain` is the node's own; without it, `interDomain` is unknown. `limits` needs lines in the order of
    time, and decides which are too many. `default` is the effect if no rule applies.
    """
    found = places(line, domain, "direction" in program.attributes)
    happened = _happened(line)
    if found is None or (not found and line.get("connector") == "node"):
        return None
    if happened == "unasked" or not found:
        return Verdict(NOT_APPLICABLE, "", "unasked")
    charged: list[RateLimit] = []
    asked = [_judged(program, place, happened, limits, charged) for place in found]
    # Every enforcement point must permit the message.
    weight = (DENY, NOT_APPLICABLE, UNDECIDABLE, PERMIT) if default == DENY else _WEIGHT
    return min(asked, key=lambda verdict: weight.index(verdict.effect))


_WEIGHT = (DENY, UNDECIDABLE, PERMIT, NOT_APPLICABLE)


def _judged(
    program: Program, context: LogContext, happened: str, limits: RateLimits | None, charged: list[RateLimit]
) -> Verdict:
    possible = _Possible()
    effects = possible.several(program.sets, context)
    if len(effects) > 1:
        return Verdict(UNDECIDABLE, possible.unknown, happened, possible.missing)
    effect = next(iter(effects))
    if effect is None:
        return Verdict(NOT_APPLICABLE, "", happened)
    verdict = Verdict(effect, possible.path(effect), happened)
    if effect != PERMIT or not program.obliges:
        return verdict
    return _obliged(program, context, verdict, limits, charged)


def _obliged(
    program: Program,
    context: LogContext,
    verdict: Verdict,
    limits: RateLimits | None,
    charged: list[RateLimit],
) -> Verdict:
    """
    The verdict for a permit with obligations that may refuse the message.

    A rate limit in `charged`, which counted at another enforcement point, does not count again.
    """
    path, happened = verdict.path, verdict.happened
    try:
        decision, moved = follow(program.decide, context, program.decide(context))
        if decision.effect != PERMIT:
            effect = NOT_APPLICABLE if decision.effect == NOT_APPLICABLE else DENY
            return Verdict(effect, decision.path or path, happened)
        large = too_large(decision.obligations, context.size)
        if large is not None:
            return Verdict(DENY, large.path, happened)
        due = [each for each in decision.obligations if isinstance(each, RateLimit)]
        rates = [each for each in due if not any(each is other for other in charged)]
        charged += rates
        if rates and limits is None:
            return Verdict(UNDECIDABLE, rates[0].path, happened, "what came before")
        exceeded = limits.take_all(rates, moved)[0] if limits is not None else None
    except NotLogged as why:
        return Verdict(UNDECIDABLE, path, happened, str(why))
    if exceeded is not None and exceeded.on_exceed == "deny":
        return Verdict(DENY, exceeded.path, happened)
    return verdict


def _happened(line: Mapping[str, Any]) -> str:
    if line.get("outcome") != "refused":
        return "carried"
    code = line.get("code")
    if not isinstance(code, int):
        return "carried"
    if code in _BEFORE:
        return "unasked"
    return "blocked" if code in _BLOCKED else "carried"


class _Possible:
    """
    Computes all decisions that are possible with what a line has.
    """

    def __init__(self) -> None:
        self.unknown = self.missing = ""
        self._paths: dict[str, str] = {}
        self._maybe: dict[str, str] = {}

    def path(self, effect: str) -> str:
        return self._paths.get(effect) or self._maybe.get(effect, "")

    def several(self, below: Children, context: LogContext) -> set[str | None]:
        """
        The effects that are possible for several sets: the first set with an effect decides.
        """
        found: set[str | None] = {None}
        for node in _found(below, context):
            if None not in found:
                break
            found = (found - {None}) | self._one(node, context)
        return found

    def _one(self, node: PolicyNode, context: LogContext) -> set[str | None]:
        applies = self._tested(node, context)
        if applies is False:
            return {None}
        if node.outcome is not None:
            found: set[str | None] = {self._seen(node.outcome, applies is True)}
        else:
            found = self._combined(node, context)
        if applies is None:
            found = found | {None}
        return found if node.enforce else {None}

    def _seen(self, outcome: Outcome, certain: bool) -> str:
        paths = self._paths if certain else self._maybe
        paths.setdefault(outcome.effect, outcome.path)
        return outcome.effect

    def _combined(self, node: PolicyNode, context: LogContext) -> set[str | None]:
        assert node.algorithm is not None
        found: set[str | None] = {None}
        for child in _found(node.below, context):
            step = self._one(child, context)
            found = {node.algorithm.step(before, effect) for before in found for effect in step}
        if None in found and node.otherwise is not None:
            found = (found - {None}) | {self._seen(node.otherwise, False)}
        return found

    def _tested(self, node: PolicyNode, context: LogContext) -> bool | None:
        """
        Does a node apply? None if the log does not have the attributes.
        """

        def test(one: AttributeTest) -> bool | None:
            try:
                return one.test(context)
            except NotLogged as why:
                missing.append(str(why))
                return None

        missing: list[str] = []
        target = holds(node.target, test)
        applies = target if target is False else _and(target, holds(node.condition, test))
        if applies is None and not self.unknown:
            self.unknown, self.missing = node.path, missing[0]
        return applies


def _and(first: bool | None, second: bool | None) -> bool | None:
    if first is False or second is False:
        return False
    return None if first is None or second is None else True


def _found(below: Children, context: LogContext) -> Sequence[PolicyNode]:
    """
    The children that the index finds; all, if the index needs an attribute that is not logged.
    """
    try:
        return below.find(context)
    except NotLogged:
        return below.nodes
