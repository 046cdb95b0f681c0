"""
Liveness: `/live` for load balancers, a longer `/live` for operators, and the event loop's lag.
"""

from bisect import bisect_left
from collections import deque
from typing import Any

from twisted.application.service import Service
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from msgnode import __version__
from msgnode.admin.link_metrics import live_report
from msgnode.cluster.operator_requests import NodeAnswer, Operator
from msgnode.node import Node
from msgnode.protocol.errors import Rejected
from msgnode.transport.http_answers import answer_json

LAG_SECONDS = 0.5
RECENT = 120  # measurements that are kept: those of a minute
# The upper bounds of the histogram, in seconds; what is later counts in a last bin.
LAG_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
LIVE = "live"  # the verb by which nodes ask each other
ANYBODY = Operator("", ())  # /live needs no token


class EventLoopLag(Service):
    """
    A histogram of how late the event loop runs, in seconds, measured twice a second.

    `bins` counts the measurements up to each of LAG_BOUNDS, and those beyond; `total` is their sum.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self.last = self.total = 0.0
        self.bins = [0] * (len(LAG_BOUNDS) + 1)
        self.recent: deque[float] = deque(maxlen=RECENT)
        self._clock = clock
        self._since = self._due = 0.0
        self._beat = LoopingCall(self._measure)
        self._beat.clock = clock

    def startService(self) -> None:
        super().startService()
        self._since = self._clock.seconds()
        self._due = self._since + LAG_SECONDS
        self._beat.start(LAG_SECONDS, now=False)

    def stopService(self) -> None:
        super().stopService()
        if self._beat.running:
            self._beat.stop()

    def _measure(self) -> None:
        now = self._clock.seconds()
        self.last = max(0.0, now - self._due)
        self.total += self.last
        self.bins[bisect_left(LAG_BOUNDS, self.last)] += 1
        self.recent.append(self.last)
        # A LoopingCall keeps to multiples from its beginning, and leaves out those it missed.
        beats = int((now - self._since) / LAG_SECONDS) + 1
        self._due = self._since + beats * LAG_SECONDS


class LivenessResource(Resource):
    """
    The resource `/live` on the web port: status and version, for a load balancer. `is_public`: pages of any
    origin may read it.
    """

    isLeaf = True

    def __init__(self, node: Node, is_public: bool = False) -> None:
        super().__init__()
        self._node = node
        self._is_public = is_public

    def render_GET(self, request: Request) -> bytes | int:
        if self._is_public:
            request.setHeader(b"Access-Control-Allow-Origin", b"*")
        return answer_json(request, 200, self.report())

    def report(self) -> dict[str, Any]:
        return {"status": self._status(), "version": __version__}

    def _status(self) -> str:
        """
        Returns `degraded` while messages are routed but data cannot be written to disk, or other nodes of the
        domain are not reached, else `up`.
        """
        node = self._node
        if node.takes_no_clients:
            return "draining"
        return "degraded" if node.degraded_reason() or node.cluster_degraded_reason() else "up"


class HealthResource(LivenessResource):
    """
    The resource `/live` on the admin listener. With `?node=all` it has the answer of each node of the domain.
    """

    def __init__(self, node: Node, clock: IReactorTime) -> None:
        super().__init__(node)
        self._clock = clock
        self._since = clock.seconds()
        node.operator_requests.offer(LIVE, lambda params, operator: self.report())

    def render_GET(self, request: Request) -> bytes | int:
        if request.args is None or request.args.get(b"node") != [b"all"]:
            return super().render_GET(request)
        try:
            asked = self._node.operator_requests.ask_all(LIVE, {}, ANYBODY)
        except Rejected as why:
            return answer_json(request, why.code, why.body())
        request.notifyFinish().addErrback(lambda why: asked.cancel())
        asked.addCallback(self._answer_all, request)
        return NOT_DONE_YET

    def _answer_all(self, answers: dict[str, NodeAnswer], request: Request) -> None:
        """
        Answers with what `/live` of each node says, or why it said nothing.
        """
        nodes = {node: each.report() for node, each in answers.items()}
        if not request._disconnected:
            request.write(answer_json(request, 200, {"nodes": nodes}))
            request.finish()

    def report(self) -> dict[str, Any]:
        attached, away = sessions_by_state(self._node)
        peers, cluster = self._peers(), self._node.cluster_status
        return {
            **super().report(),
            "node": self._node.config.node,
            "domain": self._node.config.domain,
            "uptime": round(self._clock.seconds() - self._since, 3),
            "sessions": {"attached": attached, "away": away},
            "connectors": {name: n for name, n in self._node.sessions.connections.by_connector.items() if n},
            "store": self._store(),
            **({"objects": objects} if (objects := self._objects()) is not None else {}),
            "data_plane": "native" if self._node.data_plane.is_native else "python",
            **({"peers": peers} if peers is not None else {}),
            **({"cluster": cluster.report()} if cluster is not None else {}),
            **self._stubs(),
        }

    def _stubs(self) -> dict[str, Any]:
        """
        Returns the number of foreign stubs by state; empty if the node accepts none.
        """
        stubs = self._node.stubs
        if stubs is None or stubs.domains is None:
            return {}
        return {"stubs": {state: number for state, number in stubs.by_state().items() if number}}

    def _peers(self) -> dict[str, Any] | None:
        """
        Returns the other domains; None if the node is configured for none, and knows of none.
        """
        operations, config = self._node.link_operations, self._node.config
        if operations is None:
            return None
        found = live_report(operations, config.domain)
        return found if found or config.node_listeners() or config.peer else None

    def _objects(self) -> dict[str, Any] | None:
        """
        Returns the kept objects and the state of their journal; None if none are kept.
        """
        journal = self._node.objects.journal
        if journal is None:
            return None
        return {"kept": len(journal), "bytes": journal.segments.size, "journal": journal.failing or "ok"}

    def _store(self) -> str:
        """
        Returns `ok`, `none` without a state directory, or the reason why data cannot be written to disk.
        """
        return "none" if self._node.config.state == "none" else self._node.degraded_reason() or "ok"


def sessions_by_state(node: Node) -> tuple[int, int]:
    """
    Returns the number of connected and of disconnected sessions.
    """
    attached = sum(node.sessions.attached.values())
    return attached, len(node.sessions) - attached
