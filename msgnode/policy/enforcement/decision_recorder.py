"""
Decision recorder: writes the decision-log line of a request, and counts rules that are not enforced.
"""

from msgnode.config.schema import Config
from msgnode.policy.decision.decision import PERMIT
from msgnode.policy.enforcement.context_builder import ContextBuilder
from msgnode.policy.enforcement.decision_cache import PolicyRequest
from msgnode.policy.enforcement.decision_log import DecisionLine, Decisions
from msgnode.protocol.errors import Blocked
from msgnode.protocol.message import Message
from msgnode.transport.data_plane import PermitLine


class DecisionRecorder:
    """
    A writer of decision lines; it leaves out messages whose senders forbid a log (`"log": false`).
    """

    def __init__(self, config: Config, decisions: Decisions, contexts: ContextBuilder) -> None:
        self._config = config
        self._decisions = decisions
        self._contexts = contexts

    def record(self, request: PolicyRequest, refusal: Blocked | None = None, enforced: bool = True) -> None:
        """
        Records a decision; `refusal` is the error that the sender gets, or would get if `enforced`.
        """
        if self._is_unlogged(request.message):
            return
        decision = request.verdict.decision
        line = self._line(request, decision.effect, decision.path)
        if refusal is not None:
            line.code, line.reason = refusal.code, refusal.reason
        line.micros, line.enforced = request.micros, enforced
        line.obligations = [type(each).__name__ for each in decision.obligations] or None
        self._decisions.note(line)

    def record_unenforced(self, request: PolicyRequest, path: str, effect: str) -> None:
        """
        Counts a rule whose effect is not enforced, but would have decided about this message.
        """
        counter = self._decisions.counter(request.point, f"{effect} (not enforced)", path)
        counter.hits += 1
        counter.last = request.message.received_at
        if (effect != PERMIT or self._decisions.is_due()) and not self._is_unlogged(request.message):
            line = self._line(request, effect, path)
            line.enforced = False
            self._decisions.note(line)

    def permit_line(self, request: PolicyRequest) -> PermitLine | None:
        """
        The line about this permit and those like it, for the data plane; None if the line may change while
        the permit is the same: with authentication the sender's identity does.
        """
        if self._decisions.log is None:
            return PermitLine()
        decision = request.verdict.decision
        line = self._line(request, decision.effect, decision.path)
        if line.identity or self._config.identity.auth != "none":
            return None
        return self._decisions.permit_line(line)

    def _is_unlogged(self, message: Message) -> bool:
        """
        Does its sender forbid a log? Counts the decision if so.
        """
        is_unlogged = not message.log and not self._config.traffic_log_always
        self._decisions.unlogged += is_unlogged
        return is_unlogged

    def _line(self, request: PolicyRequest, effect: str, rule: str) -> DecisionLine:
        """
        A line about this message.
        """
        point, message, session = request.point, request.message, request.session
        connection = message.origin
        to = message.to if isinstance(message.to, str) else ", ".join(message.to[:3])
        line = DecisionLine(
            time=message.received_at,
            version=request.live.number,
            point=point,
            effect=effect,
            rule=rule,
            type=message.type,
            id=message.id,
        )
        line.from_, line.to = message.from_, to
        line.session = session.runtime if session is not None else ""
        if connection is not None:
            line.connector, line.peer = connection.connector, connection.peer
            known = self._contexts.identity(point, connection)
            line.identity = known.user if known is not None else ""
        return line
