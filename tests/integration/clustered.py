"""
Real nodes of one domain on a real nats-server, and clients of them.
"""

import json
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.nats_server import NatsServer

from .federated import free_port
from .process import PATIENCE, Lines, NodeProcess, fetched

DOMAIN = "a.example"
MANAGER = f"domain://msg-node.{DOMAIN}"


class Member:
    """
    One node, whose process may be killed and started again on the same ports and with the same state.
    """

    def __init__(self, directory: Path, name: str, url: str, more: str = "", session: str = "") -> None:
        self.name = f"mn://{DOMAIN}/{name}"
        self.directory = directory / name
        self.directory.mkdir(exist_ok=True)
        self.lines, self.web, self.admin = free_port(), free_port(), free_port()
        self.file = self.directory / "node.toml"
        where = {"lines": self.lines, "web": self.web}
        listen = "\n".join(f'{kind} = ["tcp:{port}:interface=127.0.0.1"]' for kind, port in where.items())
        self.file.write_text(
            f'domain = "{DOMAIN}"\nnode = "{name}"\n{listen}\n'
            f"[session]\nqueue_messages = 20000\n{session}\n"
            f'[admin]\nlisten = "tcp:{self.admin}:interface=127.0.0.1"\n[cluster]\nurl = ["{url}"]\n{more}'
        )
        self.process: NodeProcess | None = None

    def start(self, listeners: int = 3) -> NodeProcess:
        self.process = NodeProcess(
            "--config",
            str(self.file),
            traffic=str(self.directory / "traffic"),
            state=str(self.directory / "state"),
            listeners=listeners,
        )
        return self.process

    def kill(self) -> None:
        assert self.process is not None
        self.process.stop(signal.SIGKILL)

    def live(self) -> dict[str, Any]:
        assert self.process is not None
        found: dict[str, Any] = json.loads(fetched(self.process, "admin", "/live"))
        return found

    def members(self) -> dict[str, str]:
        """
        The state of each other member.
        """
        found: dict[str, str] = self.live()["cluster"]["members"]
        return found

    def client(self, name: str) -> Lines:
        client = Lines(self.lines, f"runtime://{DOMAIN}/{name}")
        client.socket.settimeout(PATIENCE)
        return client


class Cluster:
    """
    A nats-server, and nodes `n1`, `n2` and so on, which are all linked. `more` is the end of their
    configuration, in its section `cluster`, `session` more of its section of that name.
    """

    def __init__(self, count: int, more: str = "", session: str = "") -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="cluster-")
        self.directory = Path(self._directory.name)
        self.nats = NatsServer(client=free_port())
        self.nodes = [
            Member(self.directory, f"n{n}", self.nats.url, more, session) for n in range(1, count + 1)
        ]
        for node in self.nodes:
            node.start()
        self.wait_for_links()

    def wait_for_links(self) -> None:
        most = len(self.nodes) - 1
        for node in self.nodes:
            until(lambda node=node: list(node.members().values()).count("up") == most)  # type: ignore[misc]

    def stop(self) -> None:
        for node in self.nodes:
            if node.process is not None:
                node.process.stop()
        self.nats.stop()
        self._directory.cleanup()


def until(true: Callable[[], bool]) -> None:
    """
    Wait until something is true.
    """
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


def allocate(client: Lines, runtime: str) -> str:
    """
    A hyperty's address.
    """
    answer = client.ask(
        {
            "id": 2,
            "type": "create",
            "from": f"{runtime}/x",
            "to": f"{MANAGER}/hyperty-address-allocation",
            "body": {"value": {"number": 1}},
        }
    )
    found: str = answer["body"]["value"]["allocated"][0]
    return found


def subscribe(client: Lines, runtime: str, *addresses: str) -> None:
    body = {"resources": addresses}
    answer = client.ask(
        {"id": 3, "type": "subscribe", "from": f"{runtime}/x", "to": f"{MANAGER}/sm", "body": body}
    )
    assert answer["body"]["code"] == 200, answer
