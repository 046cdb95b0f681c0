"""
Clients that say whatever an attack wants: lines, WebSocket, HTTP, and bytes as they are.

They are plain and block; what does not come within PATIENCE is a TimeoutError.
"""

import base64
import http.client
import json
import socket
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

PATIENCE = 60.0  # seconds; longer than a node that breaks under an attack is silent
TEXT, CLOSE, PING = 1, 8, 9
COMPRESSED = 0x40
_UPGRADE = (
    "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n%s\r\n"
)

Message = dict[str, Any]


class Closed(NamedTuple):
    """
    The node closed the connection, and said why.
    """

    code: int
    reason: str


class Answer(NamedTuple):
    """
    What HTTP answered.
    """

    status: int
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def encoded(message: Message | list[str] | bytes) -> bytes:
    return message if isinstance(message, bytes) else json.dumps(message, separators=(",", ":")).encode()


def request(number: int | str, kind: str, from_: str, to: str | list[str], body: Any = None) -> Message:
    return {"id": number, "type": kind, "from": from_, "to": to, "body": body}


class Connection:
    """
    A socket from `host`, which is one of this machine's own, to a port of the node.

    `count` is told how many bytes left; no more than about `window` bytes wait at this end to be read.
    """

    def __init__(self, port: int, host: str, count: Callable[[int], None], window: int = 0) -> None:
        self.socket = socket.socket()
        if window:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        self.socket.settimeout(PATIENCE)
        self.socket.bind((host, 0))
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self.socket.makefile("rb")
        self._count = count
        self.runtime = ""
        self.token = ""

    def write(self, data: bytes) -> None:
        self._count(len(data))
        self.socket.sendall(data)

    def read(self, patience: float = PATIENCE) -> bytes:
        """
        All that comes until the node closes, or is silent for so long.
        """
        self.socket.settimeout(patience)
        came = b""
        with suppress(TimeoutError, ConnectionError):
            while data := self.socket.recv(1 << 16):
                came += data
        self.socket.settimeout(PATIENCE)
        return came

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    # -- as a client ---------------------------------------------------------

    def send(self, *messages: Message | bytes) -> None:
        raise NotImplementedError

    def receive(self) -> Message | Closed:
        raise NotImplementedError

    def ask(self, message: Message | bytes, number: int | str | None = None) -> Message | Closed:
        """
        Send it; the response with its number, past whatever else comes.
        """
        self.send(message)
        wanted = message["id"] if isinstance(message, dict) else number
        while True:
            came = self.receive()
            if isinstance(came, Closed) or (came.get("type") == "response" and came.get("id") == wanted):
                return came

    def ask_for_refusal(
        self, message: Message | bytes, number: int | str | None = None
    ) -> Message | Closed | None:
        """
        The same; None if it was not answered before what was asked behind it.
        """
        wanted = message["id"] if isinstance(message, dict) else number
        self.send(message, request("behind", "ping", self.runtime, "mn:/session"))
        refusal = None
        while True:
            came = self.receive()
            if isinstance(came, Closed):
                return came
            if came.get("type") == "response" and came.get("id") == wanted:
                refusal = came
            if came.get("id") == "behind":
                return refusal

    def open(self, runtime: str, body: Any = None) -> "Connection":
        """
        Open a session; ConnectionError if the node refuses.
        """
        answer = self.ask({"id": "open", "type": "open", "from": runtime, "to": "mn:/session", "body": body})
        if isinstance(answer, Closed) or answer["body"]["code"] != 200:
            raise ConnectionError(f"no session for {runtime}: {answer}")
        self.runtime, self.token = runtime, answer["body"]["runtimeToken"]
        return self

    def subscribe(self, *addresses: str) -> Message | Closed:
        to = "domain://msg-node.localhost/sm"
        return self.ask(request("subscribe", "subscribe", self.runtime, to, {"resources": list(addresses)}))

    def arrived(self, patience: float = 0.5) -> list[Message]:
        """
        All messages that come until nothing comes for so long.
        """
        came = []
        self.socket.settimeout(patience)
        with suppress(TimeoutError, ConnectionError):
            while not isinstance(message := self.receive(), Closed):
                came.append(message)
        self._file = self.socket.makefile("rb")  # a time-out spoils the old one
        self.socket.settimeout(PATIENCE)
        return came


class Line(Connection):
    """
    One JSON object a line.
    """

    def send(self, *messages: Message | bytes) -> None:
        self.write(b"".join(encoded(message) + b"\n" for message in messages))

    def receive(self) -> Message | Closed:
        line = self._file.readline()
        if not line.endswith(b"\n"):
            return Closed(0, "the connection ended")
        message = json.loads(line)
        if message.get("type") == "close":
            return Closed(message["body"]["code"], message["body"]["reason"])
        return message  # type: ignore[no-any-return]


class WebSocket(Connection):
    """
    `/ws`, with a mask of zeros.
    """

    def __init__(
        self, port: int, host: str, count: Callable[[int], None], deflate: bool = False, window: int = 0
    ) -> None:
        super().__init__(port, host, count, window)
        offer = "Sec-WebSocket-Extensions: permessage-deflate; client_no_context_takeover\r\n"
        self.write((_UPGRADE % (offer if deflate else "")).encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = self._file.read(1)
            if not byte:
                raise ConnectionError(f"no WebSocket: {head[:200]!r}")
            head += byte
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise ConnectionError(f"no WebSocket: {head[:200]!r}")
        self.deflates = b"permessage-deflate" in head

    def send(self, *messages: Message | bytes) -> None:
        self.write(b"".join(frame(encoded(message)) for message in messages))

    def receive(self) -> Message | Closed:
        while True:
            first = self._file.read(2)
            if len(first) < 2:
                return Closed(0, "the connection ended")
            size = first[1] & 127
            if size > 125:
                size = int.from_bytes(self._file.read(2 if size == 126 else 8), "big")
            data = self._file.read(size)
            if first[0] & COMPRESSED:
                data = zlib.decompressobj(-15).decompress(data + b"\0\0\xff\xff")
            if first[0] & 15 == TEXT:
                return json.loads(data)  # type: ignore[no-any-return]
            if first[0] & 15 == CLOSE:
                return Closed(int.from_bytes(data[:2], "big"), data[2:].decode())
            if first[0] & 15 == PING:
                self.write(frame(data, 10))


def frame(payload: bytes, opcode: int = TEXT, flags: int = 0) -> bytes:
    """
    A final frame as clients send it.
    """
    size = len(payload)
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 65536:
        length = bytes([0x80 | 126]) + size.to_bytes(2, "big")
    else:
        length = bytes([0x80 | 127]) + size.to_bytes(8, "big")
    return bytes([(0x80 + flags) | opcode]) + length + bytes(4) + payload


class Http:
    """
    Requests, each on a connection of its own, from `host`.
    """

    def __init__(self, port: int, host: str, count: Callable[[int], None]) -> None:
        self._port = port
        self._host = host
        self._count = count

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: Iterable[tuple[str, str]] = ()
    ) -> Answer:
        """
        `headers` replace what a client would say by itself.
        """
        wire = http.client.HTTPConnection("127.0.0.1", self._port, PATIENCE, (self._host, 0))
        given = dict(headers)
        try:
            wire.putrequest(method, path, skip_host="Host" in given, skip_accept_encoding=True)
            for name, value in given.items():
                wire.putheader(name, value)
            if body:
                wire.putheader("Content-Length", str(len(body)))
            wire.endheaders()
            self._count(len(path) + len(body))
            # Who refuses early need not read the rest.
            with suppress(ConnectionError):
                wire.send(body)
            answer = wire.getresponse()
            return Answer(answer.status, answer.read())
        finally:
            wire.close()

    def post(self, path: str, message: Any, token: str = "", **headers: str) -> Answer:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            given["Authorization"] = f"Bearer {token}"
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.ask("POST", path, data, given.items())


def made_token(text: str = "A") -> str:
    """
    What looks like a session's token and is none.
    """
    return "mns_" + base64.urlsafe_b64encode(text.encode() * 33).decode()[:43]
