"""
Policy enforcement: asks the live policies for a decision and carries it out.

One method, `check`, serves every point of points.py. It returns if the message may pass, or raises Blocked,
and the sender gets an error. An exception during a decision counts as a refusal. Decisions that depend only
on a message's header are cached until other policies become live (decision_cache.py).
"""

from collections.abc import Callable
from copy import copy
from datetime import datetime
from secrets import token_hex
from time import perf_counter_ns, time_ns
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from msgnode.config.schema import Config
from msgnode.policy.decision.context import Context
from msgnode.policy.decision.decision import INDETERMINATE, NOT_APPLICABLE, PERMIT, Decision
from msgnode.policy.decision.rates import RateCounters
from msgnode.policy.enforcement.context_builder import ContextBuilder
from msgnode.policy.enforcement.decision_cache import (
    MAX_KEY_CHARS,
    CachedDecision,
    DecisionCache,
    PolicyRequest,
)
from msgnode.policy.enforcement.decision_log import Decisions
from msgnode.policy.enforcement.decision_recorder import DecisionRecorder
from msgnode.policy.enforcement.dry_run import DryRun
from msgnode.policy.enforcement.obligations import ObligationRunner
from msgnode.policy.enforcement.points import CONNECT, IN, OUT, Judgement, RepeatableDecision
from msgnode.policy.language.program import Program
from msgnode.protocol.address import Domain
from msgnode.protocol.body_edit import AUTH, set_auth_flag
from msgnode.protocol.errors import Blocked, Malformed, Rejected, failure_code
from msgnode.protocol.message import Message, decode
from msgnode.sessions.access.address_ownership import AddressOwnership
from msgnode.sessions.limits.partial_input import PartialInput
from msgnode.sessions.principal import Principal
from msgnode.sessions.session import Connection, Session
from msgnode.structures.token_bucket import Share

log = Logger()

OF_PEERS = frozenset(("peer.domain", "peer.node", "peer.kind", "route.hops"))  # at `out`, where it goes
TEXT = "Blocked by policy"


class PolicyEnforcement:
    """
    The policy enforcement point (XACML's PEP).

    `use` makes policies live; `close` refuses everything until there are some. `changed` is called when the
    set of required decisions changes.
    """

    def __init__(
        self,
        config: Config,
        clock: IReactorTime,
        changed: Callable[[], None],
        owners: AddressOwnership,
        now: Callable[[], datetime] = datetime.now,
        who: Callable[[Connection], Principal | None] = lambda connection: None,
        partial_input: PartialInput | None = None,
    ) -> None:
        self.contexts = ContextBuilder(config, now, who, owners)
        self.outward = self.between_nodes = False
        self.decisions = Decisions(config.node)
        self.dry_run: DryRun | None = None
        # Told of each decision: the point, the message, the sender (at `out` the recipient), the effect, the
        # rule, and the microseconds that it took, 0 if it was cached. None while no trace is on.
        self.observer: Callable[[str, Message, Session | None, str, str, int], object] | None = None
        self._recorder = DecisionRecorder(config, self.decisions, self.contexts)
        self._options = config.policy
        self._commands = f"{Domain(config.domain).node}/policy"
        self._changed = changed
        self.replaced: Callable[[int], object] = lambda number: None  # told the version that is live now
        self._live: DecisionCache | None = None
        self._is_closed = False
        self._obligations = ObligationRunner(clock, partial_input)
        self._counting = False  # does a policy, live or in a dry run, test the rate of a sender?
        self._counters = RateCounters(clock.seconds)
        self.apply()

    def share_rates(self, share: Share) -> None:
        """
        Has the limits that are `shared` count for all nodes of the domain.
        """
        self._obligations.limits.share(share)

    # -- policies ----------------------------------------------------------

    @property
    def is_on(self) -> bool:
        """
        Must any message be checked?
        """
        return self._live is not None or self._is_closed or self.dry_run is not None

    @property
    def is_open(self) -> bool:
        return not self._is_closed

    @property
    def program(self) -> Program | None:
        return self._live.program if self._live is not None else None

    @property
    def version(self) -> int:
        """
        The number of the live version, 0 if there is none.
        """
        return self._live.number if self._live is not None else 0

    @property
    def document_bytes(self) -> int:
        """
        The bytes of the documents of the live policies, and of those in a dry run.
        """
        programs = [each.program for each in (self._live, self.dry_run) if each is not None]
        return sum(len(data) for program in programs for _, data in program.files)

    @property
    def remembered(self) -> int:
        """
        The number of decisions in the cache.
        """
        return self._live.size if self._live is not None else 0

    def use(self, program: Program, number: int) -> None:
        """
        Makes these policies live, from the next message on.
        """
        self._live = DecisionCache(program, number)
        self._is_closed = False
        self.decisions.forget(program.has)
        self._programs_changed()
        self.replaced(number)

    def close(self) -> None:
        """
        Refuses everything: policies are required, and there are none.
        """
        self._live, self._is_closed = None, True
        self._programs_changed()

    def set_dry_run(self, program: Program | None) -> None:
        """
        Starts a dry run of these policies, without effect; None ends it.
        """
        self.dry_run = DryRun(program) if program is not None else None
        self._programs_changed()

    def _programs_changed(self) -> None:
        """
        Finds out which decisions and counters the live policies and those of a dry run need.
        """
        programs = [each.program for each in (self._live, self.dry_run) if each is not None]
        self.outward = any("direction" in program.attributes for program in programs)
        self.between_nodes = self.outward or any(program.attributes & OF_PEERS for program in programs)
        self._counting = any(program.counts for program in programs)
        self._changed()

    def apply(self) -> None:
        """
        Applies the configuration, which may have changed; decisions cached under the old one are dropped.
        """
        options = self._options
        self.decisions.set_sample_rate(options.permit_sample_rate)
        self.decisions.hash_fields = options.hash_fields
        self._defaults = {
            "connect": options.default_connect == PERMIT,
            "in": options.default_in == PERMIT,
            "subscribe": options.default_subscribe == PERMIT,
            "out": options.default_out == PERMIT,
        }
        if self._live is not None:
            self._live = DecisionCache(self._live.program, self._live.number)

    # -- the check ---------------------------------------------------------------

    def check(
        self, point: str, message: Message, session: Session | None, count: int = 1
    ) -> Deferred[None] | None:
        """
        The check of Policy (points.py).
        """
        live = self._live
        if live is None:
            self._check_without_policies(point, message, session, count)
            return None
        if self._is_built_in(point, message):
            return None
        key = (point, message.from_, message.to, message.type)
        verdict = live.recent.get(key) or live.recall(key)
        request = None
        counts = self._counting and point is IN
        if verdict is None or counts or not verdict.plain or self.dry_run is not None:
            request = PolicyRequest(live, point, message, session, count)
            verdict = self._evaluate(request, key, verdict)
        counter = verdict.counter
        counter.hits += 1
        counter.last = message.received_at
        if self.observer is not None:
            micros = request.micros if request is not None else 0
            self.observer(point, message, session, verdict.decision.effect, verdict.decision.path, micros)
        if not verdict.plain:
            assert request is not None
            return self._follow(request)
        if self.decisions.is_due():
            self._recorder.record(request or PolicyRequest(live, point, message, session, count, verdict))
        if point is IN and self._options.mark_auth:
            set_auth_flag(message, verdict.permits)
        return None

    def repeatable(self, message: Message, session: Session) -> RepeatableDecision | None:
        """
        The decision that has just permitted this message of the session at `in`, if it is the same for all
        messages with its from, to and type, as long as these policies are live.
        """
        live = self._live
        if live is None or self.dry_run is not None or self._counting or self.outward:
            return None
        verdict = live.recent.get((IN, message.from_, message.to, message.type))
        if verdict is None or not verdict.plain:
            return None
        mark = AUTH[verdict.permits] if self._options.mark_auth else None
        line = self._recorder.permit_line(PolicyRequest(live, IN, message, session, 1, verdict))
        return RepeatableDecision(mark, self.decisions.tally(verdict.counter), line)

    def _check_without_policies(
        self, point: str, message: Message, session: Session | None, count: int
    ) -> None:
        """
        Without live policies everything passes, unless policies are required; a dry run is compared.
        """
        if self._is_built_in(point, message):
            return
        if self._is_closed:
            raise Blocked("this node has no policies yet; try again later", 503, 30)
        if self.dry_run is None:
            return
        context = self.contexts.context(point, message, session, count)
        if self._counting and point is IN:
            self._counters.count(context)
        self.dry_run.compare((point, message.from_, message.to, message.type), context, NOT_APPLICABLE)

    def _is_built_in(self, point: str, message: Message) -> bool:
        """
        Is the message exempt from policies, so that a manager can always correct them?
        """
        if point is CONNECT:
            return bool(self.contexts.manager(message.origin))
        return (message.from_ if point is OUT else message.to) == self._commands

    # -- deciding -------------------------------------------------------------------

    def _evaluate(
        self, request: PolicyRequest, key: tuple[Any, ...], known: CachedDecision | None
    ) -> CachedDecision:
        """
        Decides, unless the decision is cached; updates the counters and the dry run.
        """
        began = perf_counter_ns()
        context = self._build_context(request)
        if self._counting and request.point is IN:
            self._counters.count(context)
        if known is None:
            request.verdict = self._decide(request, key)
            request.micros = (perf_counter_ns() - began) // 1000
        else:
            request.verdict = known
        if self.dry_run is not None:
            self.dry_run.compare(key, context, request.verdict.decision.effect)
        return request.verdict

    def _build_context(self, request: PolicyRequest) -> Context:
        request.context = self.contexts.context(
            request.point, request.message, request.session, request.count
        )
        return request.context

    def _decide(self, request: PolicyRequest, key: tuple[Any, ...]) -> CachedDecision:
        live, context = request.live, request.context
        try:
            decision = live.program.decide(context)
        except Rejected:
            raise
        except Exception:
            log.failure("the policies failed to decide about a message to {to}", to=context.to[:200])
            decision = Decision(INDETERMINATE)
        passes = self._passes(decision, request.point)
        counter = self.decisions.counter(request.point, decision.effect, decision.path)
        verdict = CachedDecision(decision, passes, counter)
        if decision.remember and sum(map(len, key)) <= MAX_KEY_CHARS:
            live.remember(key, verdict)
        return verdict

    def judge(self, point: str, message: Message, session: Session) -> Judgement:
        """
        The judgement of the live policies if the session sent this message now; without an effect: no
        counter, no obligation, no cache. Raises Rejected.
        """
        assert self._live is not None
        decision = self._live.program.decide(self.contexts.hypothetical(point, message, session))
        is_permitted = self._passes(decision, point)
        return Judgement(decision, is_permitted, is_permitted or not self._options.enforce)

    def _passes(self, decision: Decision, point: str) -> bool:
        if decision.effect == NOT_APPLICABLE:
            return self._defaults[point]
        return decision.effect == PERMIT

    # -- effects of the decision -----------------------------------------------

    def _follow(self, request: PolicyRequest) -> Deferred[None] | None:
        """
        Refuses the message, or carries out the obligations of the decision.
        """
        decision, context = request.verdict.decision, request.context
        for outcome in decision.unenforced:
            self._recorder.record_unenforced(request, outcome.path, outcome.effect)
        enforced = self._options.enforce
        try:
            if not self._passes(decision, request.point):
                raise self._refusal(decision, request.message)
            wait = self._obligations.charge(decision.obligations, context) if enforced else None
            if wait is None:
                return self._let_pass(request)
        except Blocked as why:
            why.rule = why.rule or decision.path
            self._recorder.record(request, why, enforced)
            self._obligations.notify_operator(decision.obligations, context)
            if enforced:
                raise
            self._mark(request, False)
            return None
        return wait.addCallback(lambda now: self._let_pass(request))  # type: ignore[arg-type]

    def _refusal(self, decision: Decision, message: Message) -> Blocked:
        if decision.effect == INDETERMINATE:
            try:
                message.fields(lossy=True)
            except Malformed as why:
                return Blocked(str(why), why.code, reason=why.reason)
            text = "the policies of this node cannot decide on this"
            return Blocked(text, failure_code(message.to), rule=decision.path)
        reason = f"{TEXT}: {decision.path or 'no rule permits it'}" if self._options.expose_reason else TEXT
        return Blocked(reason, 403, rule=decision.path)

    def _let_pass(self, request: PolicyRequest) -> Deferred[None] | None:
        """
        Lets the message pass: edits it, redirects it, marks it, records the decision.
        """
        context, obligations = request.context, request.verdict.decision.obligations
        if self._options.enforce:
            target = self._obligations.change(obligations, context)
            if target is not None and request.point is IN:
                if request.redirected:
                    to = request.message.to
                    raise Blocked("the policies of this node redirect this twice", failure_code(to))
                self._recorder.record(request)
                return self._redirect(request, target)
        self._mark(request, request.verdict.permits)
        if self._obligations.notify_operator(obligations, context) or self.decisions.is_due():
            self._recorder.record(request)
        return None

    def _mark(self, request: PolicyRequest, permits: bool) -> None:
        if request.point is IN and self._options.mark_auth:
            set_auth_flag(request.message, permits)

    def _redirect(self, before: PolicyRequest, target: str) -> Deferred[None] | None:
        """
        Decides again, once, for the address to which the message is redirected.
        """
        message = before.message
        message.data, message.to = message.copy_to(target).data, target
        request = PolicyRequest(before.live, IN, message, before.session, before.count)
        request.redirected = True
        self._build_context(request).rates = before.context.rates
        request.verdict = self._decide(request, (IN, message.from_, target, message.type))
        request.verdict.counter.hits += 1
        request.verdict.counter.last = message.received_at
        return self._follow(request)

    # -- for the node's own answers, and for policy managers ------------

    def filter_reply(self, reply: Message, session: Session) -> Message | None:
        """
        Applies the policies to the node's own reply; None if they refuse it.
        """
        if not self.outward:
            return reply
        message = decode(reply.data)
        message.received_at, message.log = time_ns(), reply.log
        try:
            self.check(OUT, message, session)
        except Blocked:
            return None
        return message

    def names(self, point: str, message: Message, session: Session, prefix: str) -> bool:
        """
        Does a rule permit this address in particular?

        A rule that permits every address which begins with `prefix` does not count; another rule may.
        """
        live = self._live
        if live is None or not self._options.enforce:
            return False
        other = copy(message)
        other.to = f"{prefix}{token_hex(8)}.{self.contexts.domain}"
        this, that = (
            live.program.decide(self.contexts.context(point, each, session, 1)) for each in (message, other)
        )
        return this.effect == PERMIT and (that.effect != PERMIT or that.path != this.path)

    def rules(self) -> list[str]:
        return list(self._live.program.rules) if self._live is not None else []

    @property
    def dry_run_differences(self) -> int:
        return self.dry_run.different if self.dry_run is not None else 0

    def dry_run_report(self) -> dict[str, Any]:
        return self.dry_run.report() if self.dry_run is not None else {"revision": None}
