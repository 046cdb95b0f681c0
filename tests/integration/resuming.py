"""
A client on TCP lines that resumes: it counts what it gets, and sends again what is not acknowledged.
"""

import json
import select
import socket
import time
from typing import Any

from .process import PATIENCE


class ResumingClient:
    """
    A client of one session, which may connect to any node. `got` are the messages that it has got, each once
    as long as the node keeps its promise; `told` is `resume` of the last answer; `closed` the last reason why
    the node closed its connection.
    """

    def __init__(self, runtime: str) -> None:
        self.runtime = runtime
        self.token = self.epoch = ""
        self.received = 0
        self.got: list[dict[str, Any]] = []
        self.told: dict[str, Any] = {}
        self.answers: dict[int, dict[str, Any]] = {}
        self.closed = ""
        self.sent = 0
        self.kept: list[bytes] = []
        self.socket: socket.socket | None = None
        self._part = b""

    def connect(self, port: int, seconds: float = PATIENCE) -> float:
        """
        Open, or come back; returns the seconds that it took.
        """
        self.drop()
        begun = time.monotonic()
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.closed = ""
        resume: Any = {"epoch": self.epoch, "received": self.received} if self.token else True
        from_ = f"{self.runtime}/{self.token}" if self.token else self.runtime
        kind = "re-open" if self.token else "open"
        self._write({"id": 1, "type": kind, "from": from_, "to": "mn:/session", "body": {"resume": resume}})
        self.told = {}
        end = time.monotonic() + seconds
        while not self.told and not self.closed and time.monotonic() < end:
            self.read(0.05)
        return time.monotonic() - begun

    def drop(self) -> None:
        """
        Lose the connection.
        """
        if self.socket is not None:
            self.socket.close()
            self.socket = None
        self._part = b""

    def send(self, **message: Any) -> None:
        data = json.dumps({"from": self.runtime, **message}).encode() + b"\n"
        self.sent += 1
        self.kept.append(data)
        if self.socket is not None:
            self._send(data)

    def ask(self, **message: Any) -> dict[str, Any]:
        """
        Send a request; its answer.
        """
        self.send(**message)
        self.read_until(lambda: message["id"] in self.answers)
        return self.answers.pop(message["id"])

    def read(self, seconds: float = 0.0) -> None:
        """
        Take what has come, or comes in that time.
        """
        if self.socket is None:
            return
        if not select.select([self.socket], [], [], seconds)[0]:
            return
        try:
            data = self.socket.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self.drop()
            self.closed = self.closed or "lost"
            return
        *lines, self._part = (self._part + data).split(b"\n")
        for line in lines:
            self._hear(json.loads(line))
        self._acknowledge()

    def read_until(self, true: Any, seconds: float = PATIENCE) -> None:
        end = time.monotonic() + seconds
        while not true() and time.monotonic() < end:
            self.read(0.02)
        assert true(), f"it took too long: {len(self.got)} messages, {self.closed!r}, {self.told}"

    def numbers(self) -> list[int]:
        return [message["body"]["n"] for message in self.got if "n" in message.get("body", {})]

    def _hear(self, message: dict[str, Any]) -> None:
        body = message.get("body", {})
        if message["from"] != "mn:/session":
            self.received += 1
            self.got.append(message)
            if message["type"] == "response":
                self.answers[message["id"]] = message
        elif message["type"] == "ack":
            self._acknowledged(body["received"])
        elif message["type"] == "response" and "resume" in body:
            self.token = body.get("runtimeToken", self.token)
            told = self.told = body["resume"]
            if told["epoch"] == self.epoch:
                self.received += told["missed"] or 0
                self._acknowledged(told["received"])
            else:
                self.epoch, self.received, self.sent = told["epoch"], 0, len(self.kept)
            for data in self.kept:
                self._send(data)
        else:
            self.closed = str(body.get("reason") or body.get("desc") or body.get("code") or message)

    def _acknowledged(self, number: int) -> None:
        keep = self.sent - number
        self.kept = self.kept[len(self.kept) - keep :] if keep else []

    def _acknowledge(self) -> None:
        if self.told:
            body = {"received": self.received}
            self._write({"id": 0, "type": "ack", "from": self.runtime, "to": "mn:/session", "body": body})

    def _write(self, message: dict[str, Any]) -> None:
        self._send(json.dumps(message).encode() + b"\n")

    def _send(self, data: bytes) -> None:
        if self.socket is not None:
            try:
                self.socket.sendall(data)
            except OSError:
                self.drop()
