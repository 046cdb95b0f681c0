"""
Listening ports as services.
"""

import io
import socket
from typing import Any

from twisted.internet.protocol import Factory
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import globalLogPublisher
from twisted.python import log
from twisted.trial.unittest import SynchronousTestCase

from msgnode.config.schema import Listen
from msgnode.service.process.log_format import make_observer
from msgnode.structures.log_levels import LogLevels
from msgnode.transport.listener import Listener


class Socket:
    """
    A socket that keeps its options.
    """

    family = socket.AF_INET

    def __init__(self) -> None:
        self.options: dict[tuple[int, int], int] = {}

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self.options[level, option] = value


class Reactor(MemoryReactorClock):
    """
    A reactor in memory whose ports may have sockets.
    """

    def __init__(self, listening: Socket | None = None) -> None:
        super().__init__()
        self.listening = listening

    def listenTCP(self, *args: Any, **more: Any) -> Any:
        port: Any = super().listenTCP(*args, **more)
        if self.listening is not None:
            port.socket = self.listening
        return port


class TalkingReactor(Reactor):
    """
    A reactor whose ports log, as those of Twisted do.
    """

    def listenTCP(self, *args: Any, **more: Any) -> Any:
        log.msg("Factory starting on 9091")
        return super().listenTCP(*args, **more)


class ListenerTests(SynchronousTestCase):
    """
    A listener in memory.
    """

    def listen(self, reactor: Reactor) -> Listener:
        service = Listener(Listen(kind="line", endpoint="tcp:9091:interface=127.0.0.1"), Factory(), reactor)
        service.privilegedStartService()
        service.startService()
        return service

    def test_a_listener_says_where_it_listens(self) -> None:
        """
        The address is known once it listens, also of a port that has no socket of its own.
        """
        service = self.listen(Reactor())

        self.assertTrue(service.where.endswith(":9091"), service.where)
        self.successResultOf(service.stopService())

    def test_accepted_connections_have_keepalive(self) -> None:
        """
        The listening socket has TCP keepalive, which accepted ones inherit.
        """
        listening = Socket()

        self.listen(Reactor(listening))

        self.assertEqual(1, listening.options[socket.SOL_SOCKET, socket.SO_KEEPALIVE])

    def test_the_log_has_one_line_of_a_port(self) -> None:
        """
        Its own, with the address; neither the text nor the JSON log has Twisted's line with the name of the
        factory.
        """
        text, lines = io.StringIO(), io.StringIO()
        for format, output in (("text", text), ("json", lines)):
            observer = make_observer(format, LogLevels("debug"), output)
            globalLogPublisher.addObserver(observer)
            self.addCleanup(globalLogPublisher.removeObserver, observer)

        self.listen(TalkingReactor())

        for output in (text, lines):
            [line] = output.getvalue().splitlines()
            self.assertIn("line: listening on", line)
