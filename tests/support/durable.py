"""
A node in memory whose state is on disk, and which can be killed; and a client that acknowledges.
"""

import json
from pathlib import Path
from typing import Any

from msgnode.config.loader import check
from msgnode.links.stream.storage.spool_store import is_stream
from msgnode.node import Node
from msgnode.protocol.close_codes import OVER_CAPACITY, Closing
from msgnode.service.restart.recovery import doubt, restore
from msgnode.sessions.session import Session
from msgnode.storage.session_store import Store
from msgnode.storage.spool import SEGMENT_BYTES, Spool, write_all
from tests.support.fakes import Client, MemoryTrafficRecorder, Turns

SM = "domain://msg-node.example.org/sm"


class DurableNode(Node):
    """
    A node with its state in a directory; `killed` is the node that comes after kill -9.
    """

    def __init__(
        self,
        directory: Path,
        clock: Turns | None = None,
        world: Any = None,
        disk: "Refusing | None" = None,
        segment_bytes: int = SEGMENT_BYTES,
        **sections: Any,
    ) -> None:
        self.clock = clock or Turns()
        self.traffic_recorder = MemoryTrafficRecorder()
        self.directory = directory
        self.sections = sections
        self.disk = disk or Refusing()
        self.segment_bytes = segment_bytes
        self.store = Store(directory, self.clock)
        self.spool = Spool(directory / "spool", segment_bytes=segment_bytes, write=self.disk)
        rows = self.store.open()
        owed = self.spool.open()
        config = check({"domain": "example.org", "node": "test", **sections}, "test")
        self.make_world = world
        self.world = world(config, self.clock, self.clock.seconds) if world else None
        super().__init__(
            config,
            self.clock,
            self.traffic_recorder,
            self.store,
            self.spool,
            wall=self.clock.seconds,
            chance=lambda: 0.0,
            validator=self.world.tokens if self.world else None,
        )
        self.stream_records = {sid: records for sid, records in owed.items() if is_stream(sid)}
        restore(self, rows, {sid: records for sid, records in owed.items() if not is_stream(sid)})
        if self.spool.incomplete:
            doubt(self, self.spool)

    @property
    def links(self) -> list[Any]:
        return self.world.links if self.world else []

    def client(self, runtime: str | None = None) -> Client:
        client = Client(self)
        if runtime is not None:
            client.open(runtime)
        return client

    def killed(self, disk: "Refusing | None" = None) -> "DurableNode":
        """
        The process ends without a word; what it had not written is gone, and its timers with it.

        `disk` is what the next one writes to.
        """
        self.spool.close()
        self.store.shut()
        for call in list(self.clock.getDelayedCalls()):
            call.cancel()
        return DurableNode(
            self.directory, self.clock, self.make_world, disk, self.segment_bytes, **self.sections
        )


class Refusing:
    """
    The `write` of a spool whose disk can be full, or have room for so many batches.
    """

    full = False
    room: int | None = None
    tried = 0

    def __call__(self, file: int, parts: list[bytes]) -> None:
        self.tried += 1
        if self.room is not None:
            self.room -= 1
        if self.full or (self.room is not None and self.room < 0):
            raise OSError(28, "No space left on device")
        write_all(file, parts)


class Wire:
    """
    A connection of a Counting client: what the node sends arrives when the test lets it.
    """

    connector = "memory"
    peer = "192.0.2.1:1"
    identity = ""
    bearer = ""
    acks_by_request = False

    def __init__(self, node: Any) -> None:
        self.node = node
        self.session: Session | None = None
        self.write_paused = False
        self.reading = True
        self.on_its_way: list[bytes] = []
        self.lost: Closing | None = None
        node.sessions.connections.made(self)

    def send(self, data: bytes) -> None:
        self.node.settle()
        if self.lost is None:
            self.on_its_way.append(data)

    def outbox_ready(self) -> None:
        raise AssertionError("not counted by itself")

    def lose(self, why: Closing) -> None:
        self.lost = why

    def abort(self) -> None:
        self.lose(OVER_CAPACITY)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def report_undecodable(self, text: str, code: int) -> None:
        pass


class Counting:
    """
    A client that follows docs/protocol.md, "Acknowledged resume", to the letter.

    `got` is everything it was given, each message once, in order; `missed` how
    many it was told are gone.
    """

    def __init__(self, node: Any, runtime: str) -> None:
        self.node = node
        self.runtime = runtime
        self.wire: Wire | None = None
        self.token = self.epoch = ""
        self.received = 0
        self.sent = 0  # numbers given to what it sent in this epoch
        self.kept: list[bytes] = []  # what is not acknowledged, the last of which has number `sent`
        self.got: list[dict[str, Any]] = []
        self.missed = 0
        self.told: dict[str, Any] = {}  # what the last answer said of `resume`

    def connect(self) -> None:
        """
        Open, or come back; what is to be sent again is sent again.
        """
        self.wire = Wire(self.node)
        if self.token:
            resume: Any = {"epoch": self.epoch, "received": self.received}
            self.tell("re-open", f"{self.runtime}/{self.token}", {"resume": resume})
        else:
            self.tell("open", self.runtime, {"resume": True})
        body = json.loads(self.wire.on_its_way.pop(0))["body"]
        self.token = body.get("runtimeToken", self.token)
        told = self.told = body["resume"]
        if told["epoch"] == self.epoch:
            self.missed += told["missed"]
            self.received += told["missed"]
            self._acknowledged(told["received"])
        else:
            self.epoch, self.received, self.sent = told["epoch"], 0, len(self.kept)
            self.missed += told["missed"] or 0
        for data in self.kept:
            self.put(data)

    def open_anew(self) -> None:
        """
        Acknowledge what has come, and begin a new epoch on a new connection.
        """
        if self.wire is None or self.wire.lost is not None:
            self.connect()
        self.acknowledge()
        self.lose()
        self.token = ""
        self.connect()

    def lose(self, arrives: int = 0) -> None:
        """
        The connection breaks after so much more has arrived.
        """
        if self.wire is not None:
            self.arrive(arrives)
            wire, self.wire = self.wire, None
            self.node.sessions.connections.lost(wire)

    def send(self, **fields: Any) -> None:
        data = json.dumps({"from": self.runtime, **fields}).encode()
        self.sent += 1
        self.kept.append(data)
        if self.wire is not None:
            self.put(data)

    def arrive(self, most: int | None = None) -> None:
        """
        What is on its way arrives, or as much of it.
        """
        assert self.wire is not None
        while self.wire.on_its_way and most != 0:
            self._hear(json.loads(self.wire.on_its_way.pop(0)))
            most = None if most is None else most - 1

    def acknowledge(self) -> None:
        self.tell("ack", self.runtime, {"received": self.received})

    def _hear(self, message: dict[str, Any]) -> None:
        if message["from"] == "mn:/session":
            if message["type"] == "ack":
                self._acknowledged(message["body"]["received"])
        else:
            self.received += 1
            self.got.append(message)

    def _acknowledged(self, number: int) -> None:
        keep = self.sent - number
        self.kept = self.kept[len(self.kept) - keep :] if keep else []

    def tell(self, type: str, from_: str, body: dict[str, Any]) -> None:
        self.put(
            json.dumps({"id": 0, "type": type, "from": from_, "to": "mn:/session", "body": body}).encode()
        )

    def put(self, data: bytes) -> None:
        assert self.wire is not None
        self.node.receive(data, self.wire)
        self.node.settle()
