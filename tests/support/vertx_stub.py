"""
VertxProtoStub as runtimes deploy it , over the WebSocket in memory.

`bus` is what the runtime sees: the stub's own statuses, and the messages.
"""

import json
from typing import Any

from tests.support.network import Network
from tests.support.runtimes import WebSocketRuntime, dumps


class VertxStub(WebSocketRuntime):
    """
    Connects when something is posted, says `open` or `re-open`, and marks messages with `via`.
    """

    def __init__(self, network: Network, stub: str, runtime: str) -> None:
        self.bus: list[dict[str, Any]] = []
        self.stub_url = stub
        self.session_url: str | None = runtime
        self._status = ""
        self._verb = "open"
        self._next_id = 1
        self._asked = 0
        self._held: list[dict[str, Any]] = []
        super().__init__(network, runtime)
        self._say("created")

    def connect(self) -> None:
        """
        Not before something is posted, or `start` is called.
        """

    def start(self) -> None:
        """
        Open the socket and the session.
        """
        self._say("in-progress")
        super().connect()
        self._asked, self._next_id = self._next_id, self._next_id + 1
        fields = {} if self.session_url is None else {"from": self.session_url}
        self.put(dumps({"id": self._asked, "type": self._verb, "to": "mn:/session", **fields}))
        self.network.pump()

    def post(self, message: dict[str, Any]) -> None:
        """
        The bus gives the stub a message for the domain.
        """
        message = json.loads(json.dumps(message))
        body = message.setdefault("body", {})
        if body.get("via") == self.via:
            return
        body["via"] = self.via
        if self._status != "live":
            self._held.append(message)
            self.start()
        else:
            self.put(dumps(message))
            self.network.pump()

    @property
    def via(self) -> str | None:
        return self.stub_url

    def disconnect(self) -> None:
        self.put(dumps({"id": self._next_id, "type": "close", "from": self.session_url, "to": "mn:/session"}))
        self._next_id += 1
        self.network.pump()
        # A misspelt key of its configuration, in the deployed code.
        self.session_url, self._verb = None, "open"

    def drop(self) -> None:
        super().drop()
        self._say("disconnected")

    def settle(self) -> bool:
        did = bool(self.raw)
        while self.raw:
            self._heard(json.loads(self.raw.pop(0)))
        if self.code is not None:
            did, self.code = True, None
            self._say("disconnected")
        return did

    def _heard(self, message: dict[str, Any]) -> None:
        if message["from"] == "mn:/session":
            if message["type"] == "response" and message["id"] == self._asked:
                self._answered(message["body"])
            return
        if message.get("body", {}).get("via") != self.via:
            message.setdefault("body", {})["via"] = self.via
            self.bus.append(message)

    def _answered(self, body: dict[str, Any]) -> None:
        if type(body["code"]) is not int or body["code"] != 200:
            self._say("failed")
            return
        if body.get("runtimeToken"):
            self.session_url, self._verb = f"{self.url}/{body['runtimeToken']}", "re-open"
        self._say("live")
        held, self._held = self._held, []
        for message in held:
            self.put(dumps(message))

    def _say(self, status: str) -> None:
        self._status = status
        to = f"{self.stub_url}/status"
        self.bus.append({"type": "update", "from": self.stub_url, "to": to, "body": {"value": status}})

    @property
    def statuses(self) -> list[str]:
        return [message["body"]["value"] for message in self.bus if message["from"] == self.stub_url]


class LateVertxStub(VertxStub):
    """
    That of 2019, which writes its session URL into `via`, with the token once it has one.
    """

    @property
    def via(self) -> str | None:
        return self.session_url
