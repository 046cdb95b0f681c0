"""
A node in memory with foreign stubs: the processes and the fetches are fakes true to their Protocols.
"""

import json
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase

from msgnode.config.foreign import ForeignStub
from msgnode.foreign.fetch.code_store import CodeStore
from msgnode.foreign.fetch.stub_code import StubCode, Unusable
from msgnode.foreign.lifecycle.stub_host import StubEvents, StubStart
from msgnode.foreign.stubs import ForeignStubs, StubSurroundings
from tests.support.fakes import MemoryNode

B = "b.example"
DESCRIPTOR = {"configuration": {"url": f"wss://msg-node.{B}/ws"}, "version": 1}


def stub_code(domain: str = B, code: str = "code", **descriptor: Any) -> StubCode:
    """
    A stub as it is fetched.
    """
    made = json.dumps({**DESCRIPTOR, **descriptor}).encode()
    return StubCode(domain, f"https://{domain}/default.ps.js", code.encode(), made)


class MemoryStub:
    """
    A stub in a process (StubHost): a test says what it does.

    `room` is the number of messages that it still takes. With `answering` it answers this node's
    subscriptions, with that code.
    """

    def __init__(self, start: StubStart, events: StubEvents) -> None:
        self.start = start
        self.events = events
        self.posted: list[dict[str, Any]] = []
        self.room = 1_000_000
        self.answering: int | None = 200
        self.is_stopped = self.is_over = False
        self.holds_stop = False
        self.stopping: Deferred[None] = Deferred()

    # -- StubHost ------------------------------------------------------------------

    def post(self, message: bytes) -> bool:
        if self.is_over or not self.room:
            return False
        self.room -= 1
        found = json.loads(message)
        self.posted.append(found)
        if self.answering is not None and found["to"].endswith("/sm"):
            self.answer(found, self.answering)
        return True

    def stop(self) -> Deferred[None]:
        self.is_stopped = True
        if not self.holds_stop:
            self.end("stopped")
        return self.stopping

    # -- what a test does ------------------------------------------------------------

    def answer(self, request: dict[str, Any], code: int, **body: Any) -> None:
        self.say(
            id=request["id"],
            type="response",
            from_=request["to"],
            to=request["from"],
            body={"code": code, **body},
        )

    def say(self, from_: str = f"hyperty://{B}/h2", **message: Any) -> None:
        """
        Post a message into the bus.
        """
        whole = {"id": 1, "type": "create", "from": from_, "body": {}, **message}
        self.events.posted(json.dumps(whole).encode())

    def live(self) -> "MemoryStub":
        for value in ("created", "in-progress", "live"):
            self.events.status(value, "")
        return self

    def end(self, why: str = "killed") -> None:
        if not self.is_over:
            self.is_over = True
            self.events.ended(why)
            self.stopping.callback(None)

    def take(self) -> list[dict[str, Any]]:
        """
        What was posted since the last look, but for subscriptions.
        """
        posted, self.posted = self.posted, []
        return [message for message in posted if not message["to"].endswith("/sm")]


class MemoryHosts:
    """
    A starter of stubs (StubHosts) that keeps them.
    """

    def __init__(self) -> None:
        self.stubs: list[MemoryStub] = []
        self.makes: Callable[[StubStart, StubEvents], MemoryStub] = MemoryStub

    def start(self, start: StubStart, events: StubEvents) -> MemoryStub:
        self.stubs.append(self.makes(start, events))
        return self.stubs[-1]

    @property
    def last(self) -> MemoryStub:
        return self.stubs[-1]


class MemoryFetcher:
    """
    A fetcher that has stubs by domain.
    """

    def __init__(self) -> None:
        self.codes: dict[str, StubCode] = {B: stub_code()}
        self.fetched: list[str] = []
        self.waiting: Deferred[StubCode] | None = None

    def fetch(self, domain: str, stub: ForeignStub | None, kept: StubCode | None) -> Deferred[StubCode]:
        self.fetched.append(domain)
        if self.waiting is not None:
            return self.waiting
        if domain not in self.codes:
            return fail(Unusable(f"https://{domain}/default.ps.js: status 404", is_absent=True))
        return succeed(self.codes[domain])


class ForeignCase(SynchronousTestCase):
    """
    A node of a.example, with the stub of b.example listed, and a client, ann.
    """

    sections: dict[str, Any] = {}
    foreign: dict[str, Any] = {"accept": "listed", "stub": [{"domain": B}]}
    directory: Any = None

    def setUp(self) -> None:
        self.make()

    def make(self, **foreign: Any) -> None:
        self.node = MemoryNode("a.example", foreign={**self.foreign, **foreign}, **self.sections)
        self.hosts, self.fetcher = MemoryHosts(), MemoryFetcher()
        self.store = CodeStore(self.directory)
        around = StubSurroundings(
            self.node.config,
            self.hosts,
            self.fetcher,
            self.store,
            self.node.clock,
            lambda: 0.0,
            self.node.wall,
        )
        self.stubs = ForeignStubs(self.node, around, self.node.traffic)
        self.node.stubs = self.stubs
        self.node.components.stubs = self.stubs.to_builtins
        self.stubs.start(self.node.router.foreign)
        self.ann = self.node.client("runtime://a.example/ann")

    def entry(self, domain: str = B) -> dict[str, Any]:
        """
        The entry of a stub in the registry.
        """
        return next(each for each in self.stubs.to_builtins() if each["name"] == domain)

    def state(self, domain: str = B) -> str:
        return str(self.entry(domain)["state"])

    def send(self, to: str = f"hyperty://{B}/h2", **message: Any) -> None:
        """
        Ann sends a request.
        """
        self.ann.tell(
            {"id": 7, "type": "create", "from": f"{self.ann.runtime}/x", "to": to, "body": {}, **message}
        )

    def live(self) -> MemoryStub:
        """
        The stub, live after ann has sent something.
        """
        self.send()
        stub = self.hosts.last.live()
        stub.take()
        self.ann.take()
        return stub
