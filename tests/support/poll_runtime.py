"""
The client of the long-polling connector, with the face of runtimes.py.
"""

import json
from typing import Any

import msgspec
from msgspec import Raw, Struct

from tests.support.http_client import HTTPClient, Response
from tests.support.runtimes import Runtime, dumps


class _Answer(Struct):
    messages: list[Raw]
    cursor: int


class PollRuntime(Runtime):
    """
    A client with nothing but HTTP: as soon as one GET is answered, the next is on its way.
    """

    closings = {4410: 410, 1000: 401, 1001: 503, 1013: 503, 4403: 403, 4413: 503, 1009: 413}

    answer: Response | None = None  # to the last POST

    def connect(self) -> None:
        self.post = HTTPClient(self.network)
        self.get = HTTPClient(self.network)
        self.link = self.get.link
        self.cursor = 0
        self._begun: list[bytes] = []
        self._polls, self._reads = False, True

    @property
    def is_connected(self) -> bool:
        return self.get.is_connected and self.code is None

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def put(self, data: bytes) -> None:
        self._begun.append(data)

    def send(self, *messages: Any) -> None:
        for message in messages:
            self.put(dumps(message))
        begun, self._begun = self._begun, []
        body = begun[0] if len(begun) == 1 else b"[" + b",".join(begun) + b"]"
        self.answer = self.post.request("POST", "/poll", body, **self.headers())
        if self.answer.status == 200:
            self._greeted(self.answer)
        elif self.answer.status != 202:
            self._refused(self.answer)
        self.network.pump()

    def session(self, type: str, id: Any = 1, **fields: Any) -> dict[str, Any]:
        self.token, self._last = "", self.token
        return super().session(type, id, **fields)

    def _greeted(self, answer: Response) -> None:
        self._heard(answer)
        self.token = json.loads(self.raw[-1])["body"].get("runtimeToken", self._last)
        self._listen()

    def _heard(self, response: Response) -> None:
        answer = msgspec.json.decode(response.body, type=_Answer)
        self.raw += [bytes(message) for message in answer.messages]
        self.cursor = answer.cursor

    def _listen(self) -> None:
        self.get.start("GET", f"/poll?wait=25&after={self.cursor}", **self.headers())
        self._polls = True

    def settle(self) -> bool:
        if not self._polls or not self._reads:
            return False
        response = self.get.response
        if response is None:
            return False
        self._polls = False
        if response.status == 200:
            self._heard(response)
        elif response.status != 204:
            self._refused(response)
            return False
        self._listen()
        return True

    def _refused(self, response: Response) -> None:
        self.code = response.status
        self.reason = response.json()["desc"]
        retry = response.headers.get("Retry-After")
        self.retry_after = float(retry) if retry else None

    def come_back(self) -> None:
        self.connect()
        self.code = None
        self.reopen()

    def attempt(self, data: Any) -> dict[str, Any] | None:
        self.send(data)
        came = self.take()
        assert self.answer is not None
        if self.answer.status not in (200, 202):
            self.code = None
            return {"body": self.answer.json()}
        return came[-1] if came else None

    def send_half(self, message: Any) -> None:
        body = dumps(message)
        self.post.start("POST", "/poll", body, **self.headers())
        wire = self.post.link.clientIO
        half = b"".join(wire.stream)
        wire.stream[:] = [half[: -len(body) // 2]]
        self.network.pump()

    def stop_reading(self) -> None:
        self._reads = False
        self.get.link.serverIO.stalled = True

    def read_again(self) -> None:
        self._reads = True
        super().read_again()

    def drop(self) -> None:
        self._polls = False
        self.post.hang_up()
        self.get.hang_up()
