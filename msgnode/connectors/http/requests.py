"""
The token, the parameters and the origin of an HTTP request.
"""

import sys
from urllib.parse import parse_qs, parse_qsl, urlsplit

from twisted.web.server import Request

from msgnode.connectors.http.relayed import RelayedHTTPRequest
from msgnode.protocol.errors import Rejected
from msgnode.sessions.limits.connection_limits import ConnectionLimits
from msgnode.sessions.session import Session
from msgnode.sessions.session_table import Sessions
from msgnode.transport.sockets import bearer_token, verified_name

WAIT_SECONDS, MAX_WAIT_SECONDS = 25.0, 30.0  # for which a request may wait; common proxies allow no more
SESSION_TOKEN_PREFIX = "mns_"
MAX_AGENT_CHARS = 200
MAX_ANSWER_BYTES = 1024 * 1024  # of the messages in one answer to a poll; the others stay in the mailbox
CONDITIONAL_HEADERS = (b"If-Match", b"If-None-Match", b"Prefer")  # by which resources are asked
# Of requests and answers of pages of other origins.
ALLOWED_HEADERS = b"Authorization, Content-Type, If-Match, If-None-Match, Last-Event-ID, Prefer"
EXPOSED_HEADERS = b"ETag, Preference-Applied, Retry-After"
_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}


def headers(request: Request, name: bytes) -> list[str]:
    return [value.decode("latin-1") for value in request.requestHeaders.getRawHeaders(name, [])]


def bearer(request: Request) -> str | None:
    """
    Returns the token in `Authorization: Bearer`; None if the request has no such header.

    Of a relayed request only the hash of its session token is known: its prefix stands for it.
    """
    if isinstance(request, RelayedHTTPRequest):
        return SESSION_TOKEN_PREFIX
    return bearer_token(next(iter(headers(request, b"Authorization")), ""))


def parameters(request: Request) -> dict[str, str]:
    """
    Those in the request's URL, the first of each name.  Twisted's `args` may come from the body.
    """
    query = request.uri.partition(b"?")[2].decode("latin-1")
    return {name: values[0] for name, values in parse_qs(query, keep_blank_values=True).items()}


def session_of(request: Request, token: str, sessions: Sessions) -> Session | None:
    """
    The session of this node that the request's session token is of.
    """
    if isinstance(request, RelayedHTTPRequest):
        return sessions.by_token_hash(request.token_hash)
    return sessions.by_token(token)


def identity_of(request: Request) -> str:
    """
    The name in the client's verified certificate; "" if it has none.
    """
    if isinstance(request, RelayedHTTPRequest):
        return request.identity
    return verified_name(request.channel.transport)


def origin_of(request: Request) -> str:
    """
    The origin of the page that sends the request; "" of a client that is no page.
    """
    return next(iter(headers(request, b"Origin")), "")


def agent_of(request: Request) -> str:
    """
    The program that sends the request, as it names itself.
    """
    return agent_named(next(iter(headers(request, b"User-Agent")), ""))


def agent_named(text: str) -> str:
    """
    The name of a client's program, cut; equal ones are kept once.
    """
    return sys.intern(text[:MAX_AGENT_CHARS])


def peer_of(request: Request, connection_limits: ConnectionLimits) -> str:
    if isinstance(request, RelayedHTTPRequest):
        return request.peer
    forwarded = ",".join(headers(request, b"X-Forwarded-For"))
    return connection_limits.named(request.client, forwarded)


def authority_of(url: str, like: str = "") -> tuple[str, int | None]:
    """
    Host and port of a URL; a port that is missing is that of its scheme, or of the URL's it is `like`.
    """
    try:
        parts = urlsplit(url)
        return parts.hostname or "", parts.port or _PORTS.get(urlsplit(like or url).scheme)
    except ValueError:
        return "", None


def allow_origin(
    request: Request,
    allowed: list[str],
    cookies: bool = False,
    methods: tuple[bytes, ...] = (b"GET", b"POST"),
) -> bool:
    """
    CORS: a page of another origin may ask where it may open a WebSocket.  False: it may not.

    `cookies`: its client insists on sending some, so `*` would not do. `methods` are those of the resource.
    """
    origin = next(iter(headers(request, b"Origin")), "")
    if "*" not in allowed or (cookies and origin):
        request.setHeader(b"Vary", b"Origin")
    any_origin = "*" in allowed and not cookies
    if not origin and not any_origin:
        return True
    if "*" not in allowed and origin not in allowed:
        return False
    request.setHeader(b"Access-Control-Allow-Origin", b"*" if any_origin else origin.encode("latin-1"))
    if cookies:
        request.setHeader(b"Access-Control-Allow-Credentials", b"true")
    request.setHeader(b"Access-Control-Expose-Headers", EXPOSED_HEADERS)
    if request.method == b"OPTIONS":
        request.setHeader(b"Access-Control-Allow-Methods", b", ".join([*methods, b"OPTIONS"]))
        request.setHeader(b"Access-Control-Allow-Headers", ALLOWED_HEADERS)
        request.setHeader(b"Access-Control-Max-Age", b"86400")
    return True


def parameter_list(request: Request, most: int) -> list[tuple[str, str]]:
    """
    The parameters of the query, in order. Raises Rejected if there are more, or they are not UTF-8.
    """
    try:
        query = request.uri.partition(b"?")[2].decode()
        return parse_qsl(query, keep_blank_values=True, max_num_fields=most, errors="strict")
    except UnicodeDecodeError:
        raise Rejected("the query is not UTF-8, percent-encoded") from None
    except ValueError:
        raise Rejected(f"a query has at most {most} parameters", 400, "limit") from None
