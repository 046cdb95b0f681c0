"""
An HTTP/1.1 client in memory, on one connection that is kept alive.
"""

import http.client
import json
import re
from io import BytesIO
from typing import Any, NamedTuple

from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure

from tests.support.network import Network, Wire

LENGTH = re.compile(rb"(?i)\r\ncontent-length: (\d+)")


class Response(NamedTuple):
    status: int
    headers: Any
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class _File:
    """
    What http.client takes for a socket.
    """

    def __init__(self, data: bytes) -> None:
        self.file = BytesIO(data)

    def makefile(self, *how: Any) -> BytesIO:
        return self.file


class HTTPClient(Protocol):
    """
    `request` and wait, or `start` and look at `response` later; None while it has not come whole.
    """

    transport: Wire

    def __init__(self, network: Network, listener: str = "web", peer: Any = None) -> None:
        self.network = network
        self._where = listener, peer
        self._came = bytearray()
        self._response: Response | None = None  # to what came
        self._is_new = False  # whether more came since it was looked for a response
        self._method = "GET"
        self._connect()

    def _connect(self) -> None:
        listener, peer = self._where
        self.is_connected = True
        self.link = self.network.link(listener, self, peer)

    def dataReceived(self, data: bytes) -> None:
        self._came += data
        self._response = None
        self._is_new = True

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.is_connected = False

    def start(self, method: str, path: str, body: bytes = b"", **headers: str) -> None:
        """
        Send a request; in names of headers `_` stands for `-`.
        """
        if not self.is_connected:
            self._connect()
        headers = {"Host": "example.org", **headers}
        if body:
            headers.setdefault("Content_Length", str(len(body)))
        lines = [f"{method} {path} HTTP/1.1"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self._method = method
        self._came.clear()
        self._response = None
        self._is_new = False
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)

    @property
    def came(self) -> bytes:
        """
        All that came since the last request was sent.
        """
        return bytes(self._came)

    @property
    def response(self) -> Response | None:
        if self._is_new:
            self._is_new = False
            self._response = self._read()
        return self._response

    def _read(self) -> Response | None:
        head = self._came.find(b"\r\n\r\n")
        length = LENGTH.search(self._came, 0, head) if head >= 0 else None
        if length and len(self._came) - head - 4 < int(length[1]) and self._method != "HEAD":
            return None
        response = http.client.HTTPResponse(_File(bytes(self._came)), method=self._method)  # type: ignore
        try:
            response.begin()
            return Response(response.status, response.headers, response.read())
        except http.client.IncompleteRead:
            return None

    def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> Response:
        """
        Send a request; its response.
        """
        self.start(method, path, body, **headers)
        self.network.pump()
        response = self.response
        assert response is not None, f"no response to {method} {path}"
        return response

    def hang_up(self) -> None:
        """
        The connection is gone without a word.
        """
        self.transport.abortConnection()
        self.network.pump()
