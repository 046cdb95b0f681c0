"""
What the tests of long-polling start from.
"""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.support.http_client import HTTPClient, Response
from tests.support.network import Network
from tests.support.runtimes import TCPRuntime, dumps

URL = "runtime://example.org/a"


class PollCase(SynchronousTestCase):
    """
    A poller that has opened its session, and a device `b` to talk to.
    """

    def setUp(self) -> None:
        self.restart()

    def restart(self, **sections: Any) -> None:
        self.net = Network(**sections)
        self.other = TCPRuntime(self.net, "runtime://example.org/b").open()
        self.token = self.open().json()["messages"][0]["body"]["runtimeToken"]

    def open(self, type: str = "open", from_: str = URL) -> Response:
        return self.post({"id": 1, "type": type, "from": from_, "to": "mn:/session"}, token="")

    def request(
        self, method: str, query: str = "", body: Any = b"", token: str | None = None, **headers: str
    ) -> Response:
        return self.start(method, query, body, token, **headers).response

    def start(
        self, method: str, query: str = "", body: Any = b"", token: str | None = None, **headers: str
    ) -> HTTPClient:
        """
        A request whose response may be outstanding.
        """
        client = HTTPClient(self.net)
        token = self.token if token is None else token
        if token:
            headers["Authorization"] = f"Bearer {token}"
        client.start(method, f"/poll{query}", dumps(body) if body != b"" else b"", **headers)
        self.net.pump()
        return client

    def post(self, body: Any, query: str = "", **how: Any) -> Response:
        return self.request("POST", query, body, **how)

    def get(self, query: str = "", **how: Any) -> HTTPClient:
        return self.start("GET", query, **how)

    def update(self, id: int, to: str = URL, **fields: Any) -> dict[str, Any]:
        return {"id": id, "type": "update", "from": "x", "to": to, **fields}

    def send(self, *ids: int) -> None:
        """
        The device sends these messages to the poller.
        """
        self.other.send(*(self.update(id) for id in ids))

    def assertGot(self, ids: list[int], cursor: int, client: HTTPClient) -> None:
        self.assertIsNotNone(client.response)
        self.assertEqual(200, client.response.status, client.response)
        answer = client.response.json()
        self.assertEqual(
            {"cursor": cursor, "messages": [self.update(id) for id in ids]},
            answer,
        )

    def assertError(self, status: int, response: Response) -> None:
        self.assertEqual(status, response.status)
        body = response.json()
        self.assertEqual({"code": status, "desc": body["desc"], "description": body["desc"]}, body)
