"""
The HTTP resource of the admin API: it finds the endpoint, reads parameters and body, and sends the answer.

Long answers are encoded in slices, so that none holds the event loop.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import msgspec
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from msgnode.admin.access.request_peer import peer_of
from msgnode.admin.admin_tokens import AdminTokens
from msgnode.admin.api.endpoint import Call, Endpoint, parameters, read_body, read_query
from msgnode.admin.api.openapi import description
from msgnode.admin.api.reach import Reach
from msgnode.admin.survey import in_slices
from msgnode.cluster.operator_requests import Operator
from msgnode.node import Node
from msgnode.protocol.errors import FAILED, Rejected, error_body
from msgnode.transport.http_answers import write_all

log = Logger()

ANY = ("viewer", "operator", "policy-manager", "admin", "metrics")
MANY_ROWS = 50  # that are encoded in one turn
OPENAPI = "openapi.json"


class AdminAPI(Resource):
    """
    The resource `/api/v1`. Its children by name, which other modules add, answer before its endpoints.
    """

    def __init__(self, node: Node, tokens: AdminTokens, endpoints: Iterable[Endpoint]) -> None:
        super().__init__()
        self._node = node
        self._tokens = tokens
        self.endpoints = list(endpoints)
        self._description = description(self.endpoints)
        self.reach = Reach(node.operator_requests, self.endpoints)

    def getChild(self, path: bytes, request: Request) -> Resource:
        assert request.postpath is not None
        return self.leaf([path, *request.postpath])

    def leaf(self, path: list[bytes]) -> Resource:
        """
        The resource of a path below /api/v1.
        """
        return _Leaf(self, path)

    def render(self, request: Request) -> bytes | int:
        return self.respond(request, [])

    def respond(self, request: Request, path: list[bytes]) -> bytes | int:
        """
        Answers the request for the path below /api/v1.
        """
        asked = maybeDeferred(self._respond, request, [part.decode("utf-8", "replace") for part in path])
        if request.method in (b"GET", b"HEAD"):  # an action goes on without its client
            request.notifyFinish().addErrback(lambda gone: asked.cancel())
        else:
            request.notifyFinish().addErrback(lambda gone: None)
        asked.addCallbacks(partial(self._answer, request), partial(_failed, request))
        asked.addErrback(partial(_failed, request))
        asked.addErrback(
            lambda why: log.failure("a request to the admin listener could not be answered", why)
        )
        return NOT_DONE_YET

    def _respond(self, request: Request, path: list[str]) -> Any:
        if path == [OPENAPI]:
            self._tokens.admit(request, *ANY)
            return msgspec.Raw(self._description)
        endpoint, parts = self._find(request, path)
        operator = self._tokens.admit(request, endpoint.role)
        fields = parameters(request.uri.partition(b"?")[2].decode("latin-1"))
        where = fields.pop("node", "") if endpoint.is_read else ""
        if where:
            return self.reach.ask(where, endpoint, parts, fields, operator)
        return self.reach.act(endpoint, read_call(endpoint, request, operator, parts, fields))

    def _find(self, request: Request, path: list[str]) -> tuple[Endpoint, dict[str, str]]:
        verb = request.method.decode("latin-1")[:20]
        verb = "GET" if verb == "HEAD" else verb
        allowed = []
        for each in self.endpoints:
            parts = each.matched(path)
            if parts is None:
                continue
            if each.verb == verb:
                return each, parts
            allowed.append(each.verb)
        self._tokens.admit(request, *ANY)
        if allowed:
            request.setHeader(b"Allow", ", ".join(allowed).encode())
            raise Rejected(f"expected {' or '.join(allowed)}, found {verb}", 405, "malformed")
        known = ", ".join(sorted({each.path.partition("/")[0] for each in self.endpoints}))
        text = f"nothing at /api/v1/{'/'.join(path)[:200]}; there are {known} (/api/v1/{OPENAPI})"
        raise Rejected(text, 404, "not-found")

    # -- answers ----------------------------------------------------------------------------

    def _answer(self, request: Request, found: Any) -> Any:
        if request._disconnected:
            return None
        rows = long_list(found)
        if rows is None or len(getattr(found, rows)) <= MANY_ROWS:
            _send(request, 200, [msgspec.json.encode(found)])
            return None
        parts: list[bytes] = []
        done: Deferred[Any] = self._node.slices.work(encoded(found, rows, parts))
        return done.addCallback(lambda finished: _send(request, 200, parts))


class _Leaf(Resource):
    """
    A resource for every path below /api/v1.
    """

    isLeaf = True

    def __init__(self, api: AdminAPI, path: list[bytes]) -> None:
        super().__init__()
        self._api = api
        self._path = path

    def render(self, request: Request) -> bytes | int:
        return self._api.respond(request, self._path)


def read_call(
    endpoint: Endpoint,
    request: Request,
    operator: Operator,
    parts: dict[str, str],
    fields: dict[str, str],
) -> Call:
    """
    The call of an endpoint that a request makes. Raises Rejected.
    """
    dry_run, confirm = False, None
    if endpoint.verb != "GET":
        dry_run = fields.pop("dry_run", "0").lower() not in ("", "0", "false")
        if "confirm" in fields:
            text = fields.pop("confirm")
            if not (text.isascii() and text.isdigit() and len(text) < 10):
                raise Rejected(f"parameter confirm: expected a number, found {text[:40]!r}")
            confirm = int(text)
    query = read_query(endpoint.query, fields)
    body = None
    if endpoint.body is not None:
        assert request.content is not None
        data = request.content.read()
        reason = next(iter(request.requestHeaders.getRawHeaders(b"X-Reason", [])), b"")
        if reason and not data:
            data = msgspec.json.encode({"reason": reason.decode("utf-8", "replace")})
        body = read_body(endpoint.body, data)
    agent = next(iter(request.requestHeaders.getRawHeaders(b"User-Agent", [])), b"")
    via = "cli" if agent.startswith(b"msgnode-cli") else "api"
    return Call(operator, peer_of(request), via, parts, query, body, dry_run, confirm)


def long_list(found: Any) -> str | None:
    """
    The name of the field with the rows of a long answer, if its type has one.
    """
    return getattr(type(found), "rows_in", None)


def encoded(found: Any, rows: str, parts: list[bytes]) -> Iterator[None]:
    """
    Puts the JSON of an answer into `parts`, its rows in slices.
    """
    head: dict[str, Any] = {
        field.encode_name: getattr(found, field.name)
        for field in msgspec.structs.fields(found)
        if field.name != rows
    }
    start = msgspec.json.encode(head)
    separator = b"," if head else b""
    parts += [start[:-1], separator, msgspec.json.encode(rows), b":["]
    encode = msgspec.json.encode

    def steps() -> Iterator[None]:
        for number, row in enumerate(getattr(found, rows)):
            if number:
                parts.append(b",")
            parts.append(encode(row))
            yield

    yield from in_slices(steps())
    parts.append(b"]}")


def _send(request: Request, status: int, parts: list[bytes]) -> None:
    if request._disconnected:
        return
    request.setResponseCode(status)
    request.setHeader(b"Content-Type", b"application/json")
    request.setHeader(b"Cache-Control", b"no-store")
    request.setHeader(b"X-Content-Type-Options", b"nosniff")
    parts = [*parts, b"\n"]
    request.setHeader(b"Content-Length", str(sum(map(len, parts))).encode())
    if request.method == b"HEAD":
        request.finish()
        return
    write_all(request, parts)


def _failed(request: Request, why: Failure) -> None:
    if why.check(CancelledError):
        return
    if isinstance(why.value, Rejected):
        found = why.value
        body = {**found.body(), "reason": found.reason}
        retry_after = getattr(found, "retry_after", None)
        if retry_after is not None:
            request.setHeader(b"Retry-After", str(round(retry_after)).encode())
        _send(request, found.code, [msgspec.json.encode(body)])
        return
    log.failure("the request for {path} failed", why, path=request.path)
    body = {**error_body(500, FAILED.replace("message", "request")), "reason": "failed"}
    _send(request, 500, [msgspec.json.encode(body)])
