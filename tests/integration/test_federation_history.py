"""
The history of objects of another domain, with two real nodes.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from .federated import PATIENCE, Domains
from .process import Lines

OBJECT = "comm://b.example/rooms/1"
CHANGES = f"{OBJECT}/changes"


class Client(Lines):
    """
    A client of the node of a domain.
    """

    def __init__(self, port: int, domain: str, name: str) -> None:
        self.runtime = f"runtime://{domain}/{name}"
        super().__init__(port, self.runtime)
        self.socket.settimeout(PATIENCE)

    def request(self, to: str, kind: str, **body: Any) -> dict[str, Any]:
        """
        The body of the answer; what comes before it was published.
        """
        self.send({"id": 7, "type": kind, "from": self.runtime, "to": to, "body": body})
        while True:
            message = self.receive()
            assert message is not None
            if message["type"] == "response":
                return message["body"]

    def publish(self, value: int) -> None:
        self.send({"id": 1, "type": "update", "from": OBJECT, "to": CHANGES, "body": {"value": value}})

    def subscribe(self, domain: str, **body: Any) -> dict[str, Any]:
        return self.request(f"domain://msg-node.{domain}/sm", "subscribe", resources=[CHANGES], **body)

    def versions(self, last: int) -> list[int]:
        """
        Those of what comes, up to this one.
        """
        found: list[int] = []
        while not found or found[-1] < last:
            message = self.receive()
            assert message is not None
            found.append(message["version"])
        return found


@pytest.fixture
def domains() -> Iterator[Domains]:
    domains = Domains(2)
    a, b = domains.all
    a.configure({b: []})
    b.configure({a: []}, '[objects]\nkeep = ["comm://b.example/rooms/*"]\n')
    domains.start()
    yield domains
    domains.stop()


def read(client: Client, **body: Any) -> dict[str, Any]:
    """
    The history, as soon as the home node is linked.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = client.request(f"{OBJECT}/history", "read", **body)
        if answer["code"] not in (404, 502, 503, 504) or time.monotonic() > deadline:
            return answer
        time.sleep(0.1)


def test_history_of_another_domain(domains: Domains) -> None:
    """
    A client reads an object of another domain as it was, and its changes, and catches up without a gap or a
    double, also when the home node was killed in between.
    """
    a, b = domains.all
    reporter = Client(b.lines, "b.example", "ann")
    for value in range(1, 301):
        reporter.publish(value)
    assert read(reporter, at=300)["value"]["value"] == 300
    observer = Client(a.lines, "a.example", "bob")

    assert read(observer, at=7)["value"]["value"] == 7
    page = read(observer, **{"from": 299})["value"]
    assert [each["message"]["body"]["value"] for each in page["changes"]] == [299, 300]
    assert observer.subscribe("a.example", since=10) == {"code": 200, "version": 300}
    reporter.publish(301)
    assert observer.versions(301) == list(range(11, 302))

    b.kill()
    b.start()
    late = Client(a.lines, "a.example", "eve")
    assert read(late, at=301)["value"]["value"] == 301
    assert late.subscribe("a.example", since=299)["code"] == 200
    assert late.versions(301) == [300, 301]
    assert late.request(f"{OBJECT}/history", "read", at=302)["code"] == 404
