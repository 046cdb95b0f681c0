"""
Listening ports as services.
"""

import io
import os
import socket
from pathlib import Path
from typing import Any

from twisted.internet.protocol import Factory
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import globalLogPublisher
from twisted.python import log
from twisted.trial.unittest import SynchronousTestCase

from msgnode.config.schema import Listen
from msgnode.service.process.log_format import make_observer
from msgnode.structures.log_levels import LogLevels
from msgnode.transport.listener import Listener, UnixPorts
from tests.support.fakes import directory


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


class UnixSocketTests(SynchronousTestCase):
    """
    UNIX sockets that an earlier process left.
    """

    def setUp(self) -> None:
        self.path = directory(self) / "web.sock"
        self.lock = Path(f"{self.path}.lock")
        self.bound = socket.socket(socket.AF_UNIX)
        self.addCleanup(self.bound.close)

    def listen(self) -> Reactor:
        reactor = Reactor()
        Listener(
            Listen(kind="web", endpoint=f"unix:{self.path}"), Factory(), reactor
        ).privilegedStartService()
        return reactor

    def test_the_socket_of_a_killed_process_is_replaced(self) -> None:
        """
        Whatever process has the id in its lock by now: one of ours, or one of another user.
        """
        for pid in (os.getpid(), 1):
            with socket.socket(socket.AF_UNIX) as killed:
                killed.bind(str(self.path))
            self.lock.symlink_to(str(pid))

            reactor = self.listen()

            [(path, _, _, _, has_lock)] = reactor.unixServers
            self.assertEqual((str(self.path), False), (path, bool(has_lock)))
            self.assertEqual([], list(self.path.parent.iterdir()))

    def test_a_socket_in_use_stays(self) -> None:
        """
        Another process listens on it, so this one cannot.
        """
        self.bound.bind(str(self.path))
        self.bound.listen()

        self.listen()

        self.assertTrue(self.path.is_socket())

    def test_a_file_stays(self) -> None:
        """
        A file is no socket, so the name is a mistake.
        """
        self.path.write_text("a file")

        self.listen()

        self.assertEqual("a file", self.path.read_text())

    def test_other_ports_are_those_of_the_reactor(self) -> None:
        """
        Only UNIX sockets are handled in another way.
        """
        reactor = Reactor()

        UnixPorts(reactor).listenTCP(9091, Factory())

        self.assertEqual(9091, reactor.tcpServers[0][0])
