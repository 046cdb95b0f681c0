"""
A real node in a process of its own.
"""

import json
import re
import signal
import socket
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .forked import launch

START_SECONDS = 300.0  # on a machine that has a hundred times as much to do as it can
PATIENCE = 20  # seconds for whatever a test waits for
_LISTENING = re.compile(r"(web|line|admin): listening on (\S+)")


class NodeProcess:
    """
    `twistd -n msgnode` from the installed package, in a directory of its own, on ports that are free.

    `ports` has them by kind; `said` is what it has printed so far.
    """

    def __init__(
        self,
        *options: str,
        traffic: str | None = None,
        state: str | None = None,
        listeners: int = 3,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="msgnode-"))
        self.traffic = Path(traffic or self.directory / "traffic")
        self.state = Path(state or self.directory / "state")
        anywhere = "tcp:0:interface=127.0.0.1"
        listen = (
            [] if "--config" in options else ["--web", anywhere, "--lines", anywhere, "--admin", anywhere]
        )
        twistd = Path(sys.executable).with_name("twistd")
        written = ["--traffic", str(self.traffic), "--state", str(self.state)]
        # A file, not a pipe: nobody reads while a test does something else.
        said = self.directory / "said"
        said.touch()
        self.process = launch(
            [twistd, "-n", "--pidfile=", "msgnode", *written, *listen, *options],
            self.directory,
            said,
            environment,
        )
        self._output = said.open()
        self.said = ""
        self.ports: dict[str, int] = {}
        self._read_until_it_listens(listeners)

    def _read_until_it_listens(self, listeners: int) -> None:
        seen = 0
        for line in self._lines(START_SECONDS):
            found = _LISTENING.search(line)
            if found:
                seen += 1
                port = found[2].rpartition(":")[2]
                if port.isdigit():  # else it is a UNIX socket
                    self.ports[found[1]] = int(port)
            if seen == listeners:
                return
        if self.process.poll() is None:
            self.process.kill()
            raise AssertionError(f"it does not listen: {self.said}")

    def _lines(self, seconds: float = PATIENCE) -> Iterator[str]:
        """
        What it prints from now on, until it ends, for so many seconds at most.
        """
        deadline = time.monotonic() + seconds
        part = ""
        while time.monotonic() < deadline:
            ended = self.process.poll() is not None
            part += self._output.readline()
            if part.endswith("\n"):
                self.said += part
                yield part
                part = ""
            elif ended:
                self.said += part
                return
            else:
                time.sleep(0.02)

    def read_until(self, text: str) -> None:
        """
        Wait until it has printed this, from now on.
        """
        for line in self._lines():
            if text in line:
                return
        raise AssertionError(f"it never said {text!r}")

    def stop(self, how: int = signal.SIGTERM) -> int:
        """
        Send the signal; the exit code.
        """
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(PATIENCE)
        self.said += self._output.read()
        return self.process.returncode

    def wait(self) -> int:
        """
        It was expected to stop by itself; the exit code.
        """
        self.process.wait(PATIENCE)
        self.said += self._output.read()
        return self.process.returncode

    def log(self) -> list[dict[str, Any]]:
        """
        The traffic log, line by line, without a line that the node is writing.
        """
        texts = [file.read_text() for file in sorted(self.traffic.glob("*.jsonl"))]
        lines = [line for text in texts for line in text[: text.rfind("\n") + 1].splitlines()]
        return [json.loads(line) for line in lines]


def fetched(node: NodeProcess, listener: str, path: str) -> str:
    """
    What one of the node's HTTP listeners has at this path.
    """
    url = f"http://127.0.0.1:{node.ports[listener]}{path}"
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        text: str = answer.read().decode()
        return text


class Lines:
    """
    A client on a plain socket.
    """

    def __init__(self, port: int, runtime: str | None = None, context: Any = None) -> None:
        raw = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.socket: Any = context.wrap_socket(raw, server_hostname="localhost") if context else raw
        self._file = self.socket.makefile("rb")
        if runtime is not None:
            self.token = self.ask({"id": 1, "type": "open", "from": runtime, "to": "mn:/session"})["body"][
                "runtimeToken"
            ]

    def send(self, message: dict[str, Any]) -> None:
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any] | None:
        """
        The next message; None at the end.
        """
        line = self.receive_line()
        return json.loads(line) if line else None

    def receive_line(self) -> bytes:
        """
        The next message as it came, with its LF.
        """
        return bytes(self._file.readline())

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        self.send(message)
        reply = self.receive()
        assert reply is not None
        return reply

    def close(self) -> None:
        self._file.close()
        self.socket.close()
