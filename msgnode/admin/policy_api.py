"""
The HTTP API of the policies on the admin listener: `/policy/...`.

Every request needs a token with the role `policy-manager`
(`Authorization: Bearer`, the file admin-token in the state directory).
"""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, unquote

from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from msgnode.admin.access.request_peer import peer_of
from msgnode.admin.actions.audited import check_reason
from msgnode.admin.admin_tokens import AdminTokens
from msgnode.cluster.operator_requests import Operator
from msgnode.policy.administration.commands import PolicyCommands
from msgnode.policy.administration.policy_store import PolicyRejected
from msgnode.protocol.errors import Rejected
from msgnode.transport.http_answers import answer_error, answer_json

log = Logger()

ROLE = "policy-manager"
Asked = tuple[str, dict[str, Any]]
UNCHANGING = ("explain", "validate")  # though they are no GET
Note = Callable[[Operator, str, str, str, str, str], None]  # peer, action, target, reason, result


def _note_nothing(operator: Operator, peer: str, action: str, target: str, reason: str, result: str) -> None:
    pass


# Verb and path of each method; {name} is a part of the path, the rest
# names the body: one parameter as a whole, or an object of parameters.
ROUTES: dict[tuple[str, str], tuple[str, str | None]] = {
    ("GET", "policies"): ("policies", None),
    ("PUT", "policies"): ("savePolicies", "document"),
    ("GET", "policies/{key}"): ("policy", None),
    ("PUT", "policies/{key}"): ("addPolicy", "policy"),
    ("DELETE", "policies/{key}"): ("removePolicy", None),
    ("PATCH", "policies/{key}"): ("patchPolicy", "fields"),
    ("GET", "policies/{key}/{policyKey}"): ("policyOf", None),
    ("PUT", "policies/{key}/{policyKey}"): ("addPolicyTo", "policy"),
    ("PATCH", "policies/{key}/{policyKey}"): ("patchPolicy", "fields"),
    ("DELETE", "policies/{key}/{policyKey}"): ("removePolicyOf", None),
    ("GET", "groups"): ("groups", None),
    ("PUT", "groups/{groupName}"): ("createGroup", "members"),
    ("DELETE", "groups/{groupName}"): ("deleteGroup", None),
    ("PUT", "groups/{groupName}/{userEmail}"): ("addToGroup", None),
    ("DELETE", "groups/{groupName}/{userEmail}"): ("removeFromGroup", None),
    ("POST", "validate"): ("validate", "document"),
    ("POST", "explain"): ("explain", "*"),
    ("GET", "dry-run"): ("dryRun", None),
    ("POST", "dry-run"): ("dryRun", "document"),
    ("DELETE", "dry-run"): ("dryRun", ""),
    ("GET", "versions"): ("versions", None),
    ("POST", "rollback"): ("rollback", "*"),
    ("GET", "decisions"): ("decisions", None),
    ("GET", "stats"): ("stats", None),
}


class PolicyAdmin(Resource):
    """
    The resource `/policy`; docs/policy.md, "Managing policies", has the paths.

    `needs_reason`: a change without one in the header X-Reason is refused. Older clients of `/policy` send
    none.
    """

    isLeaf = True

    def __init__(
        self,
        commands: PolicyCommands,
        tokens: AdminTokens,
        note: Note = _note_nothing,
        needs_reason: bool = False,
    ) -> None:
        super().__init__()
        self._commands = commands
        self._tokens = tokens
        self._note = note
        self._needs_reason = needs_reason

    def render(self, request: Request) -> bytes | int:
        try:
            operator = self._tokens.admit(request, ROLE)
            method, params = _understood(request)
            if request.method != b"GET" and method != "explain":
                params |= _conditions(request)
            changes = request.method != b"GET" and method not in UNCHANGING
            reason = _reason(request)
            if changes and (self._needs_reason or reason):
                check_reason(reason)
            asked = self._commands.ask(method, params, f"the admin listener, {peer_of(request)}")
        except Rejected as why:
            return _rejected(request, why)
        gone = request.notifyFinish()
        gone.addErrback(lambda lost: asked.cancel() if method in ("explain", "validate") else None)
        if changes:
            asked.addBoth(self._changed, operator, request, method, params)
        asked.addCallback(_answered, request)
        asked.addErrback(_failed, request)
        asked.addErrback(
            lambda why: log.failure("the request for {path} could not be handled", why, path=request.path)
        )
        return NOT_DONE_YET

    def _changed(
        self, found: Any, operator: Operator, request: Request, method: str, params: dict[str, Any]
    ) -> Any:
        """
        Notes a change, or that it was refused, in the audit log.
        """
        peer = peer_of(request)
        target = "/".join(
            str(value)[:100]
            for key, value in params.items()
            if key in ("key", "policyKey", "groupName", "userEmail")
        )
        result = str(found.value) if isinstance(found, Failure) else "done"
        self._note(
            operator,
            peer,
            f"policy {method}",
            target or "policies",
            _reason(request),
            result,
        )
        return found


def _reason(request: Request) -> str:
    found = next(iter(request.requestHeaders.getRawHeaders(b"X-Reason", [])), b"")
    return found.decode("utf-8", "replace")


def _understood(request: Request) -> Asked:
    path = [unquote(part.decode("latin-1")) for part in request.postpath or [] if part]
    verb = request.method.decode("latin-1")
    allowed = []
    for (wanted, pattern), (method, body) in ROUTES.items():
        params = _matched(pattern.split("/"), path)
        if params is None:
            continue
        if wanted == verb:
            return method, _with_body(params, request, body)
        allowed.append(wanted)
    if allowed:
        request.setHeader(b"Allow", ", ".join(allowed).encode())
        raise PolicyRejected(f"{' and '.join(allowed)}, not {verb}", 405)
    known = ", ".join(sorted({pattern.partition("/")[0] for _, pattern in ROUTES}))
    raise PolicyRejected(f"nothing at /policy/{'/'.join(path)[:200]}; there are {known}", 404)


def _matched(pattern: list[str], path: list[str]) -> dict[str, Any] | None:
    if len(pattern) != len(path):
        return None
    params: dict[str, Any] = {}
    for wanted, part in zip(pattern, path, strict=True):
        if wanted.startswith("{"):
            params[wanted[1:-1]] = part
        elif wanted != part:
            return None
    return params


def _with_body(params: dict[str, Any], request: Request, body: str | None) -> dict[str, Any]:
    if body is None:
        return params
    if body == "":
        return {**params, "document": None}
    data: bytes = request.content.read()  # type: ignore[union-attr]
    if body == "document":  # unparsed, so that errors have line and column
        return {**params, body: data}
    try:
        value = json.loads(data) if data or body != "members" else []
    except (ValueError, RecursionError) as why:
        raise PolicyRejected(f"the body is not JSON: {why}", 400) from None
    if body != "*":
        return {**params, body: value}
    if not isinstance(value, dict):
        raise PolicyRejected("the body must be an object", 400)
    return {**params, **value}


def _conditions(request: Request) -> dict[str, Any]:
    conditions: dict[str, Any] = {}
    match = next(iter(request.requestHeaders.getRawHeaders(b"If-Match", [])), None)
    if match is not None:
        conditions["ifMatch"] = match.decode("latin-1").removeprefix("W/").strip('" ')
    query = parse_qs(request.uri.partition(b"?")[2].decode("latin-1"))
    if query.get("force", ["0"])[-1] not in ("0", "false", ""):
        conditions["force"] = True
    return conditions


def _answered(value: Any, request: Request) -> None:
    version = value.get("version", value) if isinstance(value, dict) else None
    if isinstance(version, dict) and isinstance(version.get("revision"), str):
        request.setHeader(b"ETag", f'"{version["revision"]}"'.encode())
    _send(request, answer_json(request, 200, value))


def _failed(why: Failure, request: Request) -> None:
    if isinstance(why.value, Rejected):
        _send(request, _rejected(request, why.value))
        return
    log.failure("the policy request could not be handled", why)
    _send(request, answer_error(request, 500, "the node failed over this; its log says why"))


def _rejected(request: Request, why: Rejected) -> bytes:
    return answer_json(request, why.code, why.body())


def _send(request: Request, data: bytes) -> None:
    if not request._disconnected:
        request.write(data)
        request.finish()
