"""
Named tokens of operators: listed, made and revoked.
"""

from functools import partial
from typing import Any

import msgspec
from twisted.internet.defer import Deferred

from msgnode.admin.access.named_tokens import NamedTokens
from msgnode.admin.actions.audited import Audited, Plan
from msgnode.admin.api.endpoint import Call, Reason
from msgnode.admin.reads.inspector import Inspector
from msgnode.protocol.errors import Rejected

MAX_SECONDS = 10 * 366 * 86400.0


class TokenRequest(Reason, kw_only=True):
    """
    The body of a new token: its name, its roles, and for how many seconds it is valid (0: until it is
    revoked).
    """

    name: str
    roles: list[str]
    seconds: float = 0.0


class TokenRow(msgspec.Struct):
    """
    A token, without its text, which the node does not know. Times are in seconds since 1970.
    """

    name: str
    roles: list[str]
    until: float | None
    created: float
    by: str
    has_ended: bool


class TokenList(msgspec.Struct):
    """
    The named tokens.
    """

    tokens: list[TokenRow]


class TokenActions:
    """
    The actions on named tokens.
    """

    def __init__(self, inspector: Inspector, audited: Audited, tokens: NamedTokens) -> None:
        self._inspector = inspector
        self._audited = audited
        self._tokens = tokens

    def tokens(self, call: Call) -> TokenList:
        now = self._inspector.facts.wall()
        return TokenList(
            [
                TokenRow(
                    each.name,
                    each.roles,
                    each.until,
                    each.created,
                    each.by,
                    each.until is not None and each.until <= now,
                )
                for each in self._tokens.all()
            ]
        )

    def add(self, call: Call) -> Any:
        """
        Makes a token; the answer has its text, once.
        """
        body: TokenRequest = call.body
        if not 0 <= body.seconds <= MAX_SECONDS:
            raise Rejected(f"seconds: expected 0 to {MAX_SECONDS:.0f}")
        self._tokens.check(body.name, body.roles)
        now = self._inspector.facts.wall()
        until = now + body.seconds if body.seconds else None

        def added() -> Deferred[dict[str, Any]]:
            made = self._audited.audit.in_turn(
                self._tokens.add, body.name, body.roles, until, now, call.operator.name
            )
            return made.addCallback(lambda token: {"token": token, "until": until})

        plan = Plan("token add", [body.name], added, before={"roles": body.roles, "until": until})
        return self._audited.run(call, plan, body.reason)

    def revoke(self, call: Call) -> Any:
        """
        Makes a token void.
        """
        name = call.path["name"]
        self._tokens.check_known(name)
        plan = Plan("token revoke", [name], partial(self._audited.audit.in_turn, self._tokens.revoke, name))
        return self._audited.run(call, plan, call.body.reason)
