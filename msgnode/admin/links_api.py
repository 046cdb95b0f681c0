"""
The HTTP API of links and routes on the admin listener: `/api/v1/links` and `/api/v1/routes`.

Every request needs a token: with the role `viewer` or `operator` to read, `operator` for an order.
"""

from functools import partial
from typing import Any
from urllib.parse import parse_qs, unquote

import msgspec
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from msgnode.admin.actions.audited import Audited, Plan
from msgnode.admin.admin_tokens import AdminTokens
from msgnode.admin.api.endpoint import Endpoint, Reason, parameters
from msgnode.admin.api.resource import read_call
from msgnode.cluster.operator_requests import Operator
from msgnode.links.operations import MAX_LINK_COST, LinkName, LinkOperations, parse_link
from msgnode.node import Node
from msgnode.protocol.errors import Rejected
from msgnode.transport.http_answers import answer_error, answer_json

log = Logger()

VIEWER, OPERATOR = "viewer", "operator"
ORDERS = ("ban", "pause", "resume", "drain", "forget", "check")
MAX_CHECKS = 10  # at a time: each may hold a connection for 20 s
NO_FEDERATION = (
    "this node has no links to other domains; to configure them, add [federation] and [[peer]] "
    "to its configuration (docs/federation.md)"
)
NOT_STARTED = (
    "links to other domains are configured, and not started: they start with the node; if it was started "
    "before they were configured, start it again"
)

Answer = Any  # what becomes JSON
ORDER = Endpoint("POST", "links/{domain}/{order}", OPERATOR, "", lambda call: None, Any, body=Reason)


class LinksAPI(Resource):
    """
    A resource that answers for the links of `node`.
    """

    isLeaf = True

    def __init__(self, node: Node, tokens: AdminTokens) -> None:
        super().__init__()
        self._node = node
        self._tokens = tokens

    def render(self, request: Request) -> bytes | int:
        roles = (VIEWER, OPERATOR) if request.method in (b"GET", b"HEAD") else (OPERATOR,)
        try:
            operator = self._tokens.admit(request, *roles)
        except Rejected as why:
            return answer_json(request, why.code, why.body())
        try:
            operations = self._operations()
            path = [unquote(part.decode("latin-1")) for part in request.postpath or [] if part]
            found = self.answer(path, request, operations, operator)
        except Rejected as why:
            return _refused(request, why)
        except Exception:
            return _failed(request, Failure())
        if isinstance(found, Deferred):
            return _wait(found, request)
        return _answered(request, found)

    def _operations(self) -> LinkOperations:
        found, config = self._node.link_operations, self._node.config
        if found is not None:
            return found
        if config.node_listeners() or config.peer:
            raise Rejected(NOT_STARTED, 503, "failed")
        raise Rejected(NO_FEDERATION, 404, "not-found")

    def answer(
        self, path: list[str], request: Request, operations: LinkOperations, operator: Operator
    ) -> Answer:
        """
        Returns the answer to a request for this path, or a Deferred of it. Raises Rejected to refuse it.
        """
        raise NotImplementedError


class LinksResource(LinksAPI):
    """
    The resource `/api/v1/links`: other domains, with links and streams, and orders about them.

    Orders are audited actions: with a reason, and with a dry run.
    """

    def __init__(self, node: Node, tokens: AdminTokens, audited: Audited) -> None:
        super().__init__(node, tokens)
        self._audited = audited
        self._checks = 0

    def answer(
        self, path: list[str], request: Request, operations: LinkOperations, operator: Operator
    ) -> Answer:
        match path:
            case []:
                _allow(request, b"GET")
                return {"node": operations.map().node, "domains": operations.domains()}
            case [domain]:
                _allow(request, b"GET")
                return operations.domain(domain)
            case [domain, order] if order in ORDERS:
                _allow(request, b"POST")
                return self._order(order, domain, request, operations, operator)
        raise Rejected(f"expected /api/v1/links/DOMAIN/{'|'.join(ORDERS)}", 404, "not-found")

    def _order(
        self, order: str, domain: str, request: Request, operations: LinkOperations, operator: Operator
    ) -> Answer:
        if order == "check":
            return self._check(domain, operations)
        fields = parameters(request.uri.partition(b"?")[2].decode("latin-1"))
        call = read_call(ORDER, request, operator, {"domain": domain, "order": order}, fields)
        number = 1
        if order == "forget":
            number = sum(each.undelivered for each in operations.domain(domain).streams)
        elif call.is_dry_run and order != "ban":
            operations.domain(domain)  # it must be known
        plan = Plan(
            f"link {order}",
            [domain[:255]],
            partial(self._do, order, domain, operations),
            number=number,
        )
        answered: Deferred[Answer] = Deferred()  # an order goes on without its client
        done = self._audited.run(call, plan, call.body.reason)
        done.addCallback(lambda found: found if found.dry_run else found.details)
        done.chainDeferred(answered)
        return answered

    @staticmethod
    def _do(order: str, domain: str, operations: LinkOperations) -> Answer:
        if order == "forget":
            dropped = operations.forget(domain)
            return {"domain": domain, "dropped": dropped}
        getattr(operations, order)(domain)
        return msgspec.to_builtins(operations.domain(domain))

    def _check(self, domain: str, operations: LinkOperations) -> Deferred[Answer]:
        if self._checks >= MAX_CHECKS:
            raise Rejected(f"{MAX_CHECKS} checks are under way; try again later", 429, "limit")
        asked = operations.check(domain)
        self._checks += 1

        def done(result: Any) -> Any:
            self._checks -= 1
            return result

        def report(checks: Any) -> Answer:
            return {"domain": domain, "ok": all(each.result != "failed" for each in checks), "checks": checks}

        return asked.addBoth(done).addCallback(report)


class RoutesResource(LinksAPI):
    """
    The resource `/api/v1/routes`: the map of nodes and links, and explanations of routes.
    """

    def answer(
        self, path: list[str], request: Request, operations: LinkOperations, operator: Operator
    ) -> Answer:
        match path:
            case []:
                _allow(request, b"GET")
                return operations.map()
            case ["explain"]:
                _allow(request, b"GET")
                return _explain(request, operations)
        raise Rejected("expected /api/v1/routes, or /api/v1/routes/explain?address=...", 404, "not-found")


def _explain(request: Request, operations: LinkOperations) -> Answer:
    text = request.uri.partition(b"?")[2].decode("latin-1")
    query = parse_qs(text, keep_blank_values=True)
    for name in query.keys() - {"address", "without", "cost"}:
        raise Rejected(f"expected the parameters address, without and cost, found {name[:80]!r}")
    addresses = query.get("address", [])
    if len(addresses) != 1 or not addresses[0]:
        raise Rejected("expected one parameter address: an address, a domain or a node")
    own = operations.map().node
    try:
        without = [parse_link(text, own) for text in query.get("without", [])]
        costs = dict(_parse_cost(text, own) for text in query.get("cost", []))
    except ValueError as why:
        raise Rejected(str(why)) from None
    return operations.explain(addresses[0], without, costs)


def _parse_cost(text: str, own: str) -> tuple[LinkName, int]:
    link, _, number = text.rpartition("=")
    if not (number.isascii() and number.isdigit() and len(number) < 8 and 0 < int(number) <= MAX_LINK_COST):
        raise ValueError(f"expected a cost as LINK=N, N from 1 to {MAX_LINK_COST}, found {text[:80]!r}")
    return parse_link(link, own), int(number)


def _allow(request: Request, verb: bytes) -> None:
    if request.method != verb and not (verb == b"GET" and request.method == b"HEAD"):
        request.setHeader(b"Allow", verb)
        found = request.method.decode("latin-1")[:20]
        raise Rejected(f"expected {verb.decode()}, found {found}", 405, "malformed")


def _wait(asked: Deferred[Answer], request: Request) -> int:
    def gone(why: Failure) -> None:
        asked.cancel()

    request.notifyFinish().addErrback(gone)
    asked.addCallbacks(
        partial(_answered, request),
        lambda why: _refused(request, why.value) if why.check(Rejected) else _failed(request, why),
    )
    asked.addCallback(partial(_send, request))
    asked.addErrback(lambda why: log.failure("a request about links could not be answered", why))
    return NOT_DONE_YET


def _answered(request: Request, found: Answer) -> bytes:
    answer_json(request, 200, [])  # the headers; msgspec encodes a large map much faster
    return msgspec.json.encode(found) + b"\n"


def _refused(request: Request, why: Rejected) -> bytes:
    return answer_json(request, why.code, why.body() | {"reason": why.reason})


def _failed(request: Request, why: Failure) -> bytes:
    if not why.check(CancelledError):
        log.failure("the request for {path} failed", why, path=request.path)
    return answer_error(request, 500, "the node failed over this; its log says why")


def _send(request: Request, data: bytes) -> None:
    if not request._disconnected:
        request.write(data)
        request.finish()
