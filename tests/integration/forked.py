"""
Processes of `twistd` that are forks of one that has imported it all: a node listens in a tenth of the time.
"""

import atexit
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

from tests.support import fork_server

# Nodes that a test starts one after the other have different hash seeds, as two nodes of operators have.
SERVERS = 2
_numbers = count()
_lock = Lock()


class ForkedProcess:
    """
    A process with the part of Popen's interface that tests use.
    """

    def __init__(self, server: str, order: Mapping[str, Any]) -> None:
        self.returncode: int | None = None
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(server)
        self._file = self._connection.makefile("rwb", buffering=0)
        self._file.write(json.dumps(order).encode() + b"\n")
        self.pid = int(self._file.readline())

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("twistd", timeout or 0)
            self._end()
        assert self.returncode is not None
        return self.returncode

    def _end(self) -> None:
        self.returncode = int(self._file.readline() or -signal.SIGKILL)
        self._file.close()
        self._connection.close()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def launch(
    command: Sequence[str | Path], cwd: Path, said: Path, environment: Mapping[str, str] | None
) -> "ForkedProcess | subprocess.Popen[bytes]":
    """
    `twistd` with these words; what it prints is added to a file. With more in its environment, all of Python
    is started anew: it may be for Python.
    """
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    words = [str(word) for word in command]
    if environment is None:
        order = {"command": words, "cwd": str(cwd), "env": inherited, "said": str(said)}
        return ForkedProcess(_servers()[next(_numbers) % SERVERS], order)
    with said.open("ab") as output:
        return subprocess.Popen(
            words,
            cwd=cwd,
            env={**inherited, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


def _servers() -> list[str]:
    """
    The addresses of the servers of this test run, which end with it.
    """
    with _lock:  # threads start nodes, too
        return _started()


@cache
def _started() -> list[str]:
    directory = Path(tempfile.mkdtemp(prefix="msgnode-fork-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return [_server(directory / str(number)) for number in range(SERVERS)]


def _server(path: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        number = listener.fileno()
        # Its standard input ends with this process.
        process = subprocess.Popen(
            [sys.executable, fork_server.__file__, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=environment,
            pass_fds=[number],
        )
    _kept.append(process)
    return str(path)


_kept: list["subprocess.Popen[bytes]"] = []
