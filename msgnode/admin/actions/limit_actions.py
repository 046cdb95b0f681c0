"""
Temporary limits: made and lifted by operators, and over after a while.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from msgnode.admin.actions.audited import Audited, Plan
from msgnode.admin.actions.ban_actions import id_of
from msgnode.admin.api.endpoint import Call, Reason
from msgnode.admin.reads.inspector import Inspector
from msgnode.protocol.errors import Rejected
from msgnode.sessions.limits.temporary_limits import TemporaryLimit, checked

MAX_SECONDS = 7 * 86400.0
MAX_LIMITS = 1000


class LimitRequest(Reason, kw_only=True):
    """
    The body of a temporary limit: `kind` is session (a runtimeURL), user or peer (an IP address);
    messages and bytes per second, 0 for none.
    """

    kind: str
    value: str
    seconds: float = 600.0
    rate_messages: int = 0
    rate_bytes: int = 0


class LimitList(msgspec.Struct):
    """
    The temporary limits.
    """

    limits: list[TemporaryLimit]


class LimitActions:
    """
    The temporary limits of a node.
    """

    def __init__(self, inspector: Inspector, audited: Audited) -> None:
        self._inspector = inspector
        self._node = inspector.node
        self._audited = audited

    def limits(self, call: Call) -> LimitList:
        return LimitList(self._node.rates.temporary.all())

    def limit(self, call: Call) -> Any:
        """
        Throttles a session, a user or an IP address for a while.
        """
        body: LimitRequest = call.body
        value = checked(body.kind, body.value)
        if not 0 < body.seconds <= MAX_SECONDS:
            raise Rejected(f"seconds: expected at most {MAX_SECONDS:.0f}, and more than 0")
        if min(body.rate_messages, body.rate_bytes) < 0 or not (body.rate_messages or body.rate_bytes):
            raise Rejected("expected rate_messages or rate_bytes above 0")
        temporary, now = self._node.rates.temporary, self._inspector.facts.wall()
        if len(temporary.all()) >= MAX_LIMITS:
            raise Rejected(f"there are {MAX_LIMITS} temporary limits already", 429, "limit")
        limit = TemporaryLimit(
            id_of(body.kind, value),
            body.kind,
            value,
            body.rate_messages,
            body.rate_bytes,
            now + body.seconds,
            body.reason,
            call.operator.name,
        )

        def limited() -> dict[str, Any]:
            temporary.put(limit)
            self._node.apply()
            self._inspector.clock.callLater(body.seconds, self._end, lambda each: each is limit)
            return {"limit": msgspec.to_builtins(limit)}

        replaced = [each for each in temporary.all() if each.id == limit.id]
        before = msgspec.to_builtins(replaced[0]) if replaced else None
        plan = Plan("limit", [f"{body.kind} {value}"], limited, before=before)
        return self._audited.run(call, plan, body.reason)

    def unlimit(self, call: Call) -> Any:
        """
        Lifts a temporary limit.
        """
        id = call.path["id"]
        if all(each.id != id for each in self._node.rates.temporary.all()):
            raise Rejected(f"there is no temporary limit {id[:80]!r}", 404, "not-found")
        plan = Plan("unlimit", [id], partial(self._end, lambda each: each.id == id))
        return self._audited.run(call, plan, call.body.reason)

    def _end(self, which: Callable[[TemporaryLimit], bool]) -> None:
        if self._node.rates.temporary.remove(which):
            self._node.apply()
