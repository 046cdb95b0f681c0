"""
Authorisation on the admin listener: tokens in two files, each with its roles.

`<state>/admin-token` is made at the first start, readable by its owner alone, and is valid on this machine
only. Each line is a token and its roles; a token with no role has all of them. `<state>/admin-tokens` has
the hashes of named tokens, which are valid from anywhere (access/named_tokens.py).
"""

import os
import time
from collections import deque
from collections.abc import Callable
from errno import EDQUOT, ENOSPC
from hmac import compare_digest
from pathlib import Path
from secrets import token_urlsafe

from twisted.application.service import Service
from twisted.logger import Logger
from twisted.web.server import Request

from msgnode.admin.access.failure_throttle import FailureThrottle
from msgnode.admin.access.named_tokens import ADMIN, MACHINE, OPERATOR, VIEWER, NamedTokens
from msgnode.admin.access.named_tokens import FILE as NAMED
from msgnode.admin.access.request_peer import is_local, peer_of
from msgnode.cluster.operator_requests import Operator
from msgnode.config.schema import ConfigError
from msgnode.connectors.http.requests import bearer
from msgnode.protocol.errors import Rejected
from msgnode.protocol.peer_address import peer_host

log = Logger()

FILE = "admin-token"
EVERY = frozenset({"*"})
MAX_NAMES, HOSTS_OF_ONE = 1001, 16  # tokens, and IP addresses of each, that are remembered
IMPLIED = {VIEWER: {OPERATOR, ADMIN}, OPERATOR: {ADMIN}}  # roles that include another one
HOW = "name the token of <state>/admin-token, or a named one: Authorization: Bearer mna_..."


class AdminTokens(Service):
    """
    The files of tokens.  They are read for every request, so that a token removed from them is void at once.

    `wall` gives seconds since 1970, `seconds` those of a clock that never jumps. `moved` is called with the
    operator, the IP address and the one before when a token comes from one that is new.
    """

    def __init__(
        self,
        state: str,
        wall: Callable[[], float] = time.time,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = None if state == "none" else Path(state, FILE)
        self.named = NamedTokens(None if state == "none" else Path(state, NAMED))
        self.failures = FailureThrottle(seconds)
        self.moved: Callable[[Operator, str, str], object] = lambda operator, host, before: None
        self._hosts: dict[str, deque[str]] = {}  # of each token, from which it came lately
        self._wall = wall

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

    def _lines(self) -> list[list[str]]:
        if self._path is None:
            return []
        try:
            self._make()
            lines = self._path.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return []
        return [line.split() for line in lines if line.strip() and not line.startswith("#")]

    def operator(self, token: str, is_local: bool) -> Operator | None:
        """
        The operator with this token; None for a token that is void. `is_local`: it came from this machine.
        """
        roles = self.roles(token) if is_local else frozenset()
        if roles:
            return Operator(MACHINE, tuple(sorted(roles)))
        named = self.named.find(token, self._wall())
        if named is None:
            return None
        return Operator(named.name, tuple(EVERY if ADMIN in named.roles else named.roles))

    def admit(self, request: Request, *wanted: str) -> Operator:
        """
        The operator of a request, who has one of these roles. Raises Rejected: 401, 403, or 429 after many
        failures; a valid token is never throttled.
        """
        token, peer = bearer(request), peer_of(request)
        if token:
            operator = self.operator(token, is_local(request))
            if operator is not None:
                self.note_peer(operator, peer)
                return with_role(operator, *wanted)
            wait = self.failures.note(peer_host(peer) or "unix")
            if wait:
                request.setHeader(b"Retry-After", str(wait).encode())
                raise Rejected(f"too many tokens that are not valid; try again in {wait} s", 429, "rate")
        request.setHeader(b"WWW-Authenticate", b"Bearer")
        raise Rejected(HOW, 401, "token")

    def note_peer(self, operator: Operator, peer: str) -> None:
        """
        Notes from where a valid token, or the cookie of one, comes.
        """
        host = peer_host(peer) or "unix"
        known = self._hosts.get(operator.name)
        if known is None:
            if len(self._hosts) >= MAX_NAMES:
                self._hosts.clear()
            known = self._hosts[operator.name] = deque(maxlen=HOSTS_OF_ONE)
        if host in known:
            return
        if known:
            self.moved(operator, host, known[-1])
        known.append(host)


def with_role(operator: Operator, *wanted: str) -> Operator:
    """
    The operator, if it has one of these roles, or one that includes it. Raises Rejected (403).
    """
    included = {*wanted}.union(*(IMPLIED.get(role, ()) for role in wanted))
    if not operator.has_role(*included):
        raise Rejected(f"this token does not have the role {' or '.join(wanted)}", 403, "policy")
    return operator
