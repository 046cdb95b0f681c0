"""
What a node in the middle sees of messages that pass it, what it can change, and what is in the logs.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress

from soaking.peers.domain_node import DomainNode, Network, chain

from .network import Message, Runtime, running, until

SECRET = "the price is 4711 euros"


class OpenedLink:
    """
    A proxy with the certificates of both ends of a link, which sees what TLS carries and may change it.

    `seen` has what the node that listens sent: a server does not mask its frames.
    """

    def __init__(self, dialler: DomainNode, listener: DomainNode) -> None:
        self.seen = bytearray()
        self.change: Callable[[bytes], bytes] = lambda data: data
        self._dialler, self._listener = dialler, listener
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self, port: int) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._listener.cert, self._listener.key)
        context.load_verify_locations(self._dialler.authority.path)
        context.verify_mode = ssl.CERT_REQUIRED
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port, ssl=context)

    def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(self._dialler.cert, self._dialler.key)
        port = self._listener.ports["link"]
        there, back = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        self._writers += [writer, back]
        await asyncio.gather(_pump(reader, back, lambda data: data), _pump(there, writer, self._see))

    def _see(self, data: bytes) -> bytes:
        self.seen += data
        return self.change(data)


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, change: Callable[[bytes], bytes]
) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(change(data))
            await writer.drain()
    writer.transport.abort()


def test_a_node_in_the_middle_neither_reads_nor_changes_what_is_encrypted_or_signed() -> None:
    """
    The middle node sees the text of a message, unless it asks for encryption. A message that was changed on
    the way is not delivered, and its sender is told. One that is not to be logged is in the log of no node,
    and the transaction of the others joins their lines in the logs of both domains.
    """
    asyncio.run(_look_inside())


async def _look_inside() -> None:
    async with _tapped() as (network, tap):
        ann, carl = Runtime(network.nodes["a"], "ann"), Runtime(network.nodes["c"], "carl")
        await carl.goes_by(ann.runtime, "cba")

        carl.send(ann.runtime, id=1, body={"n": 1, "text": SECRET}, transaction="joined")
        await until(lambda: ann.numbers() == [1])
        assert SECRET.encode() in tap.seen

        tap.seen.clear()
        carl.send(ann.runtime, id=2, body={"n": 2, "text": SECRET}, encrypt=True, transaction="joined")
        await until(lambda: ann.numbers() == [1, 2])
        assert ann.inbox[-1]["body"]["text"] == SECRET
        assert SECRET.encode() not in tap.seen

        tap.change = lambda data: data.replace(b"4711", b"0815")
        told = await carl.ask(
            ann.runtime, "update", receipt=True, ttl=3, body={"n": 3, "text": SECRET}, transaction="t3"
        )
        assert told["body"]["code"] == 408
        assert ann.numbers() == [1, 2]

        tap.change = lambda data: data
        carl.send(ann.runtime, id=4, body={"n": 4}, log=False, transaction="unlogged")
        await until(lambda: ann.numbers() == [1, 2, 4])
        await asyncio.gather(ann.stop(), carl.stop())
        for node in network.nodes.values():
            await asyncio.to_thread(node.stop)
        logs = {letter: _lines(node) for letter, node in network.nodes.items()}
        joined = sorted((letter, line.get("hops", 0)) for letter, line in _joined(logs, "joined"))
        assert joined == [("a", 2), ("a", 2), ("c", 0), ("c", 0)]
        assert not list(_joined(logs, "unlogged"))


@asynccontextmanager
async def _tapped() -> AsyncIterator[tuple[Network, OpenedLink]]:
    """
    Three domains in a chain; a tap takes the place of the proxy through which A dials B.
    """
    async with running(chain("abc")) as network:
        proxy = network.proxies["ab"]
        proxy.stop()
        proxy.cut()
        tap = OpenedLink(network.nodes["a"], network.nodes["b"])
        await tap.start(proxy.port)
        try:
            yield network, tap
        finally:
            tap.stop()


def _lines(node: DomainNode) -> list[Message]:
    """
    The traffic log of a node.
    """
    files = sorted((node.directory / "traffic").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def _joined(logs: Mapping[str, list[Message]], transaction: str) -> Iterator[tuple[str, Message]]:
    """
    The lines of all nodes with a transaction, each with the letter of its node.
    """
    for letter, lines in logs.items():
        yield from ((letter, line) for line in lines if line.get("transaction") == transaction)
