"""
`/.well-known/protocolstub`: where runtimes find the protostub of this domain.

The files are public: pages of every origin may read them.  A descriptor
names the node's public URL; where none is configured, the one it was asked at.
"""

import gzip
import re
from hashlib import sha256

from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from msgnode.config.schema import Config
from msgnode.protocol.peer_address import peer_name
from msgnode.stubs import Stubs
from msgnode.transport.http_answers import answer_error

WHERE = ".well-known/protocolstub"
TYPES = {
    "js": "text/javascript; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
    "mts": "text/plain; charset=utf-8",
    "json": "application/json",
    "default": "application/json",
    "version": "text/plain; charset=utf-8",
    "cguid": "text/plain; charset=utf-8",
    "sourcePackage": "application/json",
}
METHODS = b"GET, HEAD, POST, OPTIONS"
WORTH_PACKING = 1000  # bytes


class ProtocolStub(Resource):
    """
    Answers with a file and its ETag, or 304 to who has it.  A POST is what older runtimes ask with.
    """

    isLeaf = True

    def __init__(self, config: Config, stubs: Stubs) -> None:
        super().__init__()
        self._config = config
        self._stubs = stubs

    def render(self, request: Request) -> bytes | int:
        request.setHeader(b"Access-Control-Allow-Origin", b"*")
        if request.method == b"OPTIONS":
            request.setHeader(b"Access-Control-Allow-Methods", METHODS)
            request.setHeader(b"Access-Control-Allow-Headers", b"Content-Type")
            request.setHeader(b"Access-Control-Max-Age", b"86400")
            request.setResponseCode(204)
            return b""
        if request.method not in (b"GET", b"HEAD", b"POST"):
            request.setHeader(b"Allow", METHODS)
            return answer_error(request, 405, f"{METHODS.decode()}, not {request.method.decode('latin-1')}")
        name = b"/".join(request.postpath or []).decode("latin-1")
        data = self._stubs.read(name, self._public(request))
        if data is None:
            return answer_error(request, 404, f"no protostub file named {name[:200]!r}")
        return _answer(request, TYPES[re.split(r"[./]", name)[-1]], data)

    def _public(self, request: Request) -> str:
        """
        The URL that `/ws` lies below, for WebSocket.
        """
        given = self._config.public_url
        return re.sub("^http", "ws", given).rstrip("/") if given else self._as_asked(request)

    def _as_asked(self, request: Request) -> str:
        secure = request.isSecure()
        host = request.getHeader("host") or ""
        if peer_name(request.client, "trusted", self._config.trusted_proxies) == "trusted":
            secure = request.getHeader("x-forwarded-proto") in ("https", "wss")
            host = request.getHeader("x-forwarded-host") or host
        if not re.fullmatch(r"[\w.-]+(:\d+)?|\[[0-9A-Fa-f:.]+\](:\d+)?", host):
            host = self._config.domain
        prefix = self._config.path_prefix
        below = prefix if prefix and request.path.startswith(f"{prefix}/".encode()) else ""
        return f"{'wss' if secure else 'ws'}://{host}{below}"


def _answer(request: Request, kind: str, data: bytes) -> bytes | int:
    accepted = request.getHeader("accept-encoding") or ""
    packed = len(data) > WORTH_PACKING and re.search(r"\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))", accepted)
    etag = f'"{sha256(data).hexdigest()[:24]}{"-gzip" if packed else ""}"'
    request.setHeader(b"ETag", etag.encode())
    request.setHeader(b"Vary", b"Accept-Encoding")
    # Kept, but asked for anew each time: an upgrade of the node reaches its pages at once.
    request.setHeader(b"Cache-Control", b"no-cache")
    if request.method != b"POST" and _has(request, etag):
        request.setResponseCode(304)
        return b""
    request.setHeader(b"Content-Type", kind.encode())
    request.setHeader(b"X-Content-Type-Options", b"nosniff")
    if packed:
        request.setHeader(b"Content-Encoding", b"gzip")
        data = gzip.compress(data, mtime=0)
    if request.method == b"HEAD":
        # Twisted would write a line about a body it has to leave out.
        request.setHeader(b"Content-Length", str(len(data)).encode())
        request.finish()
        return NOT_DONE_YET
    return data


def _has(request: Request, etag: str) -> bool:
    """
    Is this one of the versions the client has?  Proxies mark some as weak; that is no difference here.
    """
    known = (request.getHeader("if-none-match") or "").split(",")
    return any(tag.strip().removeprefix("W/") in (etag, "*") for tag in known)
