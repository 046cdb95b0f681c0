"""
The HTTP API of what happens now: `/api/v1/events` and `/api/v1/traces` on the admin listener.
"""

from collections.abc import Callable
from functools import partial

from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from msgnode.admin.api.resource import AdminAPI
from msgnode.admin.live.event_ring import STORED_KINDS
from msgnode.admin.live.event_stream import FIELDS, EventStreams
from msgnode.admin.live.traces import Trace, Traces
from msgnode.cluster.operator_requests import Operator
from msgnode.connectors.http.requests import headers, parameters
from msgnode.protocol.errors import FAILED, Rejected
from msgnode.transport.http_answers import answer_error, answer_json

log = Logger()

VIEWER, OPERATOR, ADMIN = "viewer", "operator", "admin"

Admit = Callable[..., Operator]  # returns who asks, or raises Rejected: of a request, and the roles allowed


class EventsResource(Resource):
    """
    The resource `/api/v1/events`. `admit` checks who asks, now and as long as the stream lasts.
    """

    isLeaf = True

    def __init__(self, streams: EventStreams, admit: Admit) -> None:
        super().__init__()
        self._streams = streams
        self._admit = admit

    def render(self, request: Request) -> bytes | int:
        try:
            _only(request, b"GET")
            query = parameters(request)
            named = query.get("kinds")
            kinds = frozenset(STORED_KINDS if named is None else filter(None, named.split(",")))
            roles = (ADMIN,) if named is not None and "audit" in kinds else (VIEWER,)
            operator = self._admit(request, *roles)
            if not operator.has_role(ADMIN):
                kinds -= {"audit"}
            last_id = next(iter(headers(request, b"Last-Event-ID")), query.pop("last_id", ""))
            wanted = {key: query[key] for key in FIELDS if key in query}
            may = partial(self._may, request, roles)
            self._streams.open(request, operator.name, kinds, wanted, last_id[:100], may)
        except Rejected as why:
            return answer_json(request, why.code, why.body())
        return NOT_DONE_YET

    def _may(self, request: Request, roles: tuple[str, ...]) -> bool:
        try:
            self._admit(request, *roles)
        except Rejected:
            return False
        return True


class TracesResource(Resource):
    """
    The resource `/api/v1/traces`: the lines of a trace, which a cookie opens, too; everything else is
    answered by the endpoints of the API.
    """

    def __init__(self, traces: Traces, admit: Admit, api: AdminAPI) -> None:
        super().__init__()
        self._traces = traces
        self._admit = admit
        self._api = api

    def getChild(self, path: bytes, request: Request) -> Resource:
        rest = request.postpath or []
        if rest == [b"lines"]:
            return TraceLinesResource(self._traces, self._admit, path.decode("latin-1"))
        return self._api.leaf([b"traces", path, *rest])

    def render(self, request: Request) -> bytes | int:
        return self._api.respond(request, [b"traces"])


class TraceLinesResource(Resource):
    """
    The resource of the lines of one trace; docs/dashboard.md describes its headers.
    """

    isLeaf = True

    def __init__(self, traces: Traces, admit: Admit, id: str) -> None:
        super().__init__()
        self._traces = traces
        self._admit = admit
        self._id = id

    def render(self, request: Request) -> bytes | int:
        try:
            _only(request, b"GET")
            self._admit(request, OPERATOR)
            trace = self._traces.get(self._id)
            if trace.bodies or trace.forbidden:  # the lines may have what is for the role admin only
                self._admit(request, ADMIN)
            at = parameters(request).get("from", "0")
            if not (at.isascii() and at.isdecimal() and len(at) <= 12):
                raise Rejected(f"from: expected a number of bytes, found {at[:40]!r}")
            state = trace.state
            found = self._traces.read(trace.id, int(at))
        except Rejected as why:
            return answer_json(request, why.code, why.body())
        found.addCallback(_send_lines, int(at), trace, state, request)
        found.addErrback(_failed, request)
        return NOT_DONE_YET


def _send_lines(data: bytes, at: int, trace: Trace, state: str, request: Request) -> None:
    """
    Sends lines; Trace-Next says where the next ones begin, Trace-State whether there will be more.
    """
    whole = at + len(data) >= trace.bytes
    request.setHeader(b"Content-Type", b"application/x-ndjson")
    request.setHeader(b"Cache-Control", b"no-store")
    request.setHeader(b"Content-Disposition", f'attachment; filename="trace-{trace.id}.jsonl"'.encode())
    request.setHeader(b"Trace-Next", str(at + len(data)).encode())
    request.setHeader(b"Trace-State", (state if whole else "more").encode())
    _finish(request, data)


def _failed(why: Failure, request: Request) -> None:
    if isinstance(why.value, FileNotFoundError):
        _finish(request, answer_error(request, 404, "the lines of this trace were deleted"))
        return
    log.failure("a trace could not be read", why)
    _finish(request, answer_error(request, 500, FAILED))


def _finish(request: Request, data: bytes) -> None:
    if not request._disconnected:
        request.setHeader(b"Content-Length", str(len(data)).encode())
        request.write(data)
        request.finish()


def _only(request: Request, *methods: bytes) -> None:
    if request.method not in methods:
        request.setHeader(b"Allow", b", ".join(methods))
        raise Rejected(f"{request.method.decode('latin-1')} is not possible here", 405, "malformed")
