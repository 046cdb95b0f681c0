"""
Views: what each page shows, from the answers of the admin API.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, gatherResults

from msgnode.admin.live.event_ring import EventRing
from msgnode.admin.pages.forms import SESSION_FILTERS
from msgnode.admin.pages.page_calls import PageCalls
from msgnode.admin.pages.topology import Topology
from msgnode.cluster.operator_requests import Operator
from msgnode.protocol.errors import Rejected

SERIES = (
    "sessions_attached",
    "sessions_away",
    "in_messages",
    "out_messages",
    "refused",
    "lag",
    "waiting_bytes",
    "rss",
    "delivery_p50",
    "delivery_p99",
)
HISTORY_SECONDS = 3600.0
PAGE_ROWS = "50"
RING_ROWS = "1000"
SHOWN_ROWS = 100
GROUPS = ("reason", "session", "peer", "to", "rule", "user")
# Lists of sessions that operators often want.
PRESETS: tuple[tuple[str, dict[str, str]], ...] = (
    ("All", {}),
    ("Slow", {"state": "slow", "sort": "-waiting_bytes"}),
    ("Holding memory", {"sort": "-waiting_bytes"}),
    ("Away and full", {"state": "away", "sort": "-waiting"}),
    ("Sending most", {"sort": "-in_messages"}),
    ("Refused most", {"sort": "-refused"}),
    ("Flapping", {"min_reconnects": "10", "sort": "-reconnects_1h"}),
    ("Anonymous", {"anonymous": "true"}),
    ("Token ends soon", {"token_ends_in": "3600"}),
    ("Silent for an hour", {"state": "attached", "idle_over": "3600"}),
)
TROUBLE_LINKS = {
    "slow": "/sessions?state=slow&sort=-waiting_bytes",
    "cluster": "/nodes",
    "relay": "/addresses",
    "config": "/config",
    "lag": "/top",
}
COLUMNS = (
    ("runtime", "Session"),
    ("", "State"),
    ("", "User"),
    ("", "From"),
    ("since", "Since"),
    ("-last_in", "Last message"),
    ("-waiting_bytes", "Waiting"),
    ("-unacked_bytes", "Unacknowledged"),
    ("-in_messages", "In"),
    ("-out_messages", "Out"),
    ("-refused", "Refused"),
    ("-addresses", "Addresses"),
)
FILTERS = (*SESSION_FILTERS, "sort", "node")


class Visit(NamedTuple):
    """
    A visit to a page: who looks, from where, with which parameters.
    """

    operator: Operator
    peer: str
    query: dict[str, str]
    csrf: str

    def may(self, *roles: str) -> bool:
        return self.operator.has_role("admin", *roles)


Shown = tuple[str, dict[str, Any]]  # the template, and what it needs


class Views:
    """
    The pages on the node, its sessions and refusals. `look` puts into the ring what has happened.
    """

    def __init__(
        self,
        calls: PageCalls,
        ring: EventRing,
        look: Callable[[], None],
        topology: Topology,
        wall: Callable[[], float],
    ) -> None:
        self._calls = calls
        self._ring = ring
        self._look = look
        self._topology = topology
        self._wall = wall
        self.pages: dict[str, Callable[[Visit], Any]] = {
            "": self.overview,
            "sessions": self.sessions,
            "session": self.session,
            "refusals": self.refusals,
        }

    def _get(self, visit: Visit, *path: str, **query: str) -> Deferred[Any]:
        return self._calls.ask("GET", list(path), visit.operator, visit.peer, query)

    def overview(self, visit: Visit) -> Deferred[Shown]:
        """
        The health of the node: troubles, figures, listeners, back ends, and the last events.
        """
        since = str(self._wall() - HISTORY_SECONDS)
        asked = [
            self._get(visit, "node"),
            self._get(visit, "series", names=",".join(SERIES), step="5", **{"from": since}),
        ]
        if self._topology.is_cluster:
            asked.append(self._topology.nodes())
        found = gatherResults(asked, consumeErrors=True)
        found.addErrback(first_failure)
        return found.addCallback(self._overview, visit)

    def _overview(self, found: list[Any], visit: Visit) -> Shown:
        node, history, *others = found
        start, series = begun(history["start"], history["step"], history["series"])
        chart = {
            "start": start,
            "step": history["step"],
            "ins": series["in_messages"],
            "outs": series["out_messages"],
        }
        return "overview.html", {
            "node": node,
            "series": series,
            "chart": chart,
            "nodes": others[0] if others else {},
            "events": self._events(visit, 10),
            "trouble_links": TROUBLE_LINKS,
            "may_admin": visit.may(),
            "now": self._wall(),
        }

    def _events(self, visit: Visit, most: int) -> list[dict[str, Any]]:
        self._look()
        found = []
        for event in reversed(self._ring):
            if event.kind != "audit" or visit.may():
                found.append(event.as_dict())
                if len(found) == most:
                    break
        return found

    def sessions(self, visit: Visit) -> Deferred[Shown]:
        """
        The sessions, filtered and sorted.
        """
        query = {name: visit.query[name] for name in FILTERS if visit.query.get(name)}
        asked = self._get(visit, "sessions", **query, limit=PAGE_ROWS, cursor=visit.query.get("cursor", ""))
        filters = {name: value for name, value in query.items() if name not in ("sort", "node")}

        def shown(found: dict[str, Any]) -> Shown:
            return "sessions.html", {
                "found": found,
                "query": query,
                "filters": filters,
                "sort": query.get("sort", "runtime"),
                "presets": PRESETS,
                "columns": COLUMNS,
                "states": ("attached", "away", "slow", "superseding"),
                "nodes": self._topology.names if self._topology.is_cluster else [],
                "may_act": visit.may("operator") and not query.get("node"),
                "now": self._wall(),
            }

        return asked.addCallback(shown)

    def session(self, visit: Visit) -> Deferred[Shown]:
        """
        One session: who it is, what waits for it, what was refused.
        """
        runtime = visit.query.get("name", "")
        if not runtime:
            raise Rejected("name a session: /session?name=runtime://...", 404, "not-found")

        def shown(found: dict[str, Any]) -> Shown:
            return "session.html", {
                "found": found,
                "session": found["session"],
                "events": found["events"],
                "to": visit.query.get("to", ""),
                "type": visit.query.get("type", "create"),
                "may_act": visit.may("operator"),
                "now": self._wall(),
            }

        asked = {name: visit.query[name] for name in ("to", "type") if visit.query.get(name)}
        return self._get(visit, "sessions", runtime, **asked).addCallback(shown)

    def refusals(self, visit: Visit) -> Deferred[Shown]:
        """
        The last refusals, grouped.
        """
        query = {
            name: visit.query[name]
            for name in ("code", "reason", "session", "peer", "to", "rule")
            if visit.query.get(name)
        }
        group = visit.query.get("group", "reason")
        if group not in GROUPS:
            raise Rejected(f"group: expected one of {', '.join(GROUPS)}")

        def shown(found: dict[str, Any]) -> Shown:
            counts: Counter[str] = Counter()
            for row in found["refusals"]:
                counts[row[group]] += row["count"]
            return "refusals.html", {
                "found": found,
                "rows": found["refusals"][:SHOWN_ROWS],
                "query": query,
                "group": group,
                "groups": GROUPS,
                "counts": counts.most_common(10),
                "most": max(counts.values(), default=1),
                "can_filter": group in ("reason", "session", "peer", "to", "rule"),
            }

        return self._get(visit, "refusals", **query, limit=RING_ROWS).addCallback(shown)


def begun(
    start: float, step: float, series: dict[str, list[float | None]]
) -> tuple[float, dict[str, list[float | None]]]:
    """
    The series from the first time for which there is a figure, and that time.
    """
    empty = next((n for n, values in enumerate(zip(*series.values(), strict=True)) if any(values)), 0)
    return start + empty * step, {name: values[empty:] for name, values in series.items()}


def first_failure(why: Any) -> Any:
    """
    The failure of one call, in the place of that of all of them.
    """
    return getattr(why.value, "subFailure", why)
