"""
Acknowledged resume by the compiled data plane, and a node that is killed again and again.
"""

import json
import random
import signal
import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.integration.process import PATIENCE, NodeProcess

pytest.importorskip("msgnode_native", reason="msgnode_native is not built")

ANN, BOB = "runtime://localhost/ann", "runtime://localhost/bob"
KILLS = 4


class Counting:
    """
    A client on TCP lines that counts what it gets.
    """

    def __init__(self, runtime: str) -> None:
        self.runtime = runtime
        self.token = self.epoch = ""
        self.got: list[int] = []  # the ids of what came
        self._socket: socket.socket | None = None
        self._part = b""

    def connect(self, port: int) -> dict[str, Any]:
        """
        Open, or come back; returns `resume` of the answer.
        """
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._part = b""
        resume: Any = {"epoch": self.epoch, "received": len(self.got)} if self.token else True
        from_ = f"{self.runtime}/{self.token}" if self.token else self.runtime
        kind = "re-open" if self.token else "open"
        opening = {"id": 1, "type": kind, "from": from_, "to": "mn:/session", "body": {"resume": resume}}
        self.write(json.dumps(opening).encode() + b"\n")
        answer: dict[str, Any] = {}
        while answer.get("type") != "response":
            answer = self.receive()[0]
        body = answer["body"]
        self.token = body.get("runtimeToken", self.token)
        self.epoch = body["resume"]["epoch"]
        told: dict[str, Any] = body["resume"]
        return told

    def write(self, data: bytes) -> None:
        assert self._socket is not None
        self._socket.sendall(data)

    def receive(self) -> list[dict[str, Any]]:
        """
        What has come, at least one message; those of the other client are counted. [] at the end.
        """
        assert self._socket is not None
        found: list[dict[str, Any]] = []
        while not found:
            try:
                data = self._socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                return []
            *lines, self._part = (self._part + data).split(b"\n")
            for line in lines:
                message = json.loads(line)
                found.append(message)
                if message["type"] == "update":
                    self.got.append(message["id"])
        return found

    def acknowledge(self) -> None:
        body = {"received": len(self.got)}
        ack = {"id": 0, "type": "ack", "from": self.runtime, "to": "mn:/session", "body": body}
        self.write(json.dumps(ack).encode() + b"\n")


def start(directory: Path) -> NodeProcess:
    anywhere = "tcp:0:interface=127.0.0.1"
    config = directory / "msgnode.toml"
    config.write_text(
        f'web = []\nlines = ["{anywhere}"]\nadmin.listen = "{anywhere}"\n[performance]\nnative = true\n'
    )
    return NodeProcess("--config", str(config), state=str(directory / "state"), listeners=2)


def carried(node: NodeProcess) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{node.ports['admin']}/metrics", timeout=5) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("msgnode_messages_by_flow"):
                return int(float(line.split()[-1]))
    raise AssertionError("no such metric")


def test_nothing_is_lost_or_doubled_by_a_kill(tmp_path: Path) -> None:
    """
    While messages flow between two clients that acknowledge, the node is killed; both come back, send again
    what the node has not acknowledged, and every message has come once, in order.
    """
    chance = random.Random(7)
    ann, bob = Counting(ANN), Counting(BOB)
    texts: list[bytes] = []

    def write(count: int) -> None:
        lines = []
        for _ in range(count):
            header = f'{{"id":{len(texts) + 1},"type":"update","from":"{ANN}","to":"{BOB}"'
            usual = chance.random() < 0.95
            rest = "" if usual else ',"ttl":600'
            texts.append(f'{header}{rest},"body":{{"v":"{"x" * chance.randrange(300)}"}}}}\n'.encode())
            lines.append(texts[-1])
        ann.write(b"".join(lines))

    node = start(tmp_path)
    try:
        ann.connect(node.ports["line"])
        bob.connect(node.ports["line"])
        for kill in range(KILLS):
            for _ in range(12):
                write(chance.randrange(1, 60))
                if chance.random() < 0.7:
                    assert bob.receive()
                if chance.random() < 0.5:
                    bob.acknowledge()
            while len(bob.got) < len(texts):
                assert bob.receive()
            assert carried(node) > 100, kill
            write(300)  # on their way when the node is killed
            node.stop(signal.SIGKILL)
            while bob.receive():
                pass
            node = start(tmp_path)
            told = ann.connect(node.ports["line"])
            assert told["received"] <= len(texts)
            ann.write(b"".join(texts[told["received"] :]))
            assert bob.connect(node.ports["line"])["missed"] == 0
            while len(bob.got) < len(texts):
                assert bob.receive()

            assert bob.got == list(range(1, len(texts) + 1)), kill
    finally:
        node.stop()
