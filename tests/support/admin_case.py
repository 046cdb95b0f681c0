"""
A node in memory with its admin listener, and an operator who asks it.
"""

import json
from typing import Any
from urllib.parse import quote

from twisted.trial.unittest import SynchronousTestCase

from tests.support.fakes import directory
from tests.support.http_client import HTTPClient, Response
from tests.support.network import Network
from tests.support.runtimes import TCPRuntime, WebSocketRuntime

A, B, C = "runtime://example.org/a", "runtime://example.org/b", "runtime://example.org/c"
REASON = "it is a test"


class AdminCase(SynchronousTestCase):
    """
    A node with two clients, and the token of its machine.
    """

    sections: dict[str, Any] = {}

    def setUp(self) -> None:
        self.state = directory(self)
        self.net = Network(state=str(self.state), **self.sections)
        self.net.listener("admin")  # before the clients, as in a node
        self.net.tokens.startService()
        self.token = (self.state / "admin-token").read_text().strip()
        self.device = TCPRuntime(self.net, A).open()
        self.browser = WebSocketRuntime(self.net, B).open()

    @property
    def node(self) -> Any:
        return self.net.node

    def request(
        self, method: str, path: str, body: Any = None, token: str | None = None, **headers: str
    ) -> Response:
        """
        A request to /api/v1, with as much time as it needs.
        """
        headers["Authorization"] = f"Bearer {self.token if token is None else token}"
        data = b"" if body is None else json.dumps(body).encode()
        peer = headers.pop("peer", None)
        http = HTTPClient(self.net, "admin", peer)
        http.start(method, f"/api/v1/{path}", data, **headers)
        self.net.pump()
        for _ in range(20):
            if http.response is not None:
                return http.response
            self.net.advance(0.5)
        raise AssertionError(f"no response to {method} {path}")

    def get(self, path: str, **headers: str) -> Any:
        answer = self.request("GET", path, **headers)
        self.assertEqual(200, answer.status, answer.body)
        return answer.json()

    def act(self, path: str, method: str = "POST", **body: Any) -> Any:
        answer = self.request(method, path, {"reason": REASON, **body})
        self.assertEqual(200, answer.status, answer.body)
        return answer.json()

    def assertRefused(self, answer: Response, code: int, part: str) -> None:
        self.assertEqual((code, code), (answer.status, answer.json()["code"]), answer.body)
        self.assertIn(part, answer.json()["description"])

    def named(self, *roles: str) -> str:
        """
        A token with these roles.
        """
        name = "-".join(roles)
        return self.act("tokens", name=name, roles=list(roles))["details"]["token"]

    def audit(self) -> list[dict[str, Any]]:
        return [
            json.loads(line)
            for path in sorted((self.state / "audit").glob("*.jsonl"))
            for line in path.read_text().splitlines()
        ]


def url(runtime: str) -> str:
    return quote(runtime, safe="")
