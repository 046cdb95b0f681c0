"""
The one who asks the policies, and does what they say.

One call, `check`, at every point of points.py.  It returns, and the message
goes on; or it raises Blocked, and the sender is told.  What goes wrong while
deciding counts as no.  What depends only on a message's header is remembered,
until other policies take effect.
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
from msgnode.policy.enforcement.decision_cache import MAX_KEY_CHARS, CachedDecision, DecisionCache
from msgnode.policy.enforcement.decision_log import DecisionLine, Decisions
from msgnode.policy.enforcement.dry_run import DryRun
from msgnode.policy.enforcement.obligations import ObligationRunner
from msgnode.policy.enforcement.points import CONNECT, IN, OUT
from msgnode.policy.language.program import Program
from msgnode.protocol.address import Domain
from msgnode.protocol.body_edit import set_auth_flag
from msgnode.protocol.errors import Blocked, Malformed, Rejected, failure_code
from msgnode.protocol.message import Message, decode
from msgnode.sessions.access.address_ownership import AddressOwnership
from msgnode.sessions.limits.partial_input import PartialInput
from msgnode.sessions.principal import Principal
from msgnode.sessions.session import Connection, Session

log = Logger()

TEXT = "Blocked by policy"


class PolicyEnforcement:
    """
    The policy enforcement point.

    `use` gives it policies, `close` lets nothing pass until there are some.
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
        self.senders = ContextBuilder(config, now, who, owners)
        self.outward = False
        self.decisions = Decisions(config.node)
        self.trial: DryRun | None = None
        self._config, self._options = config, config.policy
        self._commands = f"{Domain(config.domain).node}/policy"
        self._changed = changed
        self._live: DecisionCache | None = None
        self._is_closed = False
        self._duties = ObligationRunner(clock, partial_input)
        self._counting = False  # does a policy ask how often?
        self._counters = RateCounters(clock.seconds)
        self.apply()

    # -- which policies ----------------------------------------------------------

    @property
    def is_on(self) -> bool:
        """
        Must anything be asked at all?
        """
        return self._live is not None or self._is_closed or self.trial is not None

    @property
    def is_open(self) -> bool:
        return not self._is_closed

    @property
    def program(self) -> Program | None:
        return self._live.program if self._live is not None else None

    def use(self, program: Program, number: int) -> None:
        """
        From the next message on, these policies decide.
        """
        self._live = DecisionCache(program, number)
        self._is_closed = False
        self.decisions.forget(program.has)
        self._look_at_programs()

    def close(self) -> None:
        """
        There must be policies, and there are none: everything is refused.
        """
        self._live, self._is_closed = None, True
        self._look_at_programs()

    def _look_at_programs(self) -> None:
        """
        What has to be asked and counted, for those that are live and those on trial.
        """
        programs = [each.program for each in (self._live, self.trial) if each is not None]
        self.outward = any("direction" in program.attributes for program in programs)
        self._counting = any(program.counts for program in programs)
        self._changed()

    def apply(self) -> None:
        """
        The configuration may have changed; what is remembered came of the old one.
        """
        options = self._options
        self.decisions.share, self.decisions.hash_fields = options.permit_sample_rate, options.hash_fields
        self._defaults = {
            "connect": options.default_connect == PERMIT,
            "in": options.default_in == PERMIT,
            "subscribe": options.default_subscribe == PERMIT,
            "out": options.default_out == PERMIT,
        }
        if self._live is not None:
            self._live = DecisionCache(self._live.program, self._live.number)

    # -- the one call ---------------------------------------------------------------

    def check(
        self, point: str, message: Message, session: Session | None, count: int = 1
    ) -> Deferred[None] | None:
        """
        Blocked, unless the message may go on: now, or when the Deferred fires.  It may be changed.

        `session` is who sends, at `out` who gets it.  `count`: of addresses the message is sent to.
        """
        live = self._live
        if live is None:
            self._without_policies(point, message)
            self._only_try(point, message, session, count)
            return None
        if self._is_built_in(point, message):
            return None
        key = (point, message.from_, message.to, message.type)
        verdict = live.recent.get(key) or live.recall(key)
        context: Context | None = None
        micros = 0
        if self._counting and point is IN:
            context = self.senders.context(point, message, session, count)
            self._counters.count(context)
        if verdict is None:
            began = perf_counter_ns()
            context = context or self.senders.context(point, message, session, count)
            verdict = self._decide(live, point, key, context)
            micros = (perf_counter_ns() - began) // 1000
        tally = verdict.tally
        tally.hits += 1
        tally.last = message.came
        if self.trial is not None:
            context = context or self.senders.context(point, message, session, count)
            self.trial.compare(key, context, verdict.decision.effect)
        if verdict.plain:
            if self.decisions.is_due():
                self._note(live, verdict, point, message, session, micros)
            if point is IN and self._options.mark_auth:
                set_auth_flag(message, verdict.permits)
            return None
        context = context or self.senders.context(point, message, session, count)
        return self._follow(live, verdict, context, session, micros)

    def names(self, point: str, message: Message, session: Session, beside: str) -> bool:
        """
        Does a rule permit this address in particular?

        One that permits any address which begins with `beside` names none.  Another rule may.
        """
        live = self._live
        if live is None or not self._options.enforce:
            return False
        other = copy(message)
        other.to = f"{beside}{token_hex(8)}.{self.senders.domain}"
        this, that = (
            live.program.decide(self.senders.context(point, each, session, 1)) for each in (message, other)
        )
        return this.effect == PERMIT and (that.effect != PERMIT or that.path != this.path)

    def _only_try(self, point: str, message: Message, session: Session | None, count: int) -> None:
        """
        No policies are live, so that everything passes; what would those on trial say?
        """
        if self.trial is None or self._is_built_in(point, message):
            return
        context = self.senders.context(point, message, session, count)
        if self._counting and point is IN:
            self._counters.count(context)
        self.trial.compare((point, message.from_, message.to, message.type), context, NOT_APPLICABLE)

    def _is_built_in(self, point: str, message: Message) -> bool:
        """
        What no policy decides on, so that those who can mend the policies always may.
        """
        if point is CONNECT:
            return bool(self.senders.manager(message.origin))
        return (message.from_ if point is OUT else message.to) == self._commands

    def _without_policies(self, point: str, message: Message) -> None:
        if self._is_closed and not self._is_built_in(point, message):
            raise Blocked("this node has no policies yet; try again later", 503, 30)

    def _decide(
        self, live: DecisionCache, point: str, key: tuple[Any, ...], context: Context
    ) -> CachedDecision:
        try:
            decision = live.program.decide(context)
        except Rejected:
            raise
        except Exception:
            log.failure("deciding on a message for {to}", to=context.to[:200])
            decision = Decision(INDETERMINATE)
        passes = self._passes(decision, point)
        tally = self.decisions.tally(point, decision.effect, decision.path)
        verdict = CachedDecision(decision, passes, tally)
        if decision.remember and sum(map(len, key)) <= MAX_KEY_CHARS:
            live.remember(key, verdict)
        return verdict

    def _passes(self, decision: Decision, point: str) -> bool:
        if decision.effect == NOT_APPLICABLE:
            return self._defaults[point]
        return decision.effect == PERMIT

    # -- what follows -----------------------------------------------------------------

    def _follow(
        self,
        live: DecisionCache,
        verdict: CachedDecision,
        context: Context,
        session: Session | None,
        micros: int,
        moved: bool = False,
    ) -> Deferred[None] | None:
        """
        Refuse, or do what the message's passing obliges to.
        """
        point, message, decision = context.direction, context.message, verdict.decision
        for outcome in decision.unenforced:
            self._count_unenforced(live, outcome.path, outcome.effect, context, session)
        enforced = self._options.enforce
        try:
            if not self._passes(decision, point):
                raise self._refusal(decision, message)
            wait = self._duties.charge(decision.obligations, context) if enforced else None
            if wait is None:
                return self._go_on(live, verdict, context, session, micros, moved)
        except Blocked as why:
            self._note(live, verdict, point, message, session, micros, why, enforced)
            self._duties.tell(decision.obligations, context)
            if not enforced:
                if point is IN and self._options.mark_auth:
                    set_auth_flag(message, False)
                return None
            raise
        return wait.addCallback(
            lambda now: self._go_on(live, verdict, context, session, micros, moved)  # type: ignore[arg-type]
        )

    def _refusal(self, decision: Decision, message: Message) -> Blocked:
        if decision.effect == INDETERMINATE:
            try:
                message.fields(rough=True)
            except Malformed as why:
                return Blocked(str(why), why.code, reason=why.reason)
            return Blocked("the policies of this node cannot decide on this", failure_code(message.to))
        reason = f"{TEXT}: {decision.path or 'no rule permits it'}" if self._options.expose_reason else TEXT
        return Blocked(reason, 403)

    def _go_on(
        self,
        live: DecisionCache,
        verdict: CachedDecision,
        context: Context,
        session: Session | None,
        micros: int,
        moved: bool,
    ) -> Deferred[None] | None:
        """
        The message passes: change it, send it elsewhere, mark it, write it down.
        """
        point, message, obligations = context.direction, context.message, verdict.decision.obligations
        if self._options.enforce:
            target = self._duties.change(obligations, context)
            if target is not None and point is IN:
                if moved:
                    raise Blocked("the policies of this node redirect this twice", failure_code(message.to))
                self._note(live, verdict, point, message, session, micros)
                return self._redirect(live, target, context, session)
        if point is IN and self._options.mark_auth:
            set_auth_flag(message, verdict.permits)
        if self._duties.tell(obligations, context) or self.decisions.is_due():
            self._note(live, verdict, point, message, session, micros)
        return None

    def _redirect(
        self, live: DecisionCache, target: str, before: Context, session: Session | None
    ) -> Deferred[None] | None:
        """
        Decide again, once, for where it goes instead.
        """
        message = before.message
        message.data, message.to = message.copy_to(target).data, target
        context = self.senders.context(IN, message, session, before.recipients)
        context.rates = before.rates
        verdict = self._decide(live, IN, (IN, message.from_, target, message.type), context)
        verdict.tally.hits += 1
        verdict.tally.last = message.came
        return self._follow(live, verdict, context, session, 0, moved=True)

    # -- what is written down ------------------------------------------------------

    def _count_unenforced(
        self, live: DecisionCache, path: str, effect: str, context: Context, session: Session | None
    ) -> None:
        """
        A policy that is only tried out would have had its say.
        """
        message = context.message
        tally = self.decisions.tally(context.direction, f"{effect} (not enforced)", path)
        tally.hits += 1
        tally.last = message.came
        if effect != PERMIT or self.decisions.is_due():
            line = self._line(live, context.direction, message, session)
            if line is not None:
                line.effect, line.rule, line.enforced = effect, path, False
                self.decisions.note(line)

    def _note(
        self,
        live: DecisionCache,
        verdict: CachedDecision,
        point: str,
        message: Message,
        session: Session | None,
        micros: int,
        refusal: Blocked | None = None,
        enforced: bool = True,
    ) -> None:
        line = self._line(live, point, message, session)
        if line is None:
            return
        if refusal is not None:
            line.code, line.reason = refusal.code, refusal.reason
        line.effect, line.rule = verdict.decision.effect, verdict.decision.path
        line.micros, line.enforced = micros, enforced
        line.obligations = [type(each).__name__ for each in verdict.decision.obligations] or None
        self.decisions.note(line)

    def _line(
        self, live: DecisionCache, point: str, message: Message, session: Session | None
    ) -> DecisionLine | None:
        """
        A line about this message; None where its sender wants nothing written down.
        """
        if not message.log and not self._config.traffic_log_always:
            self.decisions.unlogged += 1
            return None
        connection = message.origin
        to = message.to if isinstance(message.to, str) else ", ".join(message.to[:3])
        line = DecisionLine(
            time=message.came, version=live.number, point=point, type=message.type, id=message.id
        )
        line.from_, line.to = message.from_, to
        line.session = session.runtime if session is not None else ""
        if connection is not None:
            line.connector, line.peer = connection.connector, connection.peer
            known = self.senders.identity(point, connection)
            line.identity = known.user if known is not None else ""
        return line

    # -- for the node's own answers, and for who looks after the policies ------------

    def leaving(self, reply: Message, session: Session) -> Message | None:
        """
        An answer of the node itself as it may leave; None if it may not.
        """
        if not self.outward:
            return reply
        message = decode(reply.data)
        message.came, message.log = time_ns(), reply.log
        try:
            self.check(OUT, message, session)
        except Blocked:
            return None
        return message

    def rules(self) -> list[str]:
        return list(self._live.program.rules) if self._live is not None else []

    def try_out(self, program: Program | None) -> None:
        """
        Let this decide too, beside what is live; None ends that.
        """
        self.trial = DryRun(program) if program is not None else None
        self._look_at_programs()

    @property
    def different(self) -> int:
        return self.trial.different if self.trial is not None else 0

    def differences(self) -> dict[str, Any]:
        return self.trial.report() if self.trial is not None else {"revision": None}
