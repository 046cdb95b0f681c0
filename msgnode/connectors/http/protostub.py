"""
The protostubs that the node serves to browsers: its own, and those in the operator's directory.

A runtime fetches `default.ps.js` and its descriptor `default.ps.json`; an older
runtime asks a catalogue for version, cguid and a descriptor that contains the
code.
"""

import gzip
import json
import re
import time
from collections.abc import Callable
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from msgnode.config.schema import Config
from msgnode.protocol.peer_address import peer_name
from msgnode.transport.http_answers import answer_error

OURS = ("default.ps.js", "default.mjs", "default.d.mts", "client.mjs", "client.d.mts")
CATALOGUE = "activate.js"
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:-]*\.ps\.(js|json)")


class StubCatalogue:
    """
    The files below `/.well-known/protocolstub` by name; `public` is the node's URL as the client sees it.
    """

    def __init__(self, config: Config, now: Callable[[], float] = time.time) -> None:
        self._config = config
        self._now = now
        self._public = config.public_url
        # Runtimes keep a descriptor until its version rises.
        self._version = int(now())
        package = files("msgnode") / "stub"
        self._ours = {name: (package / name).read_bytes() for name in (*OURS, CATALOGUE)}

    def read(self, name: str, public: str) -> bytes | None:
        """
        Returns the content of the file, or None if there is no file of this name.
        """
        if _FILE.fullmatch(name) and (found := self._operators(name)) is not None:
            return found
        if name in OURS:
            return self._ours[name]
        if name == "default.ps.json":
            return _text(self._descriptor(public))
        return self._catalogued(name, public)

    def _operators(self, name: str) -> bytes | None:
        """
        Returns a file of the operator's directory, which takes precedence over the node's own.
        """
        if not self._config.stubs:
            return None
        try:
            return Path(self._config.stubs, name).read_bytes()
        except OSError:
            return None

    def _descriptor(self, public: str) -> dict[str, Any]:
        message = self._config.limits.message_bytes
        configuration: dict[str, Any] = {
            "url": f"{public}/ws",
            "maxBuffer": 2 * message,
            "maxMessage": message,
        }
        if self._config.session.message_token == "require":
            configuration["token"] = True
        return {
            "language": "javascript",
            "description": f"Protostub for {self._config.domain}",
            "signature": "",
            "configuration": configuration,
            "constraints": {"browser": True},
            "interworking": False,
            "objectName": "default",
        }

    # -- the catalogue of older runtimes ---------------------------------------

    def _catalogued(self, name: str, public: str) -> bytes | None:
        if name == "default":
            return _text(self._entry(public))
        if name == "default/version":
            return str(self.version).encode()
        if name == "default/cguid":
            return self._cguid.encode()
        if name == "default/sourcePackage":
            return _text(self._package())
        return None

    @property
    def version(self) -> int:
        """
        A number that rises with every start of the node, and when its public URL changes.
        """
        if self._public != self._config.public_url:
            self._public = self._config.public_url
            self._version = max(self._version + 1, int(self._now()))
        return self._version

    @property
    def _cguid(self) -> str:
        return f"msgnode-protostub-{self._config.domain}"

    def _entry(self, public: str) -> dict[str, Any]:
        return {
            **self._descriptor(public),
            "cguid": self._cguid,
            "type": "ProtoStubs",
            "version": self.version,
            "messageSchemas": "",
            "hypertyType": [],
            "dataObjects": [],
            "idpProxy": False,
            "mutualAuthentication": False,
            "accessControlPolicy": "",
            "sourcePackageURL": "/sourcePackage",
            "sourcePackage": self._package(),
        }

    def _package(self) -> dict[str, str]:
        code = self._ours[CATALOGUE].decode()
        return {"sourceCodeClassname": "activate", "sourceCode": code, "encoding": "UTF-8", "signature": ""}


def _text(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"


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
WORTH_PACKING_BYTES = 1000
MAX_PACKED_BYTES = 1024 * 1024  # packing more would keep other clients waiting


class ProtocolStub(Resource):
    """
    The resource of the protostub files: answers with a file and its ETag, or 304.  Older runtimes use POST.
    """

    isLeaf = True

    def __init__(self, config: Config, stubs: StubCatalogue) -> None:
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
        return answer_file(request, TYPES[re.split(r"[./]", name)[-1]], data)

    def _public(self, request: Request) -> str:
        """
        The WebSocket URL of the node, without `/ws`.
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


def answer_file(request: Request, kind: str, data: bytes) -> bytes | int:
    """
    Answers with this content, packed if the client reads that, or 304 if the client has it.
    """
    accepted = request.getHeader("accept-encoding") or ""
    packed = WORTH_PACKING_BYTES < len(data) <= MAX_PACKED_BYTES and re.search(
        r"\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))", accepted
    )
    etag = f'"{sha256(data).hexdigest()[:24]}{"-gzip" if packed else ""}"'
    request.setHeader(b"ETag", etag.encode())
    request.setHeader(b"Vary", b"Accept-Encoding")
    # A cache must revalidate each time, so that an upgrade of the node reaches its pages at once.
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
        # Twisted would log a warning about a body that it must not send.
        request.setHeader(b"Content-Length", str(len(data)).encode())
        request.finish()
        return NOT_DONE_YET
    return data


def _has(request: Request, etag: str) -> bool:
    """
    Does the client have this version?  A weak ETag, which proxies make, counts as well.
    """
    known = (request.getHeader("if-none-match") or "").split(",")
    return any(tag.strip().removeprefix("W/") in (etag, "*") for tag in known)
