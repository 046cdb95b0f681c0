"""
A node with real sockets and a reactor that a test turns: with the compiled data plane, or in Python alone.
"""

import base64
import json
import re
import select
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from OpenSSL import SSL
from twisted.internet import tcp
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from msgnode.config.loader import check
from msgnode.config.schema import Listen
from msgnode.connectors.lines import LineFactory
from msgnode.connectors.websocket import WebSocketFactory
from msgnode.node import Node
from msgnode.policy.enforcement.decision_log import DecisionLog
from msgnode.storage.spool import Spool
from msgnode.storage.spool_recovery import recover
from msgnode.storage.traffic_log import TrafficLog
from msgnode.transport.cork import Cork
from msgnode.transport.data_plane import DataPlane
from msgnode.transport.native_plane import NativePlane
from msgnode.transport.tls import TLSFactory, over_tls
from tests.support.certificate import PATH
from tests.support.durable import Refusing
from tests.support.fakes import Turns
from tests.support.fastpath_pair import frame

TURNS = 1000
# Twisted writes for TLS: when a session waits for it depends on how many messages are read at once.
TLS_BUFFER = 1 << 20  # bytes
ROUND_MICROSECONDS = 60_000_000  # a busy machine must not end rounds
# What differs between two nodes: session tokens, epochs, WebSocket pings.
RANDOM = re.compile(rb'mns_[\w-]{43}|"epoch":"[^"]*"|\x89\x0c.{12}', re.DOTALL)
# How much is acknowledged at once depends on how much was read at once.
ACK = re.compile(rb'(\x81~..|\x81.)?\{"id":0,"type":"ack","from":"mn:/session"[^}]*\}\}\n?', re.DOTALL)
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + base64.b64encode(bytes(16)) + b"\r\n\r\n"
)


def _is_ready(descriptor: Any, event: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(0))


def is_readable(descriptor: Any) -> bool:
    """
    Is there something to be read, or an end to be found?
    """
    return _is_ready(descriptor, select.POLLIN)


class Descriptors(Turns):
    """
    A Clock that is also as much of a reactor as Twisted's sockets need.
    """

    def __init__(self) -> None:
        super().__init__()
        self.readers: set[Any] = set()
        self.writers: set[Any] = set()

    def addReader(self, reader: Any) -> None:
        self.readers.add(reader)

    def removeReader(self, reader: Any) -> None:
        self.readers.discard(reader)

    def addWriter(self, writer: Any) -> None:
        self.writers.add(writer)

    def removeWriter(self, writer: Any) -> None:
        self.writers.discard(writer)

    def serve(self) -> bool:
        """
        Read and write what can be read and written; False: nothing can.
        """
        readable = [each for each in self.readers if is_readable(each)]
        for each in readable:
            if each in self.readers:
                self._ended(each, each.doRead(), is_read=True)
        writable = [each for each in self.writers if _is_ready(each, select.POLLOUT)]
        for each in writable:
            if each in self.writers:
                self._ended(each, each.doWrite(), is_read=False)
        return bool(readable or writable)

    @staticmethod
    def _ended(each: Any, why: Any, is_read: bool) -> None:
        if why is None:
            return
        failure = Failure(why if isinstance(why, Exception) else why())
        if is_read and failure.check(ConnectionDone):
            each.readConnectionLost(failure)
        else:
            each.connectionLost(failure)


class Local(socket.socket):
    """
    One end of a pair of sockets, which passes for TCP.
    """

    def setsockopt(self, *option: Any) -> None:  # type: ignore[override]
        pass

    def getsockopt(self, *option: Any) -> int:  # type: ignore[override]
        return 0

    def getsockname(self) -> tuple[str, int]:
        return "192.0.2.100", 80


class Received(NamedTuple):
    """
    What a client has received, without what is random; and how many acknowledgements, of how many bytes.
    """

    size: int
    masked: bytes
    acks: int
    ack_bytes: int


class SocketClient:
    """
    A client of one of the connectors; `came` is what it has received.
    """

    has_tls = False

    def __init__(self, world: "PlaneWorld", kind: str, number: int) -> None:
        self.kind = kind
        self.came = b""
        self._received = Received(0, b"", 0, 0)
        self.is_over = False
        near, far = socket.socketpair()
        near.setblocking(False)
        far.setblocking(False)
        self.socket = near
        factory = world.lines if kind == "lines" else world.web
        peer = ("192.0.2.1", 4000 + number)
        self.protocol = protocol = factory.buildProtocol(None)
        if self.has_tls:
            protocol = world.tls(factory).buildProtocol(None)
            self.protocol = protocol.wrappedProtocol
        local = Local(fileno=far.detach())
        transport = tcp.Server(local, protocol, peer, None, number, world.reactor)  # type: ignore[arg-type]
        protocol.makeConnection(transport)
        if self.has_tls:
            transport.bufferSize = TLS_BUFFER
        if kind != "lines":
            self.write(UPGRADE)
            world.pump()

    def write(self, data: bytes) -> None:
        self._send(data)  # if the node does not read on, what is left is never sent

    def _send(self, data: bytes) -> bytes:
        """
        Returns what the socket does not take.
        """
        while data and not self.is_over:
            try:
                data = data[self.socket.send(data) :]
            except BlockingIOError:
                break
            except OSError:
                self.is_over = True
        return data

    def encode(self, *messages: Any) -> bytes:
        """
        These messages, each a dict or the bytes of one, in a row.
        """
        encoded = [
            each
            if isinstance(each, bytes)
            else json.dumps(each, separators=(",", ":"), ensure_ascii=False).encode()
            for each in messages
        ]
        if self.kind == "lines":
            return b"".join(each + b"\n" for each in encoded)
        return b"".join(frame(each) for each in encoded)

    def read(self) -> bool:
        """
        Take what has come; False: nothing has.
        """
        data = self._receive()
        if data is None:
            return False
        changed = bool(data) or not self.is_over
        self._take(data)
        self.is_over = self.is_over or not data
        return changed

    def _take(self, data: bytes) -> None:
        self.came += data

    def _receive(self) -> bytes | None:
        """
        What the socket has; b"": it is at its end.
        """
        try:
            return self.socket.recv(1 << 20)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def received(self) -> Received:
        """
        Looked through again only when something has come.
        """
        if len(self.came) > self._received.size:
            acks = [found[0][found[0].index(b"{") :].rstrip() for found in ACK.finditer(self.came)]
            self._received = Received(len(self.came), _masked(self.came), len(acks), sum(map(len, acks)))
        return self._received

    def close(self) -> None:
        self.socket.close()
        self.is_over = True


class TLSClient(SocketClient):
    """
    A client whose bytes are encrypted.
    """

    has_tls = True

    def __init__(self, world: "PlaneWorld", kind: str, number: int) -> None:
        context = SSL.Context(SSL.TLS_METHOD)
        self._tls = SSL.Connection(context, None)
        self._tls.set_connect_state()
        self._unsent = self._encrypted = b""
        super().__init__(world, kind, number)
        if kind == "lines":
            self.write(b"")

    def write(self, data: bytes) -> None:
        if self.is_over:
            return
        self._unsent += data
        with suppress(SSL.WantReadError):
            self._tls.do_handshake()
            while self._unsent:
                self._unsent = self._unsent[self._tls.send(self._unsent) :]
        self._flush()

    def read(self) -> bool:
        before = len(self._encrypted)
        self._flush()
        return super().read() or len(self._encrypted) < before

    def _flush(self) -> None:
        with suppress(SSL.WantReadError):
            while True:
                self._encrypted += self._tls.bio_read(1 << 20)
        self._encrypted = self._send(self._encrypted)

    def _take(self, data: bytes) -> None:
        if not data:
            return
        self._tls.bio_write(data)
        try:
            self.write(b"")
            while True:
                self.came += self._tls.recv(1 << 16)
        except SSL.WantReadError:
            pass
        except SSL.ZeroReturnError:
            self._tls.shutdown()
            self._flush()
            self.is_over = True
        except SSL.Error:
            self.is_over = True


class PlaneWorld:
    """
    The node, its clients, and what they and the traffic log got.
    """

    def __init__(self, module: Any, directory: Path, **sections: Any) -> None:
        self.reactor = Descriptors()
        self.disk = Refusing()  # of the spool
        self.spool = Spool(directory / "spool", write=self.disk)
        self.spool.open()
        self.plane = (
            DataPlane() if module is None else NativePlane(module, round_microseconds=ROUND_MICROSECONDS)
        )
        self.directory = directory
        self.traffic = TrafficLog(str(directory), "test", self.reactor)
        config = check({"domain": "example.org", "node": "test", "state": "none", **sections}, "test")
        self.node = node = Node(
            config,
            self.reactor,
            self.traffic,
            message_log=self.spool,
            wall=self.reactor.seconds,
            chance=lambda: 0.0,
            data_plane=self.plane,
        )
        self.traffic.counts, self.traffic.data_plane = node.counts, self.plane
        self.decision_log = node.enforcement.decisions.log = DecisionLog(
            str(directory / "decisions"), "test", self.reactor, data_plane=self.plane
        )
        self._decision_lines = _LogLines(directory / "decisions")
        cork = Cork(node.settle, config.session.unsent_bytes, node.counts)
        self.plane.use(cork, node.counts, node.sessions.journal)
        node.use_cork(cork)
        self.lines = LineFactory(node, cork, self.reactor)
        self.web = WebSocketFactory(node, cork, self.reactor)
        self.clients: list[SocketClient] = []
        self.taken: list[bytes] = []  # responses that were awaited outside of sessions
        self.traffic.startService()
        self.decision_log.startService()

    def tls(self, factory: Factory) -> TLSFactory:
        """
        The same factory behind TLS.
        """
        listen = Listen(kind="web", endpoint="tcp:0", cert=PATH, key=PATH)
        return over_tls(listen, factory, self.reactor)

    def connect(self, kind: str, has_tls: bool = False) -> SocketClient:
        client = (TLSClient if has_tls else SocketClient)(self, kind, len(self.clients))
        self.clients.append(client)
        self.pump()
        return client

    def pump(self) -> None:
        """
        Turn the reactor until nothing happens any more.
        """
        for _ in range(TURNS):
            busy = isinstance(self.plane, NativePlane) and self._round(self.plane, self.reactor.seconds())
            busy = self.reactor.serve() or busy
            busy = bool([c for c in self.reactor.calls if c.getTime() <= self.reactor.seconds()]) or busy
            self.reactor.turn()
            for client in self.clients:
                busy = (client.socket.fileno() >= 0 and not client.is_over and client.read()) or busy
            if not busy:
                return
        raise AssertionError("it never ends")

    @staticmethod
    def _round(plane: NativePlane, now: float) -> bool:
        plane.poller.stop_clock(now)
        due = is_readable(plane.poller)
        return bool(plane.poller.round() or due)

    def end(self) -> None:
        """
        Close everything, and write the log.
        """
        for client in self.clients:
            if client.socket.fileno() >= 0:
                client.close()
                self.pump()
        self.traffic.stopService()
        self.decision_log.stopService()
        self.spool.close()

    # -- what became of it ---------------------------------------------------------------

    def got(self) -> list[tuple[bytes, bool]]:
        """
        What each client has received, without what is random; and is it disconnected?
        """
        return [(client.received().masked, client.is_over) for client in self.clients]

    def resume_point(self, runtime: str, share: float) -> tuple[str, int]:
        """
        The epoch of the session, and a number of messages that its client may have by now.
        """
        session = self.node.sessions.get(runtime)
        outbox = session.mailbox.outbox if session is not None else None
        if outbox is None:
            return "none", 0
        return outbox.epoch, outbox.acknowledged + int(share * (outbox.last - outbox.acknowledged))

    def counts_of_sessions(self) -> dict[str, Any]:
        """
        The numbers of acknowledged resume, by runtimeURL; and the bytes that the journal has.
        """
        found: dict[str, Any] = {}
        for session in self.node.sessions:
            mailbox = session.mailbox
            outbox, inbox = mailbox.outbox, mailbox.inbox
            counts: list[Any] = [mailbox.last_key, mailbox.queued, mailbox.missed]
            if outbox is not None and inbox is not None:
                counts += [outbox.acknowledged, outbox.last, len(outbox.sent), outbox.sent_bytes, outbox.room]
                counts += [inbox.received, inbox.position, inbox.finished, inbox.on_disk]
            found[session.runtime] = counts
        journal = self.node.sessions.journal
        found["journal"] = journal.bytes_in_memory, journal.message_log.live
        return found

    def spooled(self) -> dict[int, Any]:
        """
        What a restart would find in the spool, by session, if the node were killed now.
        """
        found = {}
        for sid, recovered in recover(self.directory / "spool").items():
            kept = [
                (note.key, note.number, note.until, note.priority, self.spool.read(note.place, note.size))
                for note in recovered.kept
            ]
            counts = recovered.acknowledged, recovered.received, recovered.pending, recovered.next_key
            found[sid] = counts, kept
        return found

    def logged(self) -> list[dict[str, Any]]:
        """
        The traffic log, without times.
        """
        return _LogLines(self.directory).read()

    def decided(self) -> list[Any]:
        """
        The decisions of policies by rule, and those that the decision log has, without times.
        """
        enforcement = self.node.enforcement
        counts = [(each.point, each.effect, each.rule, each.hits) for each in enforcement.decisions]
        self.decision_log.flush()
        lines = self._decision_lines.read()
        tried = enforcement.dry_run_report()
        return [counts, lines, enforcement.decisions.unlogged, tried.get("decided"), tried.get("different")]

    def counted(self) -> dict[str, Any]:
        self.plane.update_counts()
        found = dict(vars(self.node.counts))
        found["handed_over"] = sum(found["handed_over"])
        for client in self.clients:
            received = client.received()
            found["sent"] -= received.acks
            found["sent_bytes"] -= received.ack_bytes
        return found


class _LogLines:
    """
    The lines of a log, without times. A line that was read is not read again.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sizes: dict[Path, int] = {}  # bytes that were read
        self._lines: list[dict[str, Any]] = []

    def read(self) -> list[dict[str, Any]]:
        for path in sorted(self._directory.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._sizes.get(path, 0))
                for text in file:
                    line = json.loads(_masked(text))
                    self._lines.append({key: line[key] for key in line if key not in ("time", "micros")})
                self._sizes[path] = file.tell()
        return self._lines.copy()


def _masked(data: bytes) -> bytes:
    return ACK.sub(b"", RANDOM.sub(lambda found: b"." * len(found[0]), data))
