"""
The peer of a request to the admin listener, which may come by a proxy.
"""

from collections.abc import Collection
from typing import Any

from twisted.internet.address import UNIXAddress
from twisted.web.server import Request

from msgnode.connectors.http.requests import headers
from msgnode.protocol.peer_address import ip_of, peer_name

FORWARDED = (b"Forwarded", b"X-Real-IP", b"X-Forwarded-Host", b"X-Forwarded-Proto")


def peer_of(request: Request) -> str:
    """
    The name of the peer; that of the client of a trusted proxy is in X-Forwarded-For.
    """
    trusted: Collection[str] = getattr(request.site, "trusted_proxies", ())
    return peer_name(request.getClientAddress(), _forwarded_for(request), trusted)


def is_local(request: Request) -> bool:
    """
    Whether the request was made on this machine. What a proxy on this machine forwards was not, unless
    X-Forwarded-For has addresses of this machine alone; that the proxy is trusted makes no difference.
    """
    if not _is_of_this_machine(request.getClientAddress()):
        return False
    forwarded = _forwarded_for(request)
    if not forwarded:
        return not any(request.requestHeaders.hasHeader(name) for name in FORWARDED)
    return all(_is_loopback(hop.strip()) for hop in forwarded.split(","))


def _forwarded_for(request: Request) -> str:
    return ",".join(headers(request, b"X-Forwarded-For"))


def _is_of_this_machine(address: Any) -> bool:
    return isinstance(address, UNIXAddress) or _is_loopback(str(getattr(address, "host", "")))


def _is_loopback(host: str) -> bool:
    found = ip_of(host)
    return found is not None and found.is_loopback
