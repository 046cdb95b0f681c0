"""
A whole node in memory, and clients true to the Protocol.
"""

import json
import math
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import TestCase

from twisted.internet.base import DelayedCall
from twisted.internet.task import Clock

from msgnode.config.loader import check
from msgnode.config.schema import Config
from msgnode.node import Node
from msgnode.protocol.close_codes import Closing
from msgnode.sessions.counters import Counters
from msgnode.sessions.session import Connection, Session
from msgnode.transport.data_plane import NO_DATA_PLANE, DataPlane
from tests.support.openid import NOW


def directory(test: TestCase) -> Path:
    """
    An empty directory that is gone after the test.
    """
    made = TemporaryDirectory()
    test.addCleanup(made.cleanup)
    return Path(made.name)


def refused_codes(counts: Counters) -> Counter[int]:
    """
    How many messages were refused with each code, whatever the reason.
    """
    found: Counter[int] = Counter()
    for (code, _), number in counts.refused.items():
        found[code] += number
    return found


class Turns(Clock):
    """
    A Clock that can also go through one turn of the reactor. It knows when the next call is due, and sorts
    nothing: the nodes of the suites ask it many times for each message.
    """

    def __init__(self) -> None:
        super().__init__()
        self._next = math.inf  # no call is due before

    def callLater(
        self, delay: float, callable: Callable[..., object], *args: object, **kw: object
    ) -> DelayedCall:
        at = self.seconds() + delay
        call = DelayedCall(at, callable, args, kw, self.calls.remove, self._earlier, self.seconds)
        self.calls.append(call)
        self._earlier(call)
        return call

    def _earlier(self, call: DelayedCall) -> None:
        self._next = min(self._next, call.getTime())

    def advance(self, amount: float) -> None:
        self.rightNow += amount
        while self._next <= self.rightNow:
            call = min(self.calls, key=DelayedCall.getTime, default=None)
            self._next = call.getTime() if call is not None else math.inf
            if call is not None and self._next <= self.rightNow:
                self._make(call)

    def _make(self, call: DelayedCall) -> None:
        self.calls.remove(call)
        call.called = True
        call.func(*call.args, **call.kw)

    def turn(self) -> None:
        """
        Make the calls that are due, and none that they ask for.
        """
        due = [call for call in self.calls if call.getTime() <= self.seconds()]
        for call in sorted(due, key=DelayedCall.getTime):
            if call.active():  # none of those before it cancelled it
                self._make(call)


def peak(act: Callable[[], object]) -> int:
    """
    How many bytes were held at most while it acted, beyond what there was.
    """
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class MemoryTrafficRecorder:
    """
    The third implementation of TrafficRecorder: it remembers.
    """

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.events: list[tuple[str, str]] = []

    def message(self, message, session):
        self.messages.append(
            {
                "session": session.runtime if session is not None else "",
                "connector": message.origin.connector,
                "type": message.type,
                "id": message.id,
                "from": message.from_,
                "to": message.to,
                "outcome": message.outcome,
                "recipients": message.recipients,
                "waiting": message.waiting,
                "code": message.code,
                "reason": message.reason,
                "resources": message.resources,
            }
        )

    def session(self, event: str, session: Session, connection: Connection | None) -> None:
        self.events.append((event, session.runtime))

    @property
    def outcomes(self) -> list[str]:
        return [message["outcome"] for message in self.messages]


class Client:
    """
    A connection that keeps what it is sent; `tell` sends as a client does.
    """

    connector = "memory"
    identity = ""
    bearer = ""
    acks_by_request = False
    peer = "192.0.2.1:1"

    def __init__(self, node: Node) -> None:
        self.node = node
        self.session: Session | None = None
        self.runtime = ""
        self.token = ""
        self.write_paused = False
        self.pauses = 0
        self.raw: list[bytes] = []
        self.lost: Closing | None = None
        self.errors: list[tuple[str, int]] = []
        node.sessions.connections.made(self)

    # -- Connection ----------------------------------------------------------

    def send(self, data: bytes) -> None:
        self.raw.append(data)

    def outbox_ready(self) -> None:
        pass

    def lose(self, why: Closing) -> None:
        self.lost = why

    def abort(self) -> None:
        self.drop()

    def pause_reading(self) -> None:
        self.pauses += 1

    def resume_reading(self) -> None:
        self.pauses -= 1

    def report_undecodable(self, text: str, code: int) -> None:
        self.errors.append((text, code))

    # -- what a test does ----------------------------------------------------

    @property
    def reading(self) -> bool:
        return not self.pauses

    def tell(self, message: dict[str, Any] | bytes) -> None:
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.node.receive(data, self)
        self.node.settle()

    @property
    def got(self) -> list[dict[str, Any]]:
        return [json.loads(data) for data in self.raw]

    def take(self) -> list[dict[str, Any]]:
        """
        What came since the last look.
        """
        got, self.raw = self.got, []
        return got

    def open(self, runtime: str) -> str:
        """
        Open a session; its token.
        """
        self.tell({"id": 1, "type": "open", "from": runtime, "to": "mn:/session"})
        self.runtime = runtime
        self.token = self.take()[0]["body"]["runtimeToken"]
        return self.token

    def reopen(self, from_: str) -> dict[str, Any]:
        """
        Say `re-open`; the answer and what came behind it.
        """
        self.tell({"id": 2, "type": "re-open", "from": from_, "to": "mn:/session"})
        return json.loads(self.raw.pop(0))

    def close(self) -> None:
        self.tell({"id": 3, "type": "close", "from": self.runtime, "to": "mn:/session"})

    def ask(self, **fields: Any) -> dict[str, Any]:
        """
        Send a request; its reply.
        """
        self.tell({"id": 7, "from": f"{self.runtime}/x", **fields})
        return self.take()[-1]

    def post(self, to: Any, type: str = "ping", **fields: Any) -> dict[str, Any]:
        """
        Send a message that awaits no answer; the message.
        """
        message = {"id": 9, "type": type, "from": f"{self.runtime}/x", "to": to, **fields}
        self.tell(message)
        return message

    def drop(self) -> None:
        """
        The connection is lost.
        """
        self.node.sessions.connections.lost(self)

    def subscribe(self, *addresses: str) -> None:
        self.ask(type="subscribe", to="domain://msg-node.example.org/sm", body={"resources": addresses})


class MemoryNode(Node):
    """
    A node with a Clock and a MemoryTrafficRecorder; `sections` are those of the TOML file.

    `world` makes the servers around it (tests/support/world.py); `links` are its
    connections to those.
    """

    def __init__(
        self,
        domain: str = "example.org",
        traffic_recorder: Any = None,
        world: Any = None,
        session_store: Any = None,
        data_plane: DataPlane = NO_DATA_PLANE,
        clock: Turns | None = None,
        **sections: Any,
    ) -> None:
        self.clock = clock or Turns()
        self.traffic_recorder = traffic_recorder or MemoryTrafficRecorder()
        config: Config = check({"domain": domain, "node": "test", "state": "none", **sections}, "test")
        self.world = world(config, self.clock, self.wall) if world else None
        super().__init__(
            config,
            self.clock,
            self.traffic_recorder,
            session_store,
            wall=self.wall,
            chance=lambda: 0.0,
            validator=self.world.tokens if self.world else None,
            data_plane=data_plane,
        )
        if self.world:
            self.world.offer(self)

    @property
    def links(self) -> list[Any]:
        return self.world.links if self.world else []

    def wall(self) -> float:
        """
        Seconds since 1970, as far as the Clock says.
        """
        return NOW + self.clock.seconds()

    def client(self, runtime: str | None = None) -> Client:
        """
        A client, with a session when a runtimeURL is given.
        """
        client = Client(self)
        if runtime is not None:
            client.open(runtime)
        return client
