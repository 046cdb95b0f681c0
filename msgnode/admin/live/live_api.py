"""
The HTTP API of what happens now: `/api/v1/events` and `/api/v1/traces` on the admin listener.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from msgnode.admin.live.event_ring import STORED_KINDS
from msgnode.admin.live.event_stream import FIELDS, EventStreams
from msgnode.admin.live.trace_filter import TraceFilter
from msgnode.admin.live.traces import Trace, Traces
from msgnode.cluster.operator_requests import Operator
from msgnode.connectors.http.requests import headers, parameters
from msgnode.protocol.errors import FAILED, Rejected
from msgnode.protocol.peer_address import peer_name
from msgnode.transport.http_answers import answer_error, answer_json

log = Logger()

VIEWER, OPERATOR, ADMIN = "viewer", "operator", "admin"
MAX_BODY_BYTES = 16 * 1024

Note = Callable[..., None]  # notes for the audit log: operator, peer, action, target, reason


def _note_nothing(operator: Operator, peer: str, action: str, target: str, reason: str) -> None:
    pass


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
            if not self._admit(request, *roles).has_role(ADMIN):
                kinds -= {"audit"}
            last_id = next(iter(headers(request, b"Last-Event-ID")), query.pop("last_id", ""))
            wanted = {key: query[key] for key in FIELDS if key in query}
            self._streams.open(request, kinds, wanted, last_id[:100], partial(self._may, request, roles))
        except Rejected as why:
            return answer_json(request, why.code, why.body())
        return NOT_DONE_YET

    def _may(self, request: Request, roles: tuple[str, ...]) -> bool:
        try:
            self._admit(request, *roles)
        except Rejected:
            return False
        return True


class TraceOrder(Struct, forbid_unknown_fields=True):
    """
    An order for a trace: its filter, its seconds and its lines at most; `bodies` needs the role admin.
    """

    session: str = ""
    user: str = ""
    peer: str = ""
    address: str = ""
    id: str = ""
    seconds: float = 300.0
    max: int = 10_000
    bodies: bool = False
    reason: str = ""


class TracesResource(Resource):
    """
    The resource `/api/v1/traces`; docs/dashboard.md has the paths.
    """

    isLeaf = True

    def __init__(self, traces: Traces, admit: Admit, note: Note = _note_nothing) -> None:
        super().__init__()
        self._traces = traces
        self._admit = admit
        self._note = note

    def render(self, request: Request) -> bytes | int:
        try:
            path = [part.decode("latin-1") for part in request.postpath or [] if part]
            return self._answer(path, request)
        except Rejected as why:
            return answer_json(request, why.code, why.body())

    def _answer(self, path: list[str], request: Request) -> bytes | int:
        match path, request.method:
            case [], b"GET":
                self._admit(request, VIEWER)
                return answer_json(request, 200, {"traces": [each.as_dict() for each in self._traces]})
            case [], b"POST":
                return answer_json(request, 201, self._start(request).as_dict())
            case [id], b"GET":
                self._admit(request, VIEWER)
                return answer_json(request, 200, self._traces.get(id).as_dict())
            case [id], b"DELETE":
                operator = self._admit(request, OPERATOR)
                self._tell("delete", self._traces.delete(id), operator, request)
                return answer_json(request, 200, {"deleted": id})
            case [id, "stop"], b"POST":
                operator = self._admit(request, OPERATOR)
                trace = self._traces.stop(id)
                self._tell("stop", trace, operator, request)
                return answer_json(request, 200, trace.as_dict())
            case [id, "lines"], b"GET":
                return self._lines(id, request)
            case [] | [_] | [_, "stop" | "lines"], _:
                raise Rejected(f"{request.method.decode('latin-1')} is not possible here", 405, "malformed")
        raise Rejected("expected /api/v1/traces[/ID[/lines|/stop]]", 404, "not-found")

    def _start(self, request: Request) -> Trace:
        operator = self._admit(request, OPERATOR)
        order = _order(request)
        if order.bodies and not operator.has_role(ADMIN):
            raise Rejected("bodies are for the role admin only", 403, "policy")
        filter = TraceFilter(order.session, order.user, order.peer, order.address, order.id)
        trace = self._traces.start(
            filter, order.seconds, order.max, operator.name, order.bodies, operator.has_role(ADMIN)
        )
        self._tell("start", trace, operator, request, order.reason)
        return trace

    def _tell(self, what: str, trace: Trace, operator: Operator, request: Request, reason: str = "") -> None:
        filter = " ".join(f"{key} {value}" for key, value in trace.filter.as_dict().items() if value)
        target = f"{trace.id}: {filter}{' with bodies' if trace.bodies else ''}"
        self._note(operator, peer_name(request.getClientAddress()), f"trace {what}", target, reason)
        log.info("trace {target}: {what} by {who}", target=target, what=what, who=operator.name)

    def _lines(self, id: str, request: Request) -> bytes | int:
        trace = self._traces.get(id)
        # The lines may have what is for the role admin only.
        self._admit(request, ADMIN if trace.bodies or trace.forbidden else OPERATOR)
        at = parameters(request).get("from", "0")
        if not at.isdecimal() or len(at) > 12:
            raise Rejected(f"from: expected a number of bytes, found {at[:40]!r}")
        state = trace.state
        found = self._traces.read(id, int(at))
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


def _order(request: Request) -> TraceOrder:
    content: Any = request.content
    data: bytes = content.read(MAX_BODY_BYTES + 1)
    if len(data) > MAX_BODY_BYTES:
        raise Rejected(f"the body has at most {MAX_BODY_BYTES} bytes", 413, "too-long")
    try:
        return msgspec.json.decode(data or b"{}", type=TraceOrder)
    except msgspec.DecodeError as why:
        raise Rejected(f"the body: {why}"[:300]) from None


def _only(request: Request, *methods: bytes) -> None:
    if request.method not in methods:
        request.setHeader(b"Allow", b", ".join(methods))
        raise Rejected(f"{request.method.decode('latin-1')} is not possible here", 405, "malformed")
