"""
What a program would have done to the traffic of the past: a line of the traffic log in, a verdict out.

The log holds no bodies, no identities and no clock but its own.  A rule that
asks for what is not there may or may not apply; if that makes a difference,
the line is `undecidable`, and says by which rule.  Nothing is guessed.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from msgnode.message import Message
from msgnode.policy.algorithms import DENY, PERMIT, Outcome
from msgnode.policy.attributes import CLOCK, HEADER, ID, LINK, SIZE, Attribute
from msgnode.policy.conditions import One, holds
from msgnode.policy.context import Context
from msgnode.policy.limits import RateLimits
from msgnode.policy.nodes import Below, Node
from msgnode.policy.obligations import RateLimit, too_large
from msgnode.policy.program import NOT_APPLICABLE, Program
from msgnode.policy.redirects import follow

UNDECIDABLE = "undecidable"
LOGGED = HEADER | ID | SIZE | CLOCK | LINK
_IN_LINE = {"connector", "peer", "session"}  # attributes of the connection that a line has
# Which attributes are wrong when an address was cut short.
_FROM = {"msgFrom", "srcScheme", "srcSPDomain", "srcDomain", "msgType", "interDomain"}
_TO = {"msgTo", "dstScheme", "dstSPDomain", "dstDomain", "msgType", "interDomain"}
OWN = "node"  # the connector of what the node publishes itself, on which none is asked at `in`
# Answers that were given before any policy is asked.
_BEFORE = {400, 401}
# Answers of a policy; what is too long for the node itself is no message in the log.
_BLOCKED = {403, 413, 429, 500, 503}


class NotLogged(Exception):
    """
    A test asked for an attribute that the log does not hold.
    """


class Verdict(Struct, frozen=True):
    """
    What would have become of one message, and what did.

    `effect` is permit, deny, notApplicable or undecidable; `path` the rule
    that decides, or that cannot be decided, and `missing` what it asked for.
    `happened` is `blocked`, `carried`, or `unasked` when it was refused before a policy is asked.
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


class _Line(Context):
    """
    A line of the log in the place of a message.
    """

    __slots__ = ("not_logged", "size")

    not_logged: frozenset[str]
    size: int

    def get(self, attribute: Attribute) -> Any:
        name = attribute.name
        if name in self.not_logged or (attribute.source & ~LOGGED and name not in _IN_LINE):
            raise NotLogged(name)
        return self.size if name == "msgSize" else super().get(attribute)


def judge(
    program: Program, line: Mapping[str, Any], domain: str = "", limits: RateLimits | None = None
) -> Verdict | None:
    """
    What the program says of one line; None if it is not one of a message that a policy could be asked about.

    `domain` is the node's own; without it `interDomain` is not known.
    `limits` are for lines in the order of their time, and tell which are one too many.
    """
    context = _context(line, domain)
    if context is None:
        return None
    happened = _happened(line)
    if happened == "unasked":
        return Verdict(NOT_APPLICABLE, "", happened)
    asked = []
    for direction in _directions(context) if "direction" in program.attributes else ("in",):
        context.direction = direction
        context.values.pop("direction", None)
        asked.append(_judged(program, context, happened, limits))
    # The node asks at each of these places, and one that says no is enough.
    return min(asked, key=lambda verdict: _WEIGHT.index(verdict.effect))


_WEIGHT = (DENY, UNDECIDABLE, PERMIT, NOT_APPLICABLE)


def _directions(context: _Line) -> tuple[str, ...]:
    kind, to = context.message.type.casefold(), context.to
    if to == "mn:/session":
        return ("connect", "in")
    if kind == "subscribe" and to.endswith("/sm"):
        return ("in", "subscribe")
    return ("in",) if to.startswith(("mn:", "domain://", "global:")) else ("in", "out")


def _judged(program: Program, context: _Line, happened: str, limits: RateLimits | None) -> Verdict:
    possible = _Possible()
    effects = possible.several(program.sets, context)
    if len(effects) > 1:
        return Verdict(UNDECIDABLE, possible.unknown, happened, possible.missing)
    effect = next(iter(effects))
    if effect is None:
        return Verdict(NOT_APPLICABLE, "", happened)
    verdict = Verdict(effect, possible.path(effect), happened)
    return _obliged(program, context, verdict, limits) if effect == PERMIT and program.obliges else verdict


def _obliged(program: Program, context: _Line, verdict: Verdict, limits: RateLimits | None) -> Verdict:
    """
    What a permit comes to when it obliges to something that may stop the message after all.
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
        rates = [each for each in decision.obligations if isinstance(each, RateLimit)]
        if rates and limits is None:
            return Verdict(UNDECIDABLE, rates[0].path, happened, "what came before")
        exceeded = limits.take_all(rates, moved)[0] if limits is not None else None
    except NotLogged as why:
        return Verdict(UNDECIDABLE, path, happened, str(why))
    if exceeded is not None and exceeded.on_exceed == "deny":
        return Verdict(DENY, exceeded.path, happened)
    return verdict


def _context(line: Mapping[str, Any], domain: str) -> _Line | None:
    type_, from_, to, id = (line.get(key) for key in ("type", "from", "to", "id"))
    if line.get("kind") != "message" or not isinstance(type_, str) or not isinstance(to, str):
        return None
    if not isinstance(from_, str) or id is None or line.get("connector") == OWN:
        return None
    message = Message(id, type_, to, from_)
    moment, size = line.get("time"), line.get("bytes")
    context = _Line(
        message,
        "in",
        domain=domain,
        now=lambda: datetime.fromtimestamp((moment or 0) / 1e9),
        connector=str(line.get("connector") or ""),
        peer=str(line.get("peer") or ""),
        session=str(line.get("session") or ""),
    )
    context.size = size if isinstance(size, int) else 0
    lost = set() if domain else {"interDomain"}
    if moment is None:
        lost |= {"time", "date", "weekday"}
    if size is None:
        lost.add("msgSize")
    if from_.endswith("…") or to == "mn:/session":
        lost |= _FROM  # cut short, or without the token it came with
    if to.endswith(("…", " more")):
        lost |= _TO
    if type_.endswith("…"):
        lost.add("actionType")
    if isinstance(id, str) and id.endswith("…"):
        lost.add("msgId")
    context.not_logged = frozenset(lost)
    return context


def _happened(line: Mapping[str, Any]) -> str:
    if line.get("outcome") != "refused":
        return "carried"
    code = line.get("code")
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

    def several(self, below: Below, context: _Line) -> set[str | None]:
        """
        The effects that sets may have: that of the first one which has any.
        """
        found: set[str | None] = {None}
        for node in _found(below, context):
            if None not in found:
                break
            found = (found - {None}) | self._one(node, context)
        return found

    def _one(self, node: Node, context: _Line) -> set[str | None]:
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

    def _combined(self, node: Node, context: _Line) -> set[str | None]:
        assert node.algorithm is not None
        found: set[str | None] = {None}
        for child in _found(node.below, context):
            step = self._one(child, context)
            found = {node.algorithm.step(before, effect) for before in found for effect in step}
        if None in found and node.otherwise is not None:
            found = (found - {None}) | {self._seen(node.otherwise, False)}
        return found

    def _tested(self, node: Node, context: _Line) -> bool | None:
        """
        Does it apply?  None if the log cannot tell.
        """

        def test(one: One) -> bool | None:
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


def _found(below: Below, context: _Line) -> Sequence[Node]:
    """
    The nodes that the index finds; all, if it needs to know what the log cannot tell.
    """
    try:
        return below.find(context)
    except NotLogged:
        return below.nodes
