"""
Which data plane the node runs: the compiled one where it is asked for and possible, else Python alone.
"""

import os
from typing import Any

from twisted.application.service import Service
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from msgnode.config.schema import Config
from msgnode.node import Node
from msgnode.protocol.close_codes import UNFINISHED
from msgnode.transport.data_plane import DataPlane
from msgnode.transport.native_module import NEST, SWITCH, load
from msgnode.transport.native_plane import MAX_LATE, NativePlane
from msgnode.transport.quiet_poll import poll_quietly

log = Logger()

LOOK_SECONDS = 1.0  # between two looks for messages that take too long to end


def make_data_plane(config: Config, reactor: Any) -> DataPlane:
    """
    The data plane of the node; the log says which one it is.
    """
    plane, how = _make(config, reactor)
    plane.turn = poll_quietly(reactor)
    if plane.is_native:
        log.info("messages are carried by the compiled data plane; {how}", how=how)
    else:
        log.info("messages are carried by Python alone: {why}", why=plane.why)
    return plane


def _make(config: Config, reactor: Any) -> tuple[DataPlane, str]:
    if not config.performance.native:
        return DataPlane("performance.native is off"), ""
    found = load()
    if found.module is None:
        return DataPlane(found.why), ""
    try:
        from msgnode.transport.native_poller import Unsuitable, attach
    except ImportError:
        return DataPlane("the data plane needs epoll, and this platform has none"), ""
    plane = NativePlane(found.module, gather=config.performance.gather)
    try:
        return plane, str(attach(reactor, plane.poller, os.environ.get(SWITCH) == NEST))
    except Unsuitable as why:
        return DataPlane(str(why)), ""


class PartialInputTimer(Service):
    """
    Cuts off the messages that the compiled data plane has the beginning of, and whose end takes too long.
    """

    def __init__(self, node: Node, plane: NativePlane, clock: IReactorTime) -> None:
        self._node = node
        self._plane = plane
        self._clock = clock
        self._look = LoopingCall(self.look)
        self._look.clock = clock
        self._next: IDelayedCall | None = None

    def startService(self) -> None:
        super().startService()
        self._look.start(LOOK_SECONDS, now=False)

    def stopService(self) -> None:
        super().stopService()
        if self._look.running:
            self._look.stop()
        self._cancel_next()

    def look(self) -> None:
        """
        Cut off those that are late, MAX_LATE in one turn.
        """
        self._cancel_next()
        patience = self._node.config.limits.partial_seconds
        late = self._plane.late(patience) if patience else []
        for connection in late:
            self._node.budget.refused["partial_seconds"] += 1
            connection.cut_short(UNFINISHED)
        if len(late) == MAX_LATE:
            self._next = self._clock.callLater(0, self.look)

    def _cancel_next(self) -> None:
        if self._next is not None and self._next.active():
            self._next.cancel()
        self._next = None


def data_plane_services(node: Node, reactor: IReactorTime) -> list[Service]:
    """
    The services that run while the data plane of the node does.
    """
    plane = node.data_plane
    return [PartialInputTimer(node, plane, reactor)] if isinstance(plane, NativePlane) else []
