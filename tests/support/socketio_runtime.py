"""
The clients of the Socket.IO connector, with the face of runtimes.py.
"""

import json
from typing import Any

from msgnode.connectors.socketio import codec
from tests.support.http_client import HTTPClient
from tests.support.runtimes import Runtime, WebSocketRuntime, _Stub, dumps


def emitted(message: bytes) -> bytes:
    """
    What the NodejsProtoStub sends for a message: an event with a string.
    """
    return b"42" + json.dumps(["message", message.decode("utf-8", "surrogateescape")]).encode()


class SocketRuntime(Runtime):
    """
    What all have in common: what becomes of a packet that came, and heartbeats.
    """

    packets: list[bytes]  # what came that is no message
    version = 3
    due = 0.0  # when the next ping is
    silent = False

    def say(self, packet: bytes) -> None:
        raise NotImplementedError

    def beat(self) -> None:
        """
        A client of version 3 pings; it does so when time has passed.
        """
        now = self.network.clock.seconds()
        if self.version == 3 and now >= self.due and self.is_connected and not self.silent:
            if self.due:
                self.say(codec.PING)
            self.due = now + 25

    def heard(self, packet: bytes) -> None:
        if packet == codec.PING and not self.silent:
            self.say(codec.PONG)
        elif packet.startswith(b'42["close",'):
            told = json.loads(packet[2:])[1]
            self.code, self.reason, self.retry_after = told["code"], told["reason"], told.get("retry_after")
        elif packet.startswith(codec.EVENT):
            self.raw.append(packet[len(codec.EVENT) : -1])
        else:
            self.packets.append(packet)


class SocketPollRuntime(SocketRuntime):
    """
    A client that never upgrades: as soon as one GET is answered, the next is on its way.
    """

    headers: dict[str, str] = {}

    def __init__(self, *args: Any, headers: dict[str, str] | None = None, **more: Any) -> None:
        self.headers = headers or self.headers
        super().__init__(*args, **more)

    def connect(self) -> None:
        self.post = HTTPClient(self.network)
        self.get = HTTPClient(self.network)
        self.link = self.get.link
        self.packets: list[bytes] = []
        self.due = 0.0
        self.sid = ""
        self._begun: list[bytes] = []
        self._polls, self._reads = False, True
        self._listen()
        self.network.pump()

    @property
    def is_connected(self) -> bool:
        return self.get.is_connected and self.code is None

    @property
    def path(self) -> str:
        sid = f"&sid={self.sid}" if self.sid else ""
        return f"/socket.io/?EIO={self.version}&transport=polling{sid}"

    def put(self, data: bytes) -> None:
        self._begun.append(emitted(data))

    def send(self, *messages: Any) -> None:
        for message in messages:
            self.put(dumps(message))
        begun, self._begun = self._begun, []
        self.send_packets(*begun)

    def send_packets(self, *packets: bytes) -> None:
        body = codec.join(packets, self.version)
        response = self.post.request("POST", self.path, body, **self.headers)
        if response.status == 413:  # its library closes, as it does when a WebSocket is closed with 1009
            self.code = 1009
            self._polls = False
            self.get.hang_up()
        self.network.pump()

    def send_half(self, message: Any) -> None:
        body = codec.join([emitted(dumps(message))], self.version)
        self.post.start("POST", self.path, body)
        wire = self.post.link.clientIO
        half = b"".join(wire.stream)
        wire.stream[:] = [half[: -len(body) // 2]]
        self.network.pump()

    def _listen(self) -> None:
        self.get.start("GET", self.path, **self.headers)
        self._polls = True

    def say(self, packet: bytes) -> None:
        if self.sid:
            self.post.start("POST", self.path, codec.join([packet], self.version))

    def settle(self) -> bool:
        self.beat()
        if not self._polls or not self._reads or self.get.response is None:
            return False
        response = self.get.response
        self._polls = False
        if response.status != 200:
            self.code = response.status
            self.reason = response.json()["desc"]
            return False
        for packet in codec.split(response.body, self.version):
            if packet.startswith(codec.OPEN):
                self.sid = json.loads(packet[1:])["sid"]
                if self.version == 4:
                    self.send_packets(codec.CONNECTED)
            else:
                self.heard(packet)
        if self.code is None:
            self._listen()
        return True

    def come_back(self) -> None:
        self.code = None
        self.connect()
        self.reopen()

    def stop_reading(self) -> None:
        self._reads = False
        self.get.link.serverIO.stalled = True

    def read_again(self) -> None:
        self._reads = True
        super().read_again()

    def drop(self) -> None:
        self._polls = False
        self.post.hang_up()
        self.get.hang_up()


class PagePollRuntime(SocketPollRuntime):
    """
    The same in a page of another origin, which the fast path does not take.
    """

    headers = {"Origin": "https://page.example"}


class NewSocketPollRuntime(SocketPollRuntime):
    """
    The same with today's protocol.
    """

    version = 4


class _Socket(_Stub):
    runtime: Any

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        self.runtime.heard(payload)


class SocketWebSocketRuntime(SocketRuntime, WebSocketRuntime):
    """
    A client that begins with a WebSocket.
    """

    stub: Any = None
    stub_class = _Socket
    path = "/socket.io/?EIO=3&transport=websocket"

    def connect(self) -> None:
        self.packets: list[bytes] = []
        self.due = 0.0
        super().connect()

    def say(self, packet: bytes) -> None:
        self.stub.sendMessage(packet)

    def put(self, data: bytes) -> None:
        if self.stub.state == self.stub.STATE_OPEN:
            self.say(emitted(data))

    def settle(self) -> bool:
        if self.stub is not None and self.stub.state == self.stub.STATE_OPEN:
            self.beat()
        return False


class NewSocketWebSocketRuntime(SocketWebSocketRuntime):
    """
    The same with today's protocol.
    """

    version = 4
    path = "/socket.io/?EIO=4&transport=websocket"

    def connect(self) -> None:
        super().connect()
        self.stub.sendMessage(codec.CONNECTED)


class UpgradedRuntime(SocketWebSocketRuntime):
    """
    A client that polls until its session is open, and then changes to WebSocket.
    """

    def connect(self) -> None:
        self.packets: list[bytes] = []
        self.due = 0.0
        self.get = HTTPClient(self.network)
        where = f"/socket.io/?EIO={self.version}&transport="
        answer = self.get.request("GET", where + "polling", **self.headers)
        self.sid = json.loads(codec.split(answer.body, self.version)[0][1:])["sid"]
        if self.version == 4:
            body = codec.join([codec.CONNECTED], self.version)
            self.get.request("POST", f"{where}polling&sid={self.sid}", body)
        self.get.start("GET", f"{where}polling&sid={self.sid}")
        self.network.pump()
        self.path = f"{where}websocket&sid={self.sid}"
        WebSocketRuntime.connect(self)
        self.stub.sendMessage(codec.PROBE)
        self.network.pump()
        assert self.packets.pop(0) == codec.PROBED
        for packet in codec.split(self.get.response.body, self.version):
            self.heard(packet)
        self.stub.sendMessage(codec.UPGRADE)
        self.network.pump()
