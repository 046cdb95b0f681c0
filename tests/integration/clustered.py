"""
Real nodes of one domain on a real nats-server, and clients of them.
"""

import json
import signal
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from soaking.peers.ports import free_port

from tests.support.nats_server import NatsServer

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

    def start(self, listeners: int = 3, environment: dict[str, str] | None = None) -> NodeProcess:
        self.process = NodeProcess(
            "--config",
            str(self.file),
            traffic=str(self.directory / "traffic"),
            state=str(self.directory / "state"),
            listeners=listeners,
            environment=environment,
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
        start_all(self.nodes)
        self.wait_for_links()

    def wait_for_links(self) -> None:
        most = len(self.nodes) - 1
        for node in self.nodes:
            until(lambda node=node: list(node.members().values()).count("up") == most)  # type: ignore[misc]

    def stop(self) -> None:
        """
        The end of a test. A node that is asked to stop hands its sessions over, and waits for members that
        were killed a moment ago; here nobody needs them.
        """
        for node in self.nodes:
            if node.process is not None:
                node.kill()
        self.nats.stop()
        self._directory.cleanup()


def start_all(nodes: Sequence[Member]) -> None:
    """
    Start them at once: a node that expects others waits ten seconds for them before it listens.
    """
    with ThreadPoolExecutor() as threads:
        list(threads.map(Member.start, nodes))


def until(true: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """
    Wait until something is true.
    """
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


def live_of_all(node: Member) -> dict[str, Any]:
    """
    The `/live` of each node by name, as this one has got it.
    """
    url = f"http://127.0.0.1:{node.admin}/live?node=all"
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        found: dict[str, Any] = json.loads(answer.read())["nodes"]
    return found


def policies(node: Member, data: bytes | None = None) -> str:
    """
    The revision that is live; `data` is pushed before.
    """
    token = (node.directory / "state/admin-token").read_text().strip()
    method = "GET" if data is None else "PUT"
    request = urllib.request.Request(f"http://127.0.0.1:{node.admin}/policy/policies", data, method=method)
    request.add_header("Authorization", f"Bearer {token}")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return str(answer.headers["ETag"])


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
