"""
Audited actions: a dry run, the confirmation of a number, and two lines in the audit log around what is done.
"""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, NoReturn

import msgspec
from twisted.internet.defer import Deferred, inlineCallbacks, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.admin.api.endpoint import AT_MOST, CONFIRMED, Call
from msgnode.protocol.errors import Rejected
from msgnode.storage.audit_log import AuditLog

log = Logger()

MIN_REASON_CHARS, MAX_REASON_CHARS = 3, 200
MAX_SHOWN = 100  # targets in an answer
# These are done even if the audit log cannot be written. What begins so can be taken back so.
URGENT = {"kick", "ban", "unban", "drain", "undrain", "reload", "link ban", "link drain", "link resume"}


class ActionResult(msgspec.Struct, kw_only=True):
    """
    The result of an action: how many things it was `done` to, or with `dry_run` would be; `audit` is the id
    of its lines in the audit log. `targets` has at most 100 of them, `details` what else there is to say.
    """

    done: int
    dry_run: bool = False
    audit: str = ""
    targets: list[str] = []
    details: dict[str, Any] = {}


class NotKept(Rejected):
    """
    An action that is in effect, but is not on disk. `result` says what was done.
    """

    result: ActionResult


def not_kept(why: Failure) -> NoReturn:
    """
    The errback of what writes an action that is in effect already.
    """
    why.trap(Rejected)
    error: Any = why.value
    raise NotKept(str(error), error.code, error.reason) from error


class Plan:
    """
    A plan of an action: its name, whom it would hit, and the function that does it.

    `do` returns the details of the result or Underway, or a Deferred of them. `confirms`: an operator must
    confirm the number of targets, "exactly" or "at most". `number` is that of the targets if `targets` has
    only the first of them.
    """

    def __init__(
        self,
        action: str,
        targets: list[str],
        do: Callable[[], Any],
        confirms: str = "",
        before: Any = None,
        number: int | None = None,
    ) -> None:
        self.action = action
        self.number = len(targets) if number is None else number
        self.targets = targets
        self.do = do
        self.confirms = confirms
        self.before = before
        self.preview: dict[str, Any] = {}  # the details of a dry run


class Underway(NamedTuple):
    """
    The result of an action that goes on after its answer: the details of the answer, and a Deferred of its
    end. That fires with the text of the result, or fails with Rejected.
    """

    details: dict[str, Any]
    end: Deferred[str]


class Audited:
    """
    A runner of plans. Each is written to the audit log before it is done, and again with its result.
    """

    def __init__(self, audit: AuditLog) -> None:
        self.audit = audit

    @inlineCallbacks
    def run(self, call: Call, plan: Plan, reason: str) -> Generator[Deferred[Any], Any, ActionResult]:
        """
        Fires with the ActionResult. Fails with Rejected if the reason is missing, or the number of targets is
        another one than the operator confirms.
        """
        check_reason(reason)
        number, shown = plan.number, plan.targets[:MAX_SHOWN]
        if call.is_dry_run:
            return ActionResult(done=number, dry_run=True, targets=shown, details=plan.preview)
        if plan.confirms and call.confirm != CONFIRMED:
            check_confirmed(plan.confirms, number, call.confirm)
        line: dict[str, Any] = {
            "id": self.audit.next_id(),
            "who": call.operator.name,
            "roles": list(call.operator.roles),
            "peer": call.peer,
            "via": call.via,
            "action": plan.action,
            "target": shown,
            "number": number,
            "reason": reason,
        }
        if isinstance(call.body, msgspec.Struct):
            asked = msgspec.to_builtins(call.body)
            line["asked"] = {name: value for name, value in asked.items() if name != "reason"}
        if plan.before is not None:
            line["before"] = plan.before
        try:
            yield self.audit.write(phase="intent", **line)
        except Rejected:
            if plan.action not in URGENT:
                raise
            log.error("{who} does {action} without a line in the audit log", **line)
        try:
            details = yield maybeDeferred(plan.do)
        except Exception as why:
            yield self._failed(Failure(), line)
            if isinstance(why, NotKept):
                why.result = ActionResult(done=number, audit=line["id"], targets=shown)
            raise
        if isinstance(details, Underway):
            details.end.addCallback(self._done, line).addErrback(self._failed, line)
            details = details.details
        else:
            yield self._done("done", line)
        return ActionResult(done=number, audit=line["id"], targets=shown, details=details or {})

    def _done(self, result: str, line: dict[str, Any]) -> Deferred[None]:
        log.info("{who} did {action}: {reason}", **line)
        return self._finish(line, result=result, ok=True)

    def _failed(self, why: Failure, line: dict[str, Any]) -> Deferred[None]:
        known = why.check(Rejected) is not None
        return self._finish(line, result=why.getErrorMessage() if known else "failed", ok=False)

    def _finish(self, line: dict[str, Any], **result: Any) -> Deferred[None]:
        """
        Writes the result of what is done already, if it can be written.
        """
        return self.audit.write(phase="result", **line, **result).addErrback(lambda failed: None)


def check_confirmed(how: str, number: int, confirm: int | None) -> None:
    """
    Raises Rejected (409) if the operator confirms another number. If that is the most, a higher one is good,
    and one target needs none.
    """
    if number > max(confirm or 0, 1) if how == AT_MOST else number != confirm:
        text = f"this concerns {number} sessions; confirm it with confirm={number} (dry_run=1 lists them)"
        raise Rejected(text, 409, "conflict")


def check_reason(reason: str) -> None:
    """
    Raises Rejected if it is no reason.
    """
    if not MIN_REASON_CHARS <= len(reason.strip()) <= MAX_REASON_CHARS or not reason.isprintable():
        text = f"reason: expected {MIN_REASON_CHARS} to {MAX_REASON_CHARS} printable characters"
        raise Rejected(f"{text}; it is written to the audit log")
