"""
A WebSocket whose messages are compressed in both directions (RFC 7692), each by itself.
"""

import asyncio
from typing import Any

from benchmark.load.frames import COMPRESSED, TEXT, deflated, frame_end, inflated, masked
from benchmark.load.transports import PATIENCE, Inbox, source

CONTROL = 0x08
EXTENSION = "permessage-deflate; client_no_context_takeover; server_no_context_takeover"
UPGRADE = (
    "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    f"Sec-WebSocket-Extensions: {EXTENSION}\r\n\r\n"
).encode()


class DeflateWire(asyncio.Protocol):
    """
    The client's end of such a connection, after its handshake.
    """

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox
        self.opened: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._data = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.write = transport.write
        self.write(UPGRADE)

    def data_received(self, data: bytes) -> None:
        self._data += data
        if not self.opened.done():
            head, end, rest = self._data.partition(b"\r\n\r\n")
            if not end:
                return
            self._data = rest
            self.opened.set_result(head)
        found = self._messages()
        for number, message in enumerate(found, 1):
            self.inbox.take(message, number == len(found))

    def _messages(self) -> list[bytes]:
        found, data, at = [], self._data, 0
        while (cut := frame_end(data, at)) is not None:
            start, end = cut
            if not data[at] & CONTROL:
                payload = data[start:end]
                found.append(inflated(payload) if data[at] & COMPRESSED else payload)
            at = end
        self._data = data[at:]
        return found

    def frame(self, payload: bytes) -> bytes:
        """
        The payload as it goes over this wire.
        """
        return masked(deflated(payload), TEXT | COMPRESSED)

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


async def deflate(port: int, index: int, inbox: Inbox) -> DeflateWire:
    """
    Such a connection to 127.0.0.1.
    """
    wire = DeflateWire(inbox)
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: wire, "127.0.0.1", port, local_addr=source(index))
    head = await asyncio.wait_for(wire.opened, PATIENCE)
    if b"permessage-deflate" not in head:
        raise ConnectionError(f"no compression: {head!r}")
    return wire
