"""
Two real domains: all that runtimes do with data objects of the other one, in both directions.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from .federated import PATIENCE, Domain, Domains
from .process import Lines

Message = dict[str, Any]


class Runtime(Lines):
    """
    A runtime with a hyperty, connected to the node of its own domain only.
    """

    def __init__(self, domain: Domain, name: str) -> None:
        self.domain, self.url = domain.name, f"runtime://{domain.name}/{name}"
        self.hyperty = f"hyperty://{domain.name}/{name}"
        super().__init__(domain.lines, self.url)
        self.socket.settimeout(PATIENCE)
        self._id = 10
        assert self.subscribe(resources=[self.hyperty]) == 200

    def request(self, type: str, to: str, from_: str = "", **body: Any) -> int:
        """
        Send a message; its id.
        """
        self._id += 1
        self.send({"id": self._id, "type": type, "from": from_ or self.hyperty, "to": to, "body": body})
        return self._id

    def code(self, type: str, to: str, from_: str = "", **body: Any) -> Any:
        """
        The code of the answer to a request.
        """
        id, answer = self.request(type, to, from_, **body), self.next()
        assert (answer["id"], answer["type"]) == (id, "response")
        return answer["body"]["code"]

    def subscribe(self, type: str = "subscribe", **body: Any) -> Any:
        """
        The code of the answer, once the other domain has answered.
        """
        deadline = time.monotonic() + PATIENCE
        while True:
            code = self.code(type, f"domain://msg-node.{self.domain}/sm", f"{self.url}/sm", **body)
            if code != 504 or time.monotonic() > deadline:
                return code

    def next(self) -> Message:
        came = self.receive()
        assert came is not None
        return came


@pytest.fixture(scope="module")
def two() -> Iterator[Domains]:
    found = Domains(2)
    found.chain()
    found.start()
    yield found
    found.stop()


def wait_for_route(runtime: Runtime, there: Domain) -> None:
    deadline = time.monotonic() + PATIENCE
    while runtime.code("read", f"runtime://{there.name}/nobody") != 404:
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.parametrize("direction", ["a to b", "b to a"])
def test_everything_that_runtimes_do(two: Domains, direction: str) -> None:
    """
    A request with three responses, a publication to three observers, children of both sides, unsubscribing,
    the end of the object, and a look-up in the other domain's registry.
    """
    here, there = two.all if direction == "a to b" else two.all[::-1]
    reporter = Runtime(there, "reporter")
    one, *others = observers = [Runtime(here, name) for name in ("one", "two", "three")]
    wait_for_route(one, there)
    room = f"comm://{there.name}/room"
    child = f"{room}/children/messages"

    # -- a request, and three responses
    id = one.request("create", reporter.hyperty, value="invite")
    request = reporter.next()
    for code in (100, 180, 200):
        answer = {"id": request["id"], "type": "response", "from": reporter.hyperty, "to": request["from"]}
        reporter.send({**answer, "body": {"code": code}})
    assert [(each["id"], each["body"]["code"]) for each in (one.next(), one.next(), one.next())] == [
        (id, 100),
        (id, 180),
        (id, 200),
    ]

    # -- a publication to three observers
    assert reporter.subscribe(resources=[child, f"{room}/subscription"]) == 200
    for observer in observers:
        assert observer.subscribe(resource=room, childrenResources=["messages"]) == 200
    reporter.request("update", f"{room}/changes", room, value=1)
    assert [observer.next()["body"]["value"] for observer in observers] == [1, 1, 1]

    # -- a child that an observer creates, and one of the reporter
    one.request("create", child, value="hello", via="stub")
    assert reporter.next()["body"]["value"] == "hello"
    assert [other.next()["body"]["value"] for other in others] == ["hello", "hello"]
    reporter.request("create", child, value="welcome", via="stub")
    assert [observer.next()["body"]["value"] for observer in observers] == ["welcome"] * 3

    # -- one unsubscribes, and the object ends
    assert one.subscribe("unsubscribe", resource=room) == 200
    reporter.request("delete", f"{room}/changes", room)
    assert [other.next()["type"] for other in others] == ["delete", "delete"]

    # -- a look-up in the other domain's registry
    registry = f"domain://registry.{there.name}"
    value = {
        "url": reporter.hyperty,
        "user": f"bob@{there.name}",
        "descriptor": f"https://{there.name}/chat",
        "resources": ["chat"],
        "dataSchemes": ["comm"],
        "expires": 3600,
        "status": "live",
    }
    assert reporter.code("create", registry, f"{reporter.url}/registry/", value=value) == 200
    id = one.request("read", registry, resource=f"/hyperty/idp-identifier/bob@{there.name}")
    answer = one.next()  # it got no delete before
    assert (answer["id"], answer["body"]["code"]) == (id, 200)
    assert list(answer["body"]["value"]) == [reporter.hyperty]

    for runtime in (reporter, *observers):
        runtime.close()
