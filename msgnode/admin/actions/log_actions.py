"""
Actions on the log: the level of a namespace for a while.
"""

from typing import Any, ClassVar

import msgspec
from twisted.internet.interfaces import IDelayedCall

from msgnode.admin.actions.audited import Audited, Plan
from msgnode.admin.api.endpoint import Call, Reason
from msgnode.admin.reads.inspector import Inspector
from msgnode.protocol.errors import Rejected
from msgnode.structures.log_levels import LEVELS, LogLevels

MAX_SECONDS = 86400.0
MAX_NAMESPACES, MAX_CHARS = 100, 200
NONE = "the log of this node has every level, because it was started without --log-level and --log-format"


class LogLevelRequest(Reason, kw_only=True):
    """
    The body of a log level: a namespace such as msgnode.links (with those below it), its level, and for how
    many seconds (at most a day); then it has the level again that the node was started with.
    """

    namespace: str
    level: str
    seconds: float = 600.0


class LogLevelRow(msgspec.Struct):
    """
    A namespace with a level of its own, until a time in seconds since 1970.
    """

    namespace: str
    level: str
    until: float


class LogLevelList(msgspec.Struct):
    """
    The level of the log ("" if it has every level), and the namespaces that have one of their own.
    """

    rows_in: ClassVar[str] = "namespaces"

    level: str
    namespaces: list[LogLevelRow]


class LogActions:
    """
    The actions on the log of a node.
    """

    def __init__(self, inspector: Inspector, audited: Audited) -> None:
        self._inspector = inspector
        self._audited = audited
        self._ends: dict[str, tuple[float, IDelayedCall]] = {}  # until when, and what ends it

    def list(self, call: Call) -> LogLevelList:
        levels = self._inspector.facts.log_levels
        if levels is None:
            return LogLevelList("", [])
        rows = [
            LogLevelRow(name, level, round(self._ends[name][0], 3))
            for name, level in levels.by_namespace.items()
        ]
        return LogLevelList(levels.level, rows)

    def set(self, call: Call) -> Any:
        """
        Gives a namespace a level for a while.
        """
        body: LogLevelRequest = call.body
        levels, name = self._inspector.facts.log_levels, body.namespace
        if levels is None:
            raise Rejected(NONE, 409, "conflict")
        if body.level not in LEVELS:
            raise Rejected(f"level: expected {', '.join(LEVELS)}, found {body.level[:40]!r}")
        if not name or len(name) > MAX_CHARS or not name.isprintable():
            raise Rejected(f"namespace: expected one such as msgnode.links, found {name[:80]!r}")
        if not 0 < body.seconds <= MAX_SECONDS:
            raise Rejected(f"seconds: expected more than 0, and at most {MAX_SECONDS:.0f}")
        if name not in self._ends and len(self._ends) >= MAX_NAMESPACES:
            raise Rejected(f"{MAX_NAMESPACES} namespaces have a level already", 429, "limit")
        before = levels.of(name)

        def done() -> dict[str, Any]:
            self._end(levels, name)
            levels.by_namespace[name] = body.level
            until = self._inspector.facts.wall() + body.seconds
            self._ends[name] = until, self._inspector.clock.callLater(body.seconds, self._end, levels, name)
            return {"before": before}

        target = f"{name}: {body.level}"
        return self._audited.run(call, Plan("log-level", [target], done, before=before), body.reason)

    def _end(self, levels: LogLevels, name: str) -> None:
        levels.by_namespace.pop(name, None)
        _, call = self._ends.pop(name, (0.0, None))
        if call is not None and call.active():
            call.cancel()
