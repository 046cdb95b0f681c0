"""
Authorisation on the admin listener: tokens in a file, each with its roles.

`<state>/admin-token` is made at the first start, readable by its owner alone.
Each line is a token and its roles; a token with no role has all of them.
"""

import os
from errno import EDQUOT, ENOSPC
from hmac import compare_digest
from pathlib import Path
from secrets import token_urlsafe

from twisted.application.service import Service
from twisted.logger import Logger
from twisted.web.server import Request

from msgnode.cluster.operator_requests import Operator
from msgnode.config.schema import ConfigError
from msgnode.connectors.http.requests import bearer
from msgnode.protocol.errors import Rejected
from msgnode.transport.http_answers import answer_error

log = Logger()

FILE = "admin-token"
EVERY = frozenset({"*"})


class AdminTokens(Service):
    """
    The file of tokens.  It is read for every request, so that a token removed from it is void at once.
    """

    def __init__(self, state: str) -> None:
        self._path = None if state == "none" else Path(state, FILE)

    def startService(self) -> None:
        """
        Make the file if there is none; on a full disk it is made at the first request with a token.
        """
        super().startService()
        try:
            self._make()
        except OSError as why:
            if why.errno not in (ENOSPC, EDQUOT):
                raise ConfigError(f"state: cannot write {self._path}: {why.strerror}") from why
            log.error("there is no room for {path} yet: {why}", path=str(self._path), why=why.strerror)

    def _make(self) -> None:
        if self._path is None or (self._path.exists() and self._path.stat().st_size):
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as made:
            made.write(f"mna_{token_urlsafe(32)}\n")

    def roles(self, token: str) -> frozenset[str]:
        """
        The roles of this token; none if it is not in the file.
        """
        found: frozenset[str] = frozenset()
        for known, *roles in self._lines():
            if compare_digest(known.encode(), token.encode()):
                found = frozenset(roles) or EVERY
        return found

    def operator(self, token: str, is_local: bool) -> Operator | None:
        """
        The operator with this token; None for a token that is void. `is_local`: it came from this machine.
        """
        roles = self.roles(token) if is_local else frozenset()
        return Operator("admin-token", tuple(sorted(roles))) if roles else None

    def admit(self, request: Request, *wanted: str) -> Operator:
        """
        The operator of a request, who has one of these roles. Raises Rejected: 401 or 403.
        """
        token = bearer(request)
        operator = self.operator(token, True) if token is not None else None
        if operator is None:
            request.setHeader(b"WWW-Authenticate", b"Bearer")
            raise Rejected(
                "name the token of <state>/admin-token: Authorization: Bearer mna_...", 401, "token"
            )
        return with_role(operator, *wanted)

    def _lines(self) -> list[list[str]]:
        if self._path is None:
            return []
        try:
            self._make()
            lines = self._path.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return []
        return [line.split() for line in lines if line.strip() and not line.startswith("#")]


IMPLIED = {"viewer": {"operator", "admin"}, "operator": {"admin"}}  # roles that include another one


def with_role(operator: Operator, *wanted: str) -> Operator:
    """
    The operator, if it has one of these roles, or one that includes it. Raises Rejected (403).
    """
    included = {*wanted}.union(*(IMPLIED.get(role, ()) for role in wanted))
    if not operator.has_role(*included):
        raise Rejected(f"this token does not have the role {' or '.join(wanted)}", 403, "policy")
    return operator


def refuse_without(tokens: AdminTokens, request: Request, *wanted: str) -> bytes | None:
    """
    Returns the answer to a request without a token that has one of these roles, or None if it has one.
    """
    token = bearer(request)
    roles = tokens.roles(token) if token is not None else frozenset()
    if not roles:
        request.setHeader(b"WWW-Authenticate", b"Bearer")
        how = "name the token of <state>/admin-token: Authorization: Bearer mna_..."
        return answer_error(request, 401, how)
    if roles != EVERY and not roles.intersection(wanted):
        return answer_error(request, 403, f"this token does not have the role {' or '.join(wanted)}")
    return None
