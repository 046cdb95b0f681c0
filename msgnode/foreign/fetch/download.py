"""
Downloads from places that other people name.

Each request has a deadline and follows no redirect. It connects only to addresses that the guard permits.
"""

from typing import Any, Protocol
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint

from msgnode.backends.http_client import BackendClient, Response, Unanswered
from msgnode.config.foreign import ForeignOptions
from msgnode.config.sections import BackEndOptions
from msgnode.foreign.fetch.stub_code import Unusable
from msgnode.foreign.proxy.guard import bounded
from msgnode.protocol.errors import Rejected

PORTS = {"http": 80, "https": 443}
_NOT_THERE = frozenset({404, 410})


class Guard(Protocol):
    """
    The guard of connections to places that other people name.
    """

    def check(self, host: str, port: int) -> Deferred[list[str]]:
        """
        The addresses of the host that may be connected to; fails if there is none.
        """

    def endpoint(self, host: str, port: int) -> IStreamClientEndpoint:
        """
        An endpoint that connects to these addresses only.
        """


class Download:
    """
    A client for the files of stubs.
    """

    def __init__(self, options: ForeignOptions, guard: Guard, reactor: Any) -> None:
        self._options = options
        self._guard = guard
        self._reactor = reactor

    async def get(self, url: str, most: int) -> bytes:
        """
        The content at the URL. Unusable if there is none, or if it has more than `most` bytes.
        """
        response = await self.request("GET", url, most)
        if response.status != 200:
            raise Unusable(f"{url}: status {response.status}", response.status in _NOT_THERE)
        return response.content

    async def request(self, method: str, url: str, most: int, json: Any = None) -> Response:
        """
        The response, whatever its status. Unusable if there is none.
        """
        parts = urlsplit(url)
        base = f"{parts.scheme}://{parts.netloc}"
        options = self._options
        try:
            await self._guard.check(parts.hostname or "", parts.port or PORTS[parts.scheme])
        except Exception as why:
            raise Unusable(f"{url}: {why}") from None
        limits = BackEndOptions(
            deadline_seconds=options.fetch_seconds, attempts=1, max_response_bytes=most, ca=options.ca
        )
        dial = bounded(self._guard.endpoint, most)
        client = BackendClient(base, limits, self._reactor, f"stub server at {base}", dial=dial)
        try:
            return await client.request(method, parts.path, json=json)
        except Unanswered as why:
            raise Unusable(f"{url}: {why.outcome}") from None
        except Rejected as why:
            raise Unusable(f"{url}: {why}") from None
