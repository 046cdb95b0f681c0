"""
Logins of browsers: a cookie in the place of an operator's token.

The cookie is a random number. The token stays at the node, and is checked at each request: a token that is
revoked ends its cookies at once.
"""

from collections.abc import Callable
from hashlib import sha256
from hmac import compare_digest
from secrets import token_urlsafe
from typing import Protocol
from urllib.parse import urlsplit

from twisted.web.server import Request

from msgnode.admin.access.failure_throttle import FailureThrottle
from msgnode.admin.access.request_peer import is_local, peer_of
from msgnode.admin.admin_tokens import with_role
from msgnode.cluster.operator_requests import Operator
from msgnode.connectors.http.requests import bearer, headers
from msgnode.protocol.errors import Rejected
from msgnode.protocol.peer_address import peer_host

COOKIE = "msgnode-admin"
LOGIN_SECONDS = 8 * 3600
MAX_LOGINS = 200


class Tokens(Protocol):
    """
    The tokens of operators.
    """

    failures: FailureThrottle

    def operator(self, token: str, is_local: bool) -> Operator | None: ...

    def admit(self, request: Request, *wanted: str) -> Operator: ...

    def note_peer(self, operator: Operator, peer: str) -> None: ...


class Login:
    """
    A browser that is logged in; `csrf` is what its pages must send with each action.
    """

    def __init__(self, token: str, until: float) -> None:
        self.token = token
        self.until = until
        self.csrf = token_urlsafe(24)


class Logins:
    """
    The browsers that are logged in, at most MAX_LOGINS.
    """

    def __init__(self, tokens: Tokens, seconds: Callable[[], float]) -> None:
        self._tokens = tokens
        self._seconds = seconds
        self._logins: dict[bytes, Login] = {}

    def __len__(self) -> int:
        return len(self._logins)

    def start(self, request: Request, token: str) -> None:
        """
        Logs the browser in. Raises Rejected (401, or 429 after many failures) if the token is not valid.
        """
        if self._tokens.operator(token, is_local(request)) is None:
            wait = self._tokens.failures.note(peer_host(peer_of(request)) or "unix")
            if wait:
                request.setHeader(b"Retry-After", str(wait).encode())
                raise Rejected(f"too many tokens that are not valid; try again in {wait} s", 429, "rate")
            raise Rejected("this token is not valid here", 401, "token")
        now = self._seconds()
        for key in [key for key, login in self._logins.items() if login.until <= now]:
            del self._logins[key]
        while len(self._logins) >= MAX_LOGINS:
            del self._logins[next(iter(self._logins))]
        cookie = token_urlsafe(32)
        self._logins[sha256(cookie.encode()).digest()] = Login(token, now + LOGIN_SECONDS)
        self._set_cookie(request, cookie, LOGIN_SECONDS)

    def end(self, request: Request) -> None:
        """
        Logs the browser out.
        """
        for cookie in _cookies(request):
            self._logins.pop(sha256(cookie.encode()).digest(), None)
        self._set_cookie(request, "", 0)

    @staticmethod
    def _set_cookie(request: Request, value: str, seconds: int) -> None:
        secure = "; Secure" if request.isSecure() else ""
        name = _name(request)
        text = f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
        request.responseHeaders.addRawHeader(b"Set-Cookie", text.encode())

    def find(self, request: Request) -> tuple[Login, Operator] | None:
        """
        The login of the browser, and its operator; None if it has none, or its token is void.
        """
        for cookie in _cookies(request):
            key = sha256(cookie.encode()).digest()
            login = self._logins.get(key)
            if login is None:
                continue
            operator = self._tokens.operator(login.token, is_local(request))
            if operator is not None and login.until > self._seconds():
                self._tokens.note_peer(operator, peer_of(request))
                return login, operator
            del self._logins[key]
        return None

    def admit(self, request: Request, *wanted: str) -> Operator:
        """
        The operator of a request, by a bearer token or by a cookie. Raises Rejected.

        By a cookie, only a page of this listener may act, and only it and its user may read.
        """
        if bearer(request) is not None:
            return self._tokens.admit(request, *wanted)
        found = self.find(request)
        if found is None or _fetch_site(request) not in ("", "same-origin", "none"):
            return self._tokens.admit(request, *wanted)
        if request.method not in (b"GET", b"HEAD"):
            self.check_action(request)
        return with_role(found[1], *wanted)

    def check_action(self, request: Request) -> Operator:
        """
        The operator of a request that acts from a page of this listener. Raises Rejected.
        """
        found = self.find(request)
        if found is None:
            raise Rejected("log in first", 401, "token")
        login, operator = found
        sent = next(iter(headers(request, b"X-CSRF")), "")
        if not compare_digest(sent.encode("latin-1", "replace"), login.csrf.encode()):
            raise Rejected("this request does not come from a page of this node (X-CSRF)", 403, "token")
        if not is_same_origin(request):
            raise Rejected("a page of another origin may not act here", 403, "token")
        return operator


def is_same_origin(request: Request) -> bool:
    """
    Does a browser say that a page of this listener sends the request?
    """
    site = _fetch_site(request)
    if site:
        return site == "same-origin"
    origin, host = next(iter(headers(request, b"Origin")), ""), next(iter(headers(request, b"Host")), "")
    return bool(origin) and urlsplit(origin).netloc.lower() == host.lower()


def may_log_in(request: Request) -> bool:
    """
    Is it no page of another origin that sends a token?
    """
    origin = next(iter(headers(request, b"Origin")), "")
    return is_same_origin(request) or (not origin and _fetch_site(request) in ("", "none"))


def _fetch_site(request: Request) -> str:
    return next(iter(headers(request, b"Sec-Fetch-Site")), "")


def _name(request: Request) -> str:
    """
    The name of the listener's cookie. It has the port, as browsers send cookies to all ports of a host.
    """
    name = f"{COOKIE}-{getattr(request.getHost(), 'port', 'unix')}"
    return f"__Host-{name}" if request.isSecure() else name


def _cookies(request: Request) -> list[str]:
    """
    The values of this listener's cookie in a request.
    """
    name, found = _name(request), []
    for header in headers(request, b"Cookie"):
        for pair in header.split(";"):
            key, _, value = pair.strip().partition("=")
            if key == name and 0 < len(value) <= 100:
                found.append(value)
    return found[:4]
