"""
A proxy that terminates TLS, as one before the node does: tls_proxy.py PORT BEHIND CERTIFICATE KEY
"""

import asyncio
import ssl
import sys
from typing import Any

import uvloop


class Side(asyncio.Protocol):
    """
    One of the two connections; what it reads the other writes.
    """

    def __init__(self) -> None:
        self.other: Side | None = None
        self.transport: Any = None
        self._waiting: list[bytes] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._waiting.append(data)
        else:
            self.other.transport.write(data)

    def join(self, other: "Side") -> None:
        """
        Pass on what comes, and what has come.
        """
        self.other = other
        other.transport.writelines(self._waiting)
        self._waiting.clear()

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, why: Exception | None) -> None:
        if self.other is not None:
            self.other.transport.close()


class Front(Side):
    """
    The client's side, encrypted.
    """

    def __init__(self, behind: int) -> None:
        super().__init__()
        self._behind = behind

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._task = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        source = (self.transport.get_extra_info("peername")[0], 0)
        _, back = await loop.create_connection(Side, "127.0.0.1", self._behind, local_addr=source)
        back.join(self)
        self.join(back)


async def main() -> None:
    port, behind, certificate, key = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = await asyncio.get_running_loop().create_server(
        lambda: Front(behind), "127.0.0.1", port, ssl=context, backlog=1024
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
