"""
Calls of the pages to the admin API: the same endpoints that a client of the API has, and no others.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from twisted.internet.defer import Deferred, maybeDeferred

from msgnode.admin.admin_tokens import with_role
from msgnode.admin.api.endpoint import Call, Endpoint, read_body, read_query
from msgnode.admin.api.reach import Reach
from msgnode.cluster.operator_requests import Operator
from msgnode.protocol.errors import Rejected

PAGE = "page"


class PageCalls:
    """
    The endpoints of the API, called within the node for an operator who looks at a page. `reach` asks the
    other nodes of the domain.
    """

    def __init__(self, endpoints: Iterable[Endpoint], reach: Reach) -> None:
        self._endpoints = list(endpoints)
        self._reach = reach

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
        The answer of an endpoint as builtins, of the node that `node` in the query names. Fails with
        Rejected.
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
            fields = dict(query or {})
            where = fields.pop("node", "") if each.is_read else ""
            if where:
                return self._reach.ask(where, each, parts, fields, operator)
            asked = read_query(each.query, fields)
            sent = None if each.body is None else read_body(each.body, msgspec.json.encode(body or {}))
            call = Call(operator, peer, PAGE, parts, asked, sent, dry_run, confirm)
            return self._reach.act(each, call).addCallback(msgspec.to_builtins)
        raise Rejected(f"there is no {verb} {'/'.join(path)[:100]}", 404, "not-found")
