"""
The names that a listener goes by: a request for any other host is not meant for it.

A page whose name is made to resolve to this machine (DNS rebinding) sends
requests that a browser takes for its own; what gives them away is the host
that they name.  Checked wherever no pages are served to others.
"""

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from twisted.internet.address import UNIXAddress
from twisted.web.resource import Resource
from twisted.web.server import Request

from msgnode.config.schema import Config
from msgnode.protocol.errors import Rejected
from msgnode.transport.http_answers import answer_error

LOCALHOST = "localhost"


class Hosts:
    """
    The host names that a listener answers for.

    `names` and every IP address; `key` is what an operator sets to allow another.
    """

    def __init__(self, names: Iterable[str], key: str) -> None:
        self._names = {LOCALHOST, *(_plain(name) for name in names if name)}
        self._key = key

    def refusal(self, request: Request) -> Rejected | None:
        """
        Why this request is meant for somebody else; None: it is meant for us.

        A UNIX socket has no name, and HTTP/1.0 none to give.  Whatever else
        stands in front names the host that it was asked for (X-Forwarded-Host)
        by hearsay, which nobody looks at.
        """
        if isinstance(request.getHost(), UNIXAddress):
            return None
        named: Any = request.requestHeaders.getRawHeaders(b"Host", [])
        if not named:
            return None if request.clientproto == b"HTTP/1.0" else Rejected("a request must name its host")
        host = _host(named[-1].decode("latin-1"))
        if len(named) == 1 and (host in self._names or _is_ip(host)):
            return None
        text = f"nothing here for the host {host[:100]!r}; if it should be, add it to {self._key}"
        return Rejected(text, 421, "host")


def admin_hosts(config: Config) -> Hosts:
    """
    The names of the node, for what only its operators may see.
    """
    public = urlsplit(config.public_url).hostname or ""
    return Hosts((config.node, _host(config.domain), public, *config.admin.hosts), "admin.hosts")


class Misdirected(Resource):
    """
    The refusal, whatever was asked for: 421 (RFC 9110, 15.5.20).
    """

    isLeaf = True

    def __init__(self, why: Rejected) -> None:
        super().__init__()
        self._why = why

    def render(self, request: Request) -> bytes:
        body = answer_error(request, self._why.code, str(self._why))
        if self._why.code == 421:  # which Twisted has no phrase for
            request.setResponseCode(421, b"Misdirected Request")
        return body


def _plain(name: str) -> str:
    return name.strip().lower().rstrip(".").removeprefix("[").removesuffix("]")


def _host(field: str) -> str:
    """
    The host of a Host header, without its port.
    """
    field = field.strip()
    if field.startswith("["):
        return _plain(field[: field.find("]") + 1])
    host, colon, port = field.rpartition(":")
    return _plain(host if colon and ((port.isascii() and port.isdigit()) or not port) else field)


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
