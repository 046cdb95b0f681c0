"""
What the tests of the WebSocket connector start from.
"""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.support.http_client import HTTPClient
from tests.support.network import Network
from tests.support.runtimes import WebSocketRuntime

UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "keep-alive, Upgrade",
    "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec_WebSocket_Version": "13",
}


class WebSocketCase(SynchronousTestCase):
    """
    One node; `client` connects to /ws.
    """

    def setUp(self) -> None:
        self.restart()

    def restart(self, **sections: Any) -> None:
        self.net = Network(**sections)

    def client(self, name: str = "a", **how: Any) -> WebSocketRuntime:
        return WebSocketRuntime(self.net, f"runtime://example.org/{name}", **how)

    def get(
        self, path: str, method: str = "GET", listener: str = "web", body: bytes = b"", **headers: str
    ) -> Any:
        return HTTPClient(self.net, listener).request(method, path, body, **headers)

    def update(self, to: WebSocketRuntime, value: str = "") -> dict[str, Any]:
        return {"id": 1, "type": "update", "from": "x", "to": to.url, "body": {"value": value}}
