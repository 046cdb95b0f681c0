"""
The pages on who makes the load, who holds the memory, and the configuration in effect.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from msgnode.admin.pages.page_calls import PageCalls
from msgnode.admin.pages.views import Shown, Visit
from msgnode.protocol.errors import Rejected

TOP_ROWS = "50"
# By what the heaviest are sorted: the parameter `by` of the API, and its title.
MEASURES = (
    ("in_messages", "Messages in"),
    ("in_bytes", "Bytes in"),
    ("out_messages", "Messages out"),
    ("out_bytes", "Bytes out"),
    ("refused", "Refused"),
    ("waiting_bytes", "Waiting"),
    ("unacked_bytes", "Unacknowledged"),
)
GROUPS = ("session", "user", "peer")
NAMELESS = ("nobody", "away", "unix")  # rows of users and peers that no list of sessions can be filtered by
# The owners of memory, in the words of the page.
OWNERS = {
    "waiting": "Messages that wait",
    "unacked": "Messages not acknowledged",
    "output": "Output that is not taken",
    "connections": "Connections",
    "sessions": "Sessions",
    "routes": "Their addresses and keys",
    "policies": "Policies",
    "decisions": "Remembered decisions",
    "tokens": "Remembered tokens",
    "other": "Python and the rest",
}
ESTIMATED = ("connections", "policies", "decisions", "tokens")


class NodeViews:
    """
    The pages `top`, `memory` and `config`.
    """

    def __init__(self, calls: PageCalls, wall: Callable[[], float]) -> None:
        self._calls = calls
        self._wall = wall
        self.pages: dict[str, Callable[[Visit], Any]] = {
            "top": self.top,
            "memory": self.memory,
            "config": self.config,
        }

    def _get(self, visit: Visit, *path: str, **query: str) -> Deferred[Any]:
        return self._calls.ask("GET", list(path), visit.operator, visit.peer, query)

    def top(self, visit: Visit) -> Deferred[Shown]:
        """
        The heaviest sessions, users or peers.
        """
        query = {name: visit.query[name] for name in ("by", "group") if visit.query.get(name)}

        def shown(found: dict[str, Any]) -> Shown:
            return "top.html", {
                "found": found,
                "query": {"by": found["by"], "group": found["group"]},
                "measures": MEASURES,
                "groups": GROUPS,
                "nameless": NAMELESS,
                "most": max((row["value"] for row in found["rows"]), default=0) or 1,
                "now": self._wall(),
            }

        return self._get(visit, "top", **query, limit=TOP_ROWS).addCallback(shown)

    def memory(self, visit: Visit) -> Deferred[Shown]:
        """
        Memory by owner, the sessions that hold most, the disk, and the backups.
        """
        return Deferred.fromCoroutine(self._memory(visit))

    async def _memory(self, visit: Visit) -> Shown:
        memory, node = await self._get(visit, "memory"), await self._get(visit, "node")
        context = {"memory": memory, "node": node, "owners": OWNERS, "estimated": ESTIMATED}
        context |= {"backups": None, "may_admin": visit.may(), "now": self._wall()}
        if visit.may():
            try:
                context["backups"] = await self._get(visit, "backup")
            except Rejected as why:
                if why.code != 409:  # there is no state directory
                    raise
        return "memory.html", context

    def config(self, visit: Visit) -> Deferred[Shown]:
        """
        The configuration in effect, and where each key comes from.
        """
        part, only = visit.query.get("q", "").strip(), visit.query.get("only", "")
        wanted = {"changed": _is_changed, "restart": _needs_restart}.get(only, _any)

        def shown(found: dict[str, Any]) -> Shown:
            rows = [row for row in found["keys"] if part in row["key"] and wanted(row)]
            return "config.html", {
                "found": found,
                "rows": rows,
                "q": part,
                "only": only,
                "pending": sum(map(_needs_restart, found["keys"])),
                "may_admin": visit.may(),
            }

        return self._get(visit, "config").addCallback(shown)


def _any(row: dict[str, Any]) -> bool:
    return True


def _is_changed(row: dict[str, Any]) -> bool:
    return bool(row["origin"] != "default")


def _needs_restart(row: dict[str, Any]) -> bool:
    return bool(row["needs_restart"])
