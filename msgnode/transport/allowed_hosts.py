"""
Allowed host names of a listener, as a protection against DNS rebinding.

In DNS rebinding, a web page makes its own name resolve to this machine, and the browser takes the page's
requests for same-origin ones. The Host header still has the page's name. Listeners that serve no public pages
check it.
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
    The host names for which a listener answers: `names`, and every IP address.

    `key` is the configuration key by which an operator allows another name.
    """

    def __init__(self, names: Iterable[str], key: str) -> None:
        self._names = {LOCALHOST, *(_plain(name) for name in names if name)}
        self._key = key

    def refusal(self, request: Request) -> Rejected | None:
        """
        The error if the request names a host that is not allowed; None if it may go on.

        A UNIX socket has no host name, and HTTP/1.0 need not send one. X-Forwarded-Host is ignored: any
        client can write it.
        """
        if isinstance(request.getHost(), UNIXAddress):
            return None
        named: Any = request.requestHeaders.getRawHeaders(b"Host", [])
        if not named:
            is_old = request.clientproto == b"HTTP/1.0"
            return None if is_old else Rejected("a request must have a Host header")
        host = _host(named[-1].decode("latin-1"))
        if len(named) == 1 and (host in self._names or _is_ip(host)):
            return None
        text = f"the host {host[:100]!r} is not allowed here; to allow it, add it to {self._key}"
        return Rejected(text, 421, "host")


def admin_hosts(config: Config) -> Hosts:
    """
    The allowed hosts of the operators' listener: the node's own names, and `admin.hosts`.
    """
    public = urlsplit(config.public_url).hostname or ""
    return Hosts((config.node, _host(config.domain), public, *config.admin.hosts), "admin.hosts")


class Misdirected(Resource):
    """
    A resource that answers every request with the refusal: 421 Misdirected Request (RFC 9110, 15.5.20).
    """

    isLeaf = True

    def __init__(self, why: Rejected) -> None:
        super().__init__()
        self._why = why

    def render(self, request: Request) -> bytes:
        body = answer_error(request, self._why.code, str(self._why))
        if self._why.code == 421:  # Twisted has no phrase for it
            request.setResponseCode(421, b"Misdirected Request")
        return body


def _plain(name: str) -> str:
    return name.strip().lower().rstrip(".").removeprefix("[").removesuffix("]")


def _host(field: str) -> str:
    """
    The host in a Host header, without its port.
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
