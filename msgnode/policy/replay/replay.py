"""
What a program would have done to the traffic of the past: a line of the traffic log in, a verdict out.

The log holds no bodies, no identities and no clock but its own.  A rule that
asks for what is not there may or may not apply; if that makes a difference,
the line is `undecidable`, and says by which rule.  Nothing is guessed.
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

# Answers that were given before any policy is asked.
_BEFORE = {400, 401}
# Answers of a policy; what is too long for the node itself is no message in the log.
_BLOCKED = {403, 413, 429, 500, 503}


class Verdict(Struct, frozen=True):
    """
    The outcome that one message would have had, and the one it had.

    `effect` is permit, deny, notApplicable or undecidable; `path` the rule
    that decides, or that cannot be decided, and `missing` what it asked for.
    `happened` is `blocked`, `carried`, or `unasked` when no policy is asked, or it was refused before one is.
    """

    effect: str
    path: str
    happened: str
    missing: str = ""

    def changes(self, default: str = PERMIT) -> bool:
        """
        Would it have gone differently, as far as is certain?  `default` is for what no rule applies to.
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
    What the program says of one line; None if it is not one of a message that a policy could be asked about.

    `domain` is the node's own; without it `interDomain` is not known.
    `limits` are for lines in the order of their time, and tell which are one too many.
    `default` is for what no rule applies to.
    """
    found = places(line, domain, "direction" in program.attributes)
    happened = _happened(line)
    if found is None or (not found and line.get("connector") == "node"):
        return None
    if happened == "unasked" or not found:
        return Verdict(NOT_APPLICABLE, "", "unasked")
    charged: list[RateLimit] = []
    asked = [_judged(program, place, happened, limits, charged) for place in found]
    # The node asks at each of these places, and one that says no is enough.
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
    What a permit comes to when it obliges to something that may stop the message after all.

    What it was `charged` with at another place it is not charged with again.
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
    Follows all outcomes that a line leaves possible.
    """

    def __init__(self) -> None:
        self.unknown = self.missing = ""
        self._paths: dict[str, str] = {}
        self._maybe: dict[str, str] = {}

    def path(self, effect: str) -> str:
        return self._paths.get(effect) or self._maybe.get(effect, "")

    def several(self, below: Children, context: LogContext) -> set[str | None]:
        """
        The effects that sets may have: that of the first one which has any.
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
        Does it apply?  None if the log cannot tell.
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
    The nodes that the index finds; all, if it needs to know what the log cannot tell.
    """
    try:
        return below.find(context)
    except NotLogged:
        return below.nodes
