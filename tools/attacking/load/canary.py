"""
A client that does nothing wrong, in a process of its own, while others attack.

It publishes to itself every 20 ms, at a steady rate whatever happens, until
its input is closed; then it waits for what is still under way, comes back by
its token, and prints what it saw.
"""

import json
import select
import socket
import sys
import time
from typing import Any

EVERY = 0.02  # seconds
PATIENCE = 30.0  # seconds for the last answer
NAME = "runtime://localhost/canary"
TOPIC = "comm://localhost/canary/changes"


def main(port: int) -> dict[str, Any]:
    canary = Canary(port)
    print("singing", flush=True)
    try:
        canary.sing()
        canary.come_back()
        lost = ""
    except (OSError, ValueError) as why:
        lost = str(why) or type(why).__name__
    return {
        "pause": round(canary.longest, 3),
        "sent": canary.sent,
        "came": canary.came,
        "disordered": canary.disordered,
        "kept": canary.kept,
        "lost": lost,
    }


class Canary:
    def __init__(self, port: int) -> None:
        self._port = port
        self._due: list[float] = []
        self._part = b""
        self.longest = 0.0
        self.sent = self.came = self.disordered = 0
        self.kept = False
        self._socket = self._connected()
        self._token = self._asked("open", "open", "mn:/session", {"from": NAME})["runtimeToken"]
        self._asked("subscribe", "subscribe", "domain://msg-node.localhost/sm", {"resources": [TOPIC]})

    def sing(self) -> None:
        """
        Until the input ends, and all has come.
        """
        due, ending = time.monotonic(), 0.0
        while not ending or (self.came < self.sent and time.monotonic() < ending):
            now = time.monotonic()
            if not ending and now >= due:
                number = self.sent
                self._due.append(due)
                self.sent += 1
                self._send({"id": number, "type": "update", "from": NAME, "to": TOPIC, "body": {}})
                due += EVERY
            wait = max(0.0, due - time.monotonic()) if not ending else 0.2
            readable = select.select([self._socket, *([] if ending else [sys.stdin])], [], [], wait)[0]
            if self._socket in readable:
                self._take()
            if sys.stdin in readable and not ending:
                ending = time.monotonic() + PATIENCE
        if self.came < self.sent:
            self.longest = max(self.longest, time.monotonic() - self._due[self.came])

    def come_back(self) -> None:
        """
        By the token alone: is it the same session?
        """
        self._socket.close()
        self._part = b""
        self._socket = self._connected()
        self.kept = "runtimeToken" not in self._asked(
            "again", "re-open", "mn:/session", {"from": f"{NAME}/{self._token}"}
        )

    def _take(self) -> None:
        for message in self._received():
            if message.get("type") == "close":
                raise ConnectionError(f"closed: {message['body']}")
            if message.get("to") != TOPIC:
                continue
            if message["id"] != self.came:
                self.disordered += 1
            self.longest = max(self.longest, time.monotonic() - self._due[min(self.came, self.sent - 1)])
            self.came += 1

    def _connected(self) -> socket.socket:
        wire = socket.create_connection(("127.0.0.1", self._port), PATIENCE)
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return wire

    def _asked(self, number: str, kind: str, to: str, given: dict[str, Any]) -> Any:
        from_ = given.pop("from", NAME)
        self._send({"id": number, "type": kind, "from": from_, "to": to, "body": given})
        while True:
            for message in self._received():
                if message.get("id") == number:
                    return message["body"]

    def _send(self, message: dict[str, Any]) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _received(self) -> list[dict[str, Any]]:
        data = self._socket.recv(1 << 16)
        if not data:
            raise ConnectionError("the connection ended")
        *lines, self._part = (self._part + data).split(b"\n")
        return [json.loads(line) for line in lines]


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))), flush=True)
