"""
Calls of the pages to the admin API: the same endpoints that a client of the API has, and no others.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from twisted.internet.defer import Deferred, maybeDeferred

from msgnode.admin.admin_tokens import with_role
from msgnode.admin.api.endpoint import Call, Endpoint, read_body, read_query
from msgnode.cluster.operator_requests import Operator
from msgnode.protocol.errors import Rejected

PAGE = "page"


class PageCalls:
    """
    The endpoints of the API, called within the node for an operator who looks at a page.
    """

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._endpoints = list(endpoints)

    def ask(
        self,
        verb: str,
        path: list[str],
        operator: Operator,
        peer: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        dry_run: bool = False,
        confirm: int | None = None,
    ) -> Deferred[Any]:
        """
        The answer of an endpoint as builtins. Fails with Rejected.
        """
        return maybeDeferred(self._ask, verb, path, operator, peer, query, body, dry_run, confirm)

    def _ask(
        self,
        verb: str,
        path: list[str],
        operator: Operator,
        peer: str,
        query: Mapping[str, str] | None,
        body: Any,
        dry_run: bool,
        confirm: int | None,
    ) -> Any:
        for each in self._endpoints:
            parts = each.matched(path)
            if parts is None or each.verb != verb:
                continue
            with_role(operator, each.role)
            asked = read_query(each.query, dict(query or {}))
            sent = None if each.body is None else read_body(each.body, msgspec.json.encode(body or {}))
            call = Call(operator, peer, PAGE, parts, asked, sent, dry_run, confirm)
            found = maybeDeferred(each.act, call)
            return found.addCallback(msgspec.to_builtins)
        raise Rejected(f"there is no {verb} {'/'.join(path)[:100]}", 404, "not-found")
