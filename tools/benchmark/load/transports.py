"""
How bytes travel: WebSocket by picows, streams by asyncio.  uvloop runs both.

A wire writes frames that were built beforehand; what arrives is counted and not
parsed.
"""

import asyncio
import ssl
import sys
from collections.abc import Callable
from typing import Any

from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from benchmark.load.frames import BINARY, MARK, TEXT, masked

PATIENCE = 20.0  # seconds for one reply while a connection is set up
SOURCES = 50  # loopback addresses to connect from; each has its own ports


class Inbox:
    """
    What one connection hears: replies while it is set up, afterwards a count.

    With `whole`, a payload is a message, and one without the mark is kept in
    `odd` for the report.
    """

    def __init__(self, whole: bool) -> None:
        self.replies: asyncio.Queue[bytes] = asyncio.Queue()
        self.receipt: Callable[[int], None] | None = None
        self.mark = MARK
        self.odd: list[bytes] = []
        self.ignored = b""  # what holds this is heard and forgotten
        self.answer_ping: Callable[[], None] | None = None
        self.counted = 0
        self._heard = b""
        self._whole = whole

    def take(self, data: bytes, last: bool) -> None:
        """
        Count what came; with the last payload of a read, tell `receipt` how many.
        """
        if self.answer_ping is not None and b"PING\r\n" in data:
            self.answer_ping()
        ignored = self.ignored and self.ignored in data
        if self.receipt is None:
            if not ignored:
                self.replies.put_nowait(data)
            return
        self._heard = data
        count = data.count(self.mark)
        if not count and not ignored and (self._whole or b"-ERR" in data):
            self.odd.append(data)
        self.counted += count
        if last:
            self.end()

    def end(self) -> None:
        """
        Tell `receipt` what was counted in a read, which may end with something else than a payload.
        """
        if self.receipt is not None and self.counted:
            count, self.counted = self.counted, 0
            self.receipt(count)

    async def reply(self, until: bytes = b"") -> bytes:
        """
        The next payload, or all bytes up to a read that contains `until`.
        """
        data = b""
        while not data or until not in data:
            data += await asyncio.wait_for(self.replies.get(), PATIENCE)
        return data

    def taken(self) -> list[bytes]:
        """
        The replies nobody asked for so far.
        """
        return [self.replies.get_nowait() for _ in range(self.replies.qsize())]

    def complaints(self) -> list[str]:
        """
        Payloads that nobody expected, as text.
        """
        waiting = self.taken()
        # NATS says why it closes, and that may share a read with messages that were counted.
        if not self._whole and self._heard not in self.odd and b"-ERR" in self._heard:
            waiting.append(self._heard[self._heard.index(b"-ERR") :])
        return [
            data[:300].decode(errors="replace") for data in (self.odd + waiting)[:3] if data != b"PING\r\n"
        ]


class WebSocketWire(WSListener):  # type: ignore[misc]
    """
    A WebSocket; payloads are text, or binary for peers whose protocol is bytes.
    """

    def __init__(self, inbox: Inbox, opcode: int) -> None:
        self.inbox = inbox
        self._opcode = opcode

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport
        self.write = transport.underlying_transport.write

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.PING:
            transport.send_pong(frame.get_payload_as_bytes())
            if frame.last_in_buffer:
                self.inbox.end()
            return
        # Every peer's payloads are looked through alike, also where one frame is one message.
        self.inbox.take(frame.get_payload_as_bytes(), frame.last_in_buffer)

    def frame(self, payload: bytes) -> bytes:
        """
        The payload as it goes over this wire.
        """
        return masked(payload, self._opcode)

    def lose(self) -> None:
        """
        Close at once, after what was written.
        """
        self._transport.underlying_transport.close()

    def cut(self) -> None:
        """
        Reset the connection, whatever is under way.
        """
        self._transport.underlying_transport.abort()


class StreamWire(asyncio.Protocol):
    """
    A TCP connection whose payloads end with `terminator`.
    """

    def __init__(self, inbox: Inbox, terminator: bytes) -> None:
        self.inbox = inbox
        self._terminator = terminator

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.write = transport.write

    def data_received(self, data: bytes) -> None:
        self.inbox.take(data, True)

    def frame(self, payload: bytes) -> bytes:
        """
        The payload as it goes over this wire.
        """
        return payload + self._terminator

    def lose(self) -> None:
        """
        Close at once, after what was written.
        """
        self._transport.close()

    def cut(self) -> None:
        """
        Reset the connection, whatever is under way.
        """
        self._transport.abort()


def source(index: int) -> tuple[str, int]:
    """
    Where connection `index` comes from: Linux has all of 127/8.
    """
    return (f"127.0.0.{2 + index % SOURCES}" if sys.platform == "linux" else "127.0.0.1", 0)


async def websocket(
    port: int,
    index: int,
    inbox: Inbox,
    binary: bool = False,
    protocol: str = "",
    path: str = "/ws",
    tls: bool = False,
) -> WebSocketWire:
    """
    A WebSocket to 127.0.0.1, offering `protocol` where there is one; `tls`: whatever the certificate.
    """
    wire = WebSocketWire(inbox, BINARY if binary else TEXT)
    headers = {"Sec-WebSocket-Protocol": protocol} if protocol else {}
    url = f"{'wss' if tls else 'ws'}://127.0.0.1:{port}{path}"
    await ws_connect(
        lambda: wire,
        url,
        ssl_context=_any_certificate() if tls else None,
        extra_headers=headers,
        local_addr=source(index),
        read_buffer_init_size=4096,
        enable_auto_pong=False,  # picows would hide that a ping ends a read
        websocket_handshake_timeout=PATIENCE,
    )
    return wire


def _any_certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def stream(port: int, index: int, inbox: Inbox, terminator: bytes) -> StreamWire:
    """
    A TCP connection to 127.0.0.1.
    """
    loop = asyncio.get_running_loop()
    wire = StreamWire(inbox, terminator)
    await loop.create_connection(lambda: wire, "127.0.0.1", port, local_addr=source(index))
    return wire
