"""
A reader of server-sent events in memory, which comes back with the last id that it has.
"""

import json
from typing import Any, NamedTuple

from tests.support.http_client import HTTPClient
from tests.support.network import Network


class Event(NamedTuple):
    name: str
    id: str
    data: Any


class EventReader:
    """
    A client of `/events`. `last_id` is what it shows when it connects.
    """

    def __init__(self, network: Network, *resources: str, **headers: str) -> None:
        self.network = network
        self.path = "/events?" + "&".join(f"resource={each}" for each in resources)
        self.headers = headers
        self.last_id = ""
        self.read = 0

    def connect(self, **headers: str) -> "EventReader":
        self.client = HTTPClient(self.network)
        shown = {"Last_Event_ID": self.last_id} if self.last_id else {}
        self.client.start("GET", self.path, **{**self.headers, **shown, **headers})
        self.network.pump()
        self.read = 0
        return self

    @property
    def head(self) -> str:
        return self.client.came.partition(b"\r\n\r\n")[0].decode()

    @property
    def status(self) -> int:
        return int(self.head.split(" ")[1])

    @property
    def text(self) -> str:
        """
        The body as far as it came, without the lengths of its chunks.
        """
        body, found = self.client.came.partition(b"\r\n\r\n")[2], b""
        while b"\r\n" in body:
            size, _, rest = body.partition(b"\r\n")
            found += rest[: int(size, 16)]
            body = rest[int(size, 16) + 2 :]
        return found.decode()

    @property
    def is_over(self) -> bool:
        return self.client.came.endswith(b"0\r\n\r\n") or not self.client.is_connected

    def take(self) -> list[Event]:
        """
        The events that came since the last look.
        """
        self.network.pump()
        text = self.text
        whole = text.rpartition("\n\n")[0]
        found = [event for event in map(self._event, whole[self.read :].split("\n\n")) if event is not None]
        self.read = len(whole)
        return found

    def _event(self, block: str) -> Event | None:
        name, id, data = "message", "", []
        for line in block.split("\n"):
            field, _, value = line.partition(": ")
            if field == "id":
                id = self.last_id = value
            elif field == "event":
                name = value
            elif field == "data":
                data.append(value)
        return Event(name, id, json.loads("\n".join(data))) if data else None

    def messages(self) -> list[Any]:
        """
        The ids of the messages that came since the last look.
        """
        return [event.data["id"] for event in self.take() if event.name == "message"]
