"""
Requests for decisions, and the cache of decisions that depend on a message's header only.
"""

from msgnode.policy.decision.context import Context
from msgnode.policy.decision.decision import PERMIT, Decision
from msgnode.policy.enforcement.decision_log import RuleCounter
from msgnode.policy.language.program import Program
from msgnode.protocol.message import Message
from msgnode.sessions.session import Session

MAX_REMEMBERED = 8192  # decisions; twice as many while the older half is still in use
MAX_KEY_CHARS = 1024  # characters of from, to and type together


class CachedDecision:
    """
    A decision, with its counter.

    `plain`: the message may pass, and has no obligations.
    """

    __slots__ = ("counter", "decision", "permits", "plain")

    def __init__(self, decision: Decision, passes: bool, counter: RuleCounter) -> None:
        self.decision = decision
        self.permits = decision.effect == PERMIT
        self.plain = passes and not decision.obligations and not decision.unenforced
        self.counter = counter


class DecisionCache:
    """
    The live policies, version `number`, and a cache of their decisions.
    """

    def __init__(self, program: Program, number: int) -> None:
        self.program = program
        self.number = number
        self.recent: dict[object, CachedDecision] = {}
        self._older: dict[object, CachedDecision] = {}

    @property
    def size(self) -> int:
        """
        The number of decisions that are remembered.
        """
        return len(self.recent) + len(self._older)

    def recall(self, key: object) -> CachedDecision | None:
        """
        A decision that is no longer among the recent ones, but was a short time ago.
        """
        verdict = self._older.get(key)
        if verdict is not None:
            self.remember(key, verdict)
        return verdict

    def remember(self, key: object, verdict: CachedDecision) -> None:
        if len(self.recent) >= MAX_REMEMBERED:
            self.recent, self._older = {}, self.recent
        self.recent[key] = verdict


class PolicyRequest:
    """
    A request for a decision: one message at one policy point, and its result.

    `session` is the sender's, at `out` the recipient's. `count`: the number of addresses to which the message
    is sent. `micros` is the duration of the decision, 0 if it was cached. `redirected`: a policy has changed
    the message's destination; no policy may do so again. `context` and `verdict` are set when they are
    needed.
    """

    __slots__ = (
        "context",
        "count",
        "live",
        "message",
        "micros",
        "point",
        "redirected",
        "session",
        "verdict",
    )
    context: Context
    verdict: CachedDecision

    def __init__(
        self,
        live: DecisionCache,
        point: str,
        message: Message,
        session: Session | None,
        count: int,
        verdict: CachedDecision | None = None,
    ) -> None:
        self.live = live
        self.point = point
        self.message = message
        self.session = session
        self.count = count
        self.micros = 0
        self.redirected = False
        if verdict is not None:
            self.verdict = verdict
