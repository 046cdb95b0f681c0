"""
The page on traces: those that there are, and the last lines of one.
"""

from typing import Any

import msgspec

from msgnode.admin.live.trace_filter import KEYS
from msgnode.admin.live.traces import PART_BYTES, Traces
from msgnode.admin.pages.views import Shown, Visit
from msgnode.protocol.errors import Rejected

SHOWN_LINES = 300


class TraceViews:
    """
    The page `trace`.
    """

    def __init__(self, traces: Traces) -> None:
        self._traces = traces
        self.pages = {"trace": self.trace}

    def trace(self, visit: Visit) -> Any:
        """
        The traces, and the last lines of one.
        """
        id = visit.query.get("id", "")
        context: dict[str, Any] = {
            "traces": [each.as_dict() for each in self._traces],
            "keys": KEYS,
            "key": visit.query.get("key", "session"),
            "value": visit.query.get("value", ""),
            "trace": None,
            "lines": [],
            "left_out": 0,
            "may_act": visit.may("operator"),
            "may_see_bodies": visit.may(),
        }
        if not id:
            return "trace.html", context
        trace = self._traces.get(id)
        if not visit.may("operator") or ((trace.bodies or trace.forbidden) and not visit.may()):
            raise Rejected("the lines of this trace are for the role that started it", 403, "policy")

        def shown(data: bytes) -> Shown:
            lines = data.splitlines()
            if trace.written > PART_BYTES and lines:
                lines = lines[1:]
            found = [_line(line) for line in lines[-SHOWN_LINES:]]
            left_out = trace.lines - len(found)
            return "trace.html", {**context, "trace": trace.as_dict(), "lines": found, "left_out": left_out}

        return self._traces.read(id, max(0, trace.written - PART_BYTES)).addCallback(shown)


def _line(data: bytes) -> dict[str, Any]:
    """
    A line of a trace, with its time in seconds since 1970.
    """
    line: dict[str, Any] = msgspec.json.decode(data)
    line.pop("came", None)
    return {**line, "time": line["time"] / 1e9}
