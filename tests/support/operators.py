"""
An operator at the admin listener of a node in memory.
"""

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.support.fakes import Client, directory
from tests.support.http_client import HTTPClient, Response
from tests.support.network import Network


class Stream:
    """
    An event stream: `events` are those that came since the last look.
    """

    def __init__(self, net: Network, path: str, **headers: str) -> None:
        self.net = net
        self.http = HTTPClient(net, "admin")
        self.http.start("GET", path, **headers)
        net.pump()
        self.at = 0

    @property
    def head(self) -> str:
        return self.http.came.partition(b"\r\n\r\n")[0].decode()

    @property
    def status(self) -> int:
        return int(self.head.split()[1])

    @property
    def text(self) -> str:
        """
        The body without the sizes of HTTP's chunks.
        """
        body, found = self.http.came.partition(b"\r\n\r\n")[2], b""
        while body:
            size, _, body = body.partition(b"\r\n")
            found += body[: int(size, 16)]
            body = body[int(size, 16) + 2 :]
        return found.decode()

    @property
    def events(self) -> list[dict[str, Any]]:
        text = self.text
        fresh, self.at = text[self.at :], len(text)
        found = []
        for block in fresh.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
            if "data" in fields:
                found.append(
                    {"id": fields.get("id", ""), "event": fields["event"], **json.loads(fields["data"])}
                )
        return found


class OperatorCase(SynchronousTestCase):
    """
    A node in memory with its admin listener, an operator with the token of the node, and clients.
    """

    sections: dict[str, Any] = {}

    def setUp(self) -> None:
        self.state = directory(self)
        self.net = Network(state=str(self.state), **self.sections)
        self.node = self.net.node
        self.net.tokens.startService()
        self.net.live.startService()
        self.token = (self.state / "admin-token").read_text().strip()
        self.http = HTTPClient(self.net, "admin")

    def auth(self, token: str | None = None) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token if token is None else token}"}

    def token_for(self, *roles: str) -> str:
        """
        A token with these roles.
        """
        name = f"token-{'-'.join(roles)}"
        with (self.state / "admin-token").open("a") as file:
            file.write(f"{name} {' '.join(roles)}\n")
        return name

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> Response:
        data = b"" if body is None else json.dumps(body).encode()
        return self.http.request(method, f"/api/v1/{path}", data, **self.auth(token))

    def stream(self, query: str = "", token: str | None = None, **headers: str) -> Stream:
        return Stream(self.net, f"/api/v1/events{query}", **self.auth(token), **headers)

    def client(self, name: str) -> Client:
        return self.node.client(f"runtime://example.org/{name}")
