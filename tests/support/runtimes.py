"""
A client of each connector, all with the same face.

`open` and `reopen` give the node's answer, `send` sends, `take` gives what
came since the last look, `drop` loses the connection, and `code` is the close
code that was seen.  A client that has lost its connection may connect again.
"""

import json
import re
from types import SimpleNamespace
from typing import Any, Self
from urllib.parse import quote

from autobahn.twisted.websocket import WebSocketClientFactory, WebSocketClientProtocol
from twisted.internet.protocol import Protocol
from twisted.internet.ssl import Certificate, optionsForClientTLS
from twisted.protocols.tls import TLSMemoryBIOFactory

from tests.support.network import Link, Network


def dumps(message: Any) -> bytes:
    return message if isinstance(message, bytes) else json.dumps(message, ensure_ascii=False).encode()


class Runtime:
    """
    A runtime called `url`, connected to one node.
    """

    speaks_session = True  # mn:/session, and so has a token
    closings: dict[int, int] = {}  # what stands here for a WebSocket close code, where it is another

    link: Link

    def __init__(self, network: Network, url: str = "runtime://example.org/1") -> None:
        self.network = network
        self.url = url
        self.token = ""
        self.raw: list[bytes] = []
        self.code: int | None = None
        self.reason = ""
        self.retry_after: float | None = None
        network.runtimes.append(self)
        self.connect()
        network.pump()

    def connect(self) -> None:
        raise NotImplementedError

    def settle(self) -> bool:
        """
        Do what a client does by itself; True if it did something.
        """
        return False

    @property
    def is_connected(self) -> bool:
        return not self.link.serverIO.disconnected

    # -- the session ---------------------------------------------------------

    def session(self, type: str, id: Any = 1, **fields: Any) -> dict[str, Any]:
        """
        Say something to mn:/session; the answer.
        """
        self.send({"id": id, "type": type, "to": "mn:/session", **fields})
        reply = json.loads(self.raw.pop(0))
        self.token = reply["body"].get("runtimeToken", self.token)
        return reply

    def open(self) -> Self:
        self.session("open", **{"from": self.url})
        return self

    def reopen(self) -> Self:
        self.session("re-open", **{"from": f"{self.url}/{self.token}"})
        return self

    def close(self) -> None:
        self.send({"id": 9, "type": "close", "from": f"{self.url}/{self.token}", "to": "mn:/session"})

    def come_back(self) -> None:
        """
        Connect again and be who it was.
        """
        self.connect()
        self.reopen()

    # -- messages ------------------------------------------------------------

    def put(self, data: bytes) -> None:
        """
        Send one message without waiting for anything.
        """
        raise NotImplementedError

    def send(self, *messages: Any) -> None:
        """
        Send messages in one go.
        """
        for message in messages:
            self.put(dumps(message))
        self.network.pump()

    def send_half(self, message: Any) -> None:
        """
        Send the first half of what a message is on the wire.
        """
        self.network.pump()
        self.put(dumps(message))
        self.network.clock.advance(0)  # TLS collects what is written
        wire = self.link.clientIO
        half = b"".join(wire.stream)
        wire.stream[:] = [half[: len(half) // 2]]
        self.network.pump()

    def take(self) -> list[dict[str, Any]]:
        self.network.pump()
        raw, self.raw = self.raw, []
        return [json.loads(data) for data in raw]

    def ask(self, **fields: Any) -> dict[str, Any]:
        """
        Send a request; the last message that came.
        """
        self.send({"id": 7, "type": "create", "from": f"{self.url}/sm", **fields})
        return self.take()[-1]

    def attempt(self, data: Any) -> dict[str, Any] | None:
        """
        Send what may be refused; the last message that came, if there is one.
        """
        self.send(data)
        return next(reversed(self.take()), None)

    # -- the connection --------------------------------------------------------

    def stop_reading(self) -> None:
        self.link.serverIO.stalled = True

    def read_again(self) -> None:
        self.link.serverIO.stalled = False
        self.network.pump()

    def drop(self) -> None:
        """
        The connection is gone without a word.
        """
        self.link.clientIO.abortConnection()
        self.network.pump()


class _Stub(WebSocketClientProtocol):
    runtime: "WebSocketRuntime"
    pings = 0

    def onConnect(self, response: Any) -> None:
        self.runtime.accepted = response

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        self.runtime.raw.append(payload)

    def onPing(self, payload: bytes) -> None:
        self.runtime.pings += 1
        if self.runtime.answers_pings:
            super().onPing(payload)

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        self.runtime.code, self.runtime.reason = code, reason or ""
        retry = re.search(r"; retry_after=([0-9.]+)$", self.runtime.reason)
        self.runtime.retry_after = float(retry[1]) if retry else None


class WebSocketRuntime(Runtime):
    """
    V1 and V2: `/ws`.
    """

    listener = "web"
    path = "/ws"
    headers: dict[str, str] = {}
    protocols: list[str] | None = None
    options: dict[str, Any] = {}
    peer: Any = None
    answers_pings = True
    stub_class: Any = _Stub

    def __init__(self, network: Network, url: str = "runtime://example.org/1", **how: Any) -> None:
        for name, value in how.items():
            setattr(self, name, value)
        self.pings = 0
        self.accepted: Any = None
        super().__init__(network, url)

    def connect(self) -> None:
        factory = WebSocketClientFactory(
            f"ws://example.org{self.where()}",
            headers=self.headers,
            protocols=self.protocols,
            reactor=self.network.clock,
        )
        # Autobahn's own timers use the global reactor.
        factory._batched_timer = SimpleNamespace(call_later=self.network.clock.callLater)
        factory.setProtocolOptions(serverConnectionDropTimeout=0, failByDrop=False, **self.options)
        factory.protocol = self.stub_class
        self.stub: Any = factory.buildProtocol(None)
        self.stub.runtime = self
        self.link = self.network.link(self.listener, self.wrapped(), self.peer)
        self.network.pump()

    def where(self) -> str:
        return self.path

    def wrapped(self) -> Protocol:
        return self.stub

    def put(self, data: bytes) -> None:
        self.stub.sendMessage(data)

    @property
    def subprotocol(self) -> str | None:
        return self.accepted.protocol


class PlainRuntime(WebSocketRuntime):
    """
    The same with the fast path off.
    """

    listener = "plain"


class TLSRuntime(WebSocketRuntime):
    """
    The same over TLS.
    """

    listener = "tls"

    def wrapped(self) -> Protocol:
        from tests.support.certificate import PEM

        context = optionsForClientTLS("example.org", Certificate.loadPEM(PEM))
        factory = TLSMemoryBIOFactory(context, True, self.stub.factory, self.network.clock)
        factory.wrappedFactory.buildProtocol = lambda address: self.stub
        return factory.buildProtocol(None)


class M2Runtime(WebSocketRuntime):
    """
    NoMatrix' stub: the runtimeURL in the query, and no handshake after it.
    """

    path = "/stub/connect"
    speaks_session = False
    fresh = True

    def where(self) -> str:
        return f"{self.path}?runtimeURL={quote(self.url, safe='')}"

    def open(self) -> Self:
        return self

    def come_back(self) -> None:
        self.connect()

    def close(self) -> None:
        self.send({"cmd": "disconnect", "body": {"runtimeURL": self.url}})


class M1Runtime(M2Runtime):
    """
    The old Matrix stub: a connect frame instead of the query.
    """

    def where(self) -> str:
        return self.path

    def open(self) -> Self:
        self.send({"cmd": "connect", "data": {"runtimeURL": self.url}})
        first = json.loads(self.raw.pop(0))
        assert first["cmd"] == "connect" and first["response"] == 200, first
        return self

    def come_back(self) -> None:
        self.connect()
        self.open()

    def close(self) -> None:
        self.send({"cmd": "disconnect", "data": {"runtimeURL": self.url}})


class TCPRuntime(Runtime, Protocol):
    """
    A device: one JSON object a line, that ends with LF.
    """

    end = b"\n"
    peer: Any = None

    def connect(self) -> None:
        self._rest = bytearray()
        self.link = self.network.link("line", self, self.peer)

    def put(self, data: bytes) -> None:
        self.transport.write(data + self.end)

    def dataReceived(self, data: bytes) -> None:
        self._rest += data
        if b"\n" in data:
            *lines, rest = bytes(self._rest).split(b"\n")
            self._rest = bytearray(rest)
            for line in lines:
                self._heard(line)

    def _heard(self, line: bytes) -> None:
        if line.startswith(b'{"type":"close"'):
            body = json.loads(line)["body"]
            self.code, self.reason, self.retry_after = body["code"], body["reason"], body.get("retry_after")
        else:
            self.raw.append(line)


class CRLFRuntime(TCPRuntime):
    """
    The same with CRLF.
    """

    end = b"\r\n"
