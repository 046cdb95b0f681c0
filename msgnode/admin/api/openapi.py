"""
The OpenAPI description of the admin API, made from the types of its endpoints.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec

from msgnode import __version__
from msgnode.admin.api.endpoint import Call, Endpoint
from msgnode.admin.api.untyped_paths import untyped_paths
from msgnode.connectors.http.openapi import Error, components, fields_of, json_content

ERRORS = {
    "400": "A parameter or the body is wrong.",
    "401": "There is no token, or it is not valid.",
    "403": "The token does not have the role.",
    "404": "There is no such thing.",
    "405": "The path has other methods.",
    "409": "It is in conflict with how things are now.",
    "413": "The body is too long.",
    "421": "The host is not one of the node's.",
    "429": "There are too many such requests at a time.",
    "500": "The node failed; its log says why.",
    "503": "It is not possible now.",
}


def description(endpoints: Iterable[Endpoint]) -> bytes:
    """
    The description of these endpoints as JSON, made once in a process for endpoints of the same shape.
    """
    return _encoded(tuple(each._replace(act=_never_asked, also=_never_asked) for each in endpoints))


@cache
def _encoded(endpoints: tuple[Endpoint, ...]) -> bytes:
    return msgspec.json.encode(_describe(endpoints))


def _never_asked(call: Call) -> None:
    raise NotImplementedError


def _describe(endpoints: tuple[Endpoint, ...]) -> dict[str, Any]:
    """
    The description of these endpoints, in OpenAPI 3.1.
    """
    kinds: list[Any] = [Error]
    for each in endpoints:
        kinds += [each.answer, *([each.body] if each.body is not None else [])]
    by_kind, schemas = components(kinds)
    paths: dict[str, Any] = untyped_paths(by_kind[id(Error)])
    for each in endpoints:
        operation: dict[str, Any] = {
            "summary": each.summary,
            "operationId": _name(each),
            "description": f"Needs the role {each.role}.",
            "security": [{"bearer": []}],
            "parameters": [*_in_path(each), *_in_query(each)],
            "responses": {
                "200": json_content("The answer.", by_kind[id(each.answer)]),
                **{code: json_content(text, by_kind[id(Error)]) for code, text in ERRORS.items()},
            },
        }
        if each.body is not None:
            operation["requestBody"] = {
                "required": each.verb != "DELETE",
                "content": {"application/json": {"schema": by_kind[id(each.body)]}},
            }
        paths.setdefault(f"/api/v1/{each.path}", {})[each.verb.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "msgnode admin API",
            "version": __version__,
            "description": "Operators read the state of a node, and act on it.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _name(endpoint: Endpoint) -> str:
    words = endpoint.path.replace("{", "").replace("}", "").replace("-", "/").split("/")
    return endpoint.verb.lower() + "".join(word.title() for word in words)


def _in_path(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in endpoint.names
    ]


def _in_query(endpoint: Endpoint) -> list[dict[str, Any]]:
    found = fields_of(endpoint.query, "query")
    if endpoint.is_read:
        text = "Another node of the domain, or `all` for each of them."
        found.append({"name": "node", "in": "query", "description": text, "schema": {"type": "string"}})
    elif endpoint.verb != "GET":
        if endpoint.verb == "DELETE":
            text = "The reason, in the place of a body."
            schema = {"type": "string"}
            found.append({"name": "X-Reason", "in": "header", "description": text, "schema": schema})
        found += [
            {
                "name": "dry_run",
                "in": "query",
                "description": "Only say what would be done.",
                "schema": {"type": "boolean", "default": False},
            },
            {
                "name": "confirm",
                "in": "query",
                "description": "The number that a dry run gave.",
                "schema": {"type": "integer"},
            },
        ]
    return found
