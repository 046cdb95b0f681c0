"""
Actions on traces: started, listed, stopped, deleted.
"""

from typing import Any, ClassVar

import msgspec

from msgnode.admin.access.named_tokens import ADMIN
from msgnode.admin.actions.audited import Audited, Plan
from msgnode.admin.api.endpoint import Call, Reason
from msgnode.admin.live.trace_filter import TraceFilter
from msgnode.admin.live.traces import Trace, Traces
from msgnode.protocol.errors import Rejected


class TraceRequest(Reason, kw_only=True):
    """
    The body of a new trace: what it shows, for how many seconds (at most 3600) and lines (at most 100,000);
    `bodies` needs the role admin.
    """

    session: str = ""
    user: str = ""
    peer: str = ""
    address: str = ""
    id: str = ""
    seconds: float = 300.0
    max: int = 10_000
    bodies: bool = False

    def filter(self) -> TraceFilter:
        return TraceFilter(self.session, self.user, self.peer, self.address, self.id)


class TraceRow(msgspec.Struct):
    """
    A trace: `running` or `ended`, and why; its times are in seconds since 1970. `hidden` counts messages
    whose senders forbid a log.
    """

    id: str
    state: str
    why: str
    filter: dict[str, str]
    bodies: bool
    who: str
    started: float
    until: float
    max: int
    lines: int
    bytes: int
    hidden: int


class TraceList(msgspec.Struct):
    """
    The traces that run or are kept.
    """

    rows_in: ClassVar[str] = "traces"

    traces: list[TraceRow]


class TraceActions:
    """
    The actions on the traces of a node.
    """

    def __init__(self, audited: Audited, traces: Traces) -> None:
        self._audited = audited
        self._traces = traces

    def list(self, call: Call) -> TraceList:
        return TraceList([_row(trace) for trace in self._traces])

    def show(self, call: Call) -> TraceRow:
        return _row(self._traces.get(call.path["id"]))

    def start(self, call: Call) -> Any:
        """
        Starts a trace; the details have it.
        """
        body: TraceRequest = call.body
        is_admin = call.operator.has_role(ADMIN)
        if body.bodies and not is_admin:
            raise Rejected("bodies are for the role admin only", 403, "policy")
        order = (body.filter(), body.seconds, body.max, call.operator.name, body.bodies, is_admin)
        self._traces.check(body.filter(), body.seconds, body.max, body.bodies)

        def started() -> dict[str, Any]:
            return {"trace": self._traces.start(*order).as_dict()}

        target = _named(body.filter(), body.bodies)
        return self._audited.run(call, Plan("trace start", [target], started), body.reason)

    def stop(self, call: Call) -> Any:
        """
        Ends a trace; its lines stay.
        """
        return self._end("trace stop", call, self._traces.stop)

    def delete(self, call: Call) -> Any:
        """
        Ends a trace, and deletes its lines.
        """
        return self._end("trace delete", call, self._traces.delete)

    def _end(self, action: str, call: Call, end: Any) -> Any:
        trace = self._traces.get(call.path["id"])

        def ended() -> dict[str, Any]:
            return {"trace": end(trace.id).as_dict()}

        target = f"{trace.id}: {_named(trace.filter, trace.bodies)}"
        return self._audited.run(call, Plan(action, [target], ended), call.body.reason)


def _row(trace: Trace) -> TraceRow:
    return msgspec.convert(trace.as_dict(), TraceRow)


def _named(filter: TraceFilter, bodies: bool) -> str:
    """
    The filter of a trace, in words.
    """
    found = " ".join(f"{key} {value}" for key, value in filter.as_dict().items() if value)
    return f"{found}{' with bodies' if bodies else ''}"
