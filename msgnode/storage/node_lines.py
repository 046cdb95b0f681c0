"""
The node's own lines in the traffic log: that it started, that it is alive, that it stopped.

A reader that finds no such line for some minutes knows that the node was silent, not only its clients.
"""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct
from twisted.application.service import Service
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall

from msgnode.sessions.counters import Counters

ALIVE_SECONDS = 60.0  # seconds between two lines


class NodeLine(Struct, gc=False):
    """
    A line about the node itself. docs/traffic-log.md explains the keys.

    `time` and `started` are in nanoseconds since 1970; the three counts are since `started`.
    """

    v: int
    kind: str
    time: int
    node: str
    event: str
    started: int
    version: str
    revision: str
    messages: int
    unlogged: int
    lost: int


class NodeLineLog(Protocol):
    """
    The traffic log, as far as it takes these lines.
    """

    counts: Counters
    lost: int

    def node(self, event: str, started: int, version: str, revision: str) -> None: ...


class NodeLines(Service):
    """
    The service that writes a line when it starts, one each minute, and one when it stops.

    `revision` gives a short text that changes with the configuration, `wall` the time in nanoseconds since
    1970.
    """

    def __init__(
        self,
        log: NodeLineLog,
        version: str,
        revision: Callable[[], str],
        clock: IReactorTime,
        wall: Callable[[], int],
    ) -> None:
        self._log = log
        self._version = version
        self._revision = revision
        self._wall = wall
        self._started = 0
        self._repeating = LoopingCall(self._write, "alive")
        self._repeating.clock = clock

    def startService(self) -> None:
        super().startService()
        self._started = self._wall()
        self._write("started")
        self._repeating.start(ALIVE_SECONDS, now=False)

    def stopService(self) -> None:
        super().stopService()
        if self._repeating.running:
            self._repeating.stop()
            self._write("stopped")

    def _write(self, event: str) -> None:
        self._log.node(event, self._started, self._version, self._revision())
