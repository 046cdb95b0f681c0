"""
A QoS broker, and the service for the last hop, as the project's own answer.
"""

import json
from typing import Any

from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request


class Broker(Resource):
    """
    `accounts` are quotas and consumption by name; `turn` its TURN server, if there is one.

    Like the real one it answers 404 in plain text, gives a password for any client, and may hang.
    """

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.turn: str | None = "203.0.113.7:3478"
        self.accounts: dict[str, dict[str, str]] = {"example": {"audio": "7", "video": "100", "data": "0"}}
        self.exceeded = False
        self.hang = False
        self.raw: bytes | None = None
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.issued = 0

    def render(self, request: Request) -> Any:
        path = request.path.decode()
        query = {name.decode(): values[0].decode() for name, values in request.args.items()}
        self.asked.append((path, query))
        if self.hang:
            return NOT_DONE_YET
        if self.raw is not None:
            return self.raw
        answer = getattr(self, "do_" + path.strip("/.").replace("-", "_"), None)
        if answer is None:
            return self._text(request, f"Cannot {request.method.decode()} {path}")
        found = answer(query)
        if isinstance(found, str):
            return self._text(request, found)
        request.setHeader(b"Content-Type", b"application/json; charset=utf-8")
        return json.dumps(found).encode()

    def _text(self, request: Request, text: str) -> bytes:
        request.setResponseCode(404)
        request.setHeader(b"Content-Type", b"text/html; charset=utf-8")
        return text.encode()

    def do_getAppropriateTurn(self, query: dict[str, str]) -> Any:
        if query["cspId"] not in self.accounts:
            return "Unable to get a turn server : CSP not found"
        if self.exceeded:
            return "Unable to get a turn server : data consumption exceeded"
        if self.turn is None:
            return "No turn found"
        self.issued += 1
        return [self.turn, f"{self.issued:032x}"]

    def do_getCredentials(self, query: dict[str, str]) -> Any:
        return {"clientId": query["clientId"], "password": f"pw{len(self.asked)}"}

    def do_getAllCspInfo(self, query: dict[str, str]) -> Any:
        quotas = {"audioQuota": "1000", "videoQuota": "2000", "dataQuota": "3000", "conso": "107"}
        return [{"csp": "prov:other", **quotas}] + [{"csp": f"prov:{n}", **quotas} for n in self.accounts]

    def do_getCspConso(self, query: dict[str, str]) -> Any:
        return self.accounts.get(query["cspkey"].removeprefix("prov:"))

    def do_well_known(self, query: dict[str, str]) -> Any:
        value = {"Network Bearer": "LTE", "IP Addresses": ["203.0.113.9"]}
        return {"type": "response", "mid": 1, "client": query["client"], "value": value}
