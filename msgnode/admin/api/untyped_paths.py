"""
The paths of the admin API whose answers have no type, for its OpenAPI description: events, the lines of a
trace, policies, and links to other domains. The documents describe the answers.
"""

from typing import Any

from msgnode.admin.access.named_tokens import OPERATOR, POLICY_MANAGER, VIEWER
from msgnode.admin.live.event_stream import FIELDS
from msgnode.admin.policy_api import ROUTES, UNCHANGING

LINK_ORDERS = ("ban", "pause", "resume", "drain", "forget", "check")
JSON, LINES, STREAM = "application/json", "application/x-ndjson", "text/event-stream"
TEXT = {"type": "string"}


def untyped_paths(error: dict[str, Any]) -> dict[str, Any]:
    """
    The paths; `error` is the schema of a refusal.
    """
    events = [_given(name, "query") for name in ("kinds", *FIELDS, "last_id")]
    events.append(_given("Last-Event-ID", "header"))
    explained = [_given("address", "query", True), _given("without", "query"), _given("cost", "query")]
    ordered = [_given("X-Reason", "header"), _given("dry_run", "query"), _given("confirm", "query")]
    order = {"name": "order", "in": "path", "required": True, "schema": {"enum": list(LINK_ORDERS)}}
    found: dict[str, Any] = {
        "events": {"get": _operation("Events as they happen.", VIEWER, error, events, STREAM)},
        "traces/{id}/lines": {
            "get": _operation(
                "Lines of a trace.",
                OPERATOR,
                error,
                [_given("id", "path", True), _given("from", "query")],
                LINES,
            )
        },
        "links": {"get": _operation("Other domains, with links and streams.", VIEWER, error, [])},
        "links/{domain}": {
            "get": _operation("One other domain.", VIEWER, error, [_given("domain", "path", True)])
        },
        "links/{domain}/{order}": {
            "post": _operation(
                "An order about a domain.", OPERATOR, error, [_given("domain", "path", True), order, *ordered]
            )
        },
        "routes": {"get": _operation("The map of nodes and links.", VIEWER, error, [])},
        "routes/explain": {"get": _operation("The route to an address.", VIEWER, error, explained)},
    }
    for (verb, path), (method, body) in ROUTES.items():
        names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        given = [_given(name, "path", True) for name in names]
        if verb != "GET" and method not in UNCHANGING:
            given += [_given("X-Reason", "header", True), _given("If-Match", "header")]
        operation = _operation(f"The method {method} of the policies.", POLICY_MANAGER, error, given)
        if body:
            operation["requestBody"] = {"content": {JSON: {"schema": {}}}}
        found.setdefault(f"policy/{path}", {})[verb.lower()] = operation
    return {f"/api/v1/{path}": operations for path, operations in found.items()}


def _given(name: str, place: str, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": place, "required": required, "schema": TEXT}


def _operation(
    summary: str, role: str, error: dict[str, Any], given: list[dict[str, Any]], content: str = JSON
) -> dict[str, Any]:
    return {
        "summary": summary,
        "description": f"Needs the role {role}.",
        "security": [{"bearer": []}],
        "parameters": given,
        "responses": {
            "200": {
                "description": "The answer.",
                "content": {content: {"schema": {} if content == JSON else TEXT}},
            },
            "default": {"description": "A refusal.", "content": {JSON: {"schema": error}}},
        },
    }
