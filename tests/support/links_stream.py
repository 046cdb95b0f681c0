"""
Streams between nodes in memory: a network that loses, doubles and delays, and nodes with or without a disk.
"""

import random
from ast import literal_eval
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from twisted.internet.task import Clock

from msgnode.links.overlay.network import NodeKeys
from msgnode.links.stream.node_streams import NodeStreams
from msgnode.links.stream.safety.node_keys import KeyRing, PrivateKeys
from msgnode.links.stream.storage import epochs
from msgnode.links.stream.storage.spool_store import SpoolStreamStore
from msgnode.links.stream.storage.store import MemoryStreamStore
from msgnode.links.stream.streams import SEVERAL, Envelope, IfReplaced, Outcome
from msgnode.links.wire.datagram import Datagram
from msgnode.sessions.journal import DeliveryJournal
from msgnode.sessions.queue import FOREVER
from msgnode.storage.spool import SEGMENT_BYTES, Spool, write_all
from msgnode.storage.spool_compaction import SLACK_BYTES, SpoolCompactor

# The sids under which a node with a disk keeps what its listener got, the outcomes it was given, and what
# it sent.
DELIVERED, OUTCOMES, SENT = 1, 2, 3


class Weather:
    """
    What a network does to datagrams: the probabilities of loss and doubling, and the delay in seconds.
    """

    def __init__(self, loss: float = 0.0, doubling: float = 0.0, delay: tuple[float, float] = (0, 0)) -> None:
        self.loss = loss
        self.doubling = doubling
        self.delay = delay


class FakeNet:
    """
    A network of streams in memory, by a clock. `taps` see each datagram that is sent, and may replace it.
    """

    def __init__(self, seed: int = 0) -> None:
        self.clock = Clock()
        self.wall = self.clock.seconds
        self.random = random.Random(seed)
        self.weather = Weather()
        self.nodes: dict[str, StreamNode] = {}
        self.keys: dict[str, NodeKeys] = {}
        self.cut: set[frozenset[str]] = set()  # pairs without a route
        self.full: set[str] = set()  # nodes whose next hop takes nothing
        self.sent: list[Datagram] = []
        self.avoided: list[str] = []
        self.tap: Callable[[Datagram], Datagram | None] = lambda datagram: datagram

    def carry(self, datagram: Datagram) -> bool:
        if not self.has_route(datagram.source, datagram.destination) or datagram.source in self.full:
            return False
        assert len(datagram.payload) <= 32 * 1024
        self.sent.append(datagram)
        tapped = self.tap(datagram)
        if tapped is None:
            return True
        for _ in range(1 + (self.random.random() < self.weather.doubling)):
            if self.random.random() >= self.weather.loss:
                self.clock.callLater(self.random.uniform(*self.weather.delay), self.arrive, tapped)
        return True

    def arrive(self, datagram: Datagram) -> None:
        node = self.nodes.get(datagram.destination)
        if node is not None and node.streams is not None:
            node.streams.received(datagram)

    def has_route(self, source: str, destination: str) -> bool:
        return frozenset((source, destination)) not in self.cut

    def set_route(self, one: str, other: str, up: bool) -> None:
        pair = frozenset((one, other))
        (self.cut.discard if up else self.cut.add)(pair)
        for here, there in ((one, other), (other, one)):
            node = self.nodes.get(here)
            if node is not None and node.streams is not None:
                node.streams.route_changed(there)

    def advertise(self, name: str, keys: NodeKeys) -> None:
        self.keys[name] = keys
        for node in self.nodes.values():
            if node.streams is not None:
                node.streams.keys_changed(name)

    def run(self, seconds: float, step: float = 0.05) -> None:
        for _ in range(round(seconds / step)):
            self.clock.advance(step)

    def flush(self, turns: int = 12) -> None:
        """
        Let the event loop turn without time passing.
        """
        for _ in range(turns):
            self.clock.advance(0)


class FakeNetwork:
    """
    The network as one node sees it (Network).
    """

    def __init__(self, net: FakeNet, node: str) -> None:
        self.node = node
        self._net = net

    def send(self, datagram: Datagram) -> bool:
        return self._net.carry(datagram)

    def keys(self, node: str) -> NodeKeys | None:
        return self._net.keys.get(node)

    def has_route(self, node: str) -> bool:
        return self._net.has_route(self.node, node)

    def nodes_of(self, domain: str) -> Iterable[str]:
        return ()

    def knows(self, domain: str) -> bool:
        return True

    def avoid_first_hop(self, node: str) -> None:
        self._net.avoided.append(node)


class Disk:
    """
    A disk that can be full.
    """

    def __init__(self) -> None:
        self.full = False

    def write(self, file: int, parts: list[bytes]) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        write_all(file, parts)


class Records:
    """
    What a test keeps in the spool on its own behalf, as a part that takes part in compaction.
    """

    def __init__(self, spool: Spool | None) -> None:
        self._spool = spool
        self._kept: dict[int, tuple[int, bytes]] = {}  # sid and bytes by key
        self._places: dict[int, int] = {}

    def restore(self, sid: int, found: Any) -> list[Any]:
        """
        The values that were written under that sid.
        """
        values = []
        assert self._spool is not None
        for note in found.kept if found is not None else []:
            data = self._spool.read(note.place, note.size)
            self._kept[note.key], self._places[note.key] = (sid, data), note.place
            values.append(literal_eval(data.decode()))
        return values

    def write(self, sid: int, value: object) -> None:
        if self._spool is not None:
            key = max(self._kept, default=0) + 1
            self._kept[key] = sid, repr(value).encode()
            self._append(key)

    def _append(self, key: int) -> None:
        assert self._spool is not None
        sid, data = self._kept[key]
        self._places[key] = self._spool.append(sid, key, data, FOREVER, 5, 0, 0)

    def rewrite(self, is_old: Callable[[int], bool]) -> Iterator[None]:
        assert self._spool is not None
        for key, place in list(self._places.items()):
            if is_old(place):
                self._spool.release(len(self._kept[key][1]))
                self._append(key)
        yield

    def move(self) -> None:
        pass


class NoSessions:
    """
    The sessions of a node that has none, as compaction uses them.
    """

    watermark = None

    def __init__(self, journal: DeliveryJournal) -> None:
        self.journal = journal
        self.released: dict[int, Any] = {}

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class Sent(NamedTuple):
    """
    A message that a node took. `is_quiet`: its sender is not told that it was acknowledged.
    """

    to: str
    lane: int
    payload: bytes
    is_quiet: bool = False


class StreamNode:
    """
    A node that has nothing but streams, and their listener.

    What it got is in `got`, as (source, lane, payload); `sent` and `outcomes` are by message identifier.
    With a directory all three are in the spool, in the same batch as what streams write, and after a
    restart they are what the disk has. `ever` counts what the listener of a node without a disk ever got.
    With `slow`, the listener is not done with a message before `finish` is called.
    """

    def __init__(
        self,
        net: FakeNet,
        name: str,
        directory: Path | None = None,
        keys: Callable[[], PrivateKeys] = PrivateKeys.generate,
        segment_bytes: int = SEGMENT_BYTES,
        slack: int = SLACK_BYTES,
        memory: Callable[[], MemoryStreamStore] = MemoryStreamStore,
        **options: Any,
    ) -> None:
        self.memory = memory
        self.segment_bytes, self.slack = segment_bytes, slack
        self.net, self.name, self.directory = net, name, directory
        self.disk = Disk()
        self.slow = False
        self.options = options
        self.envelopes: list[Envelope] = []
        self.held: list[Callable[[], None]] = []
        self.restarts: list[str] = []
        self.ever: list[tuple[str, int, bytes]] = []
        self.on_received: Callable[[], object] = lambda: None
        self.on_done: Callable[[], object] = lambda: None
        self._make_keys = keys
        self._made = 0
        self.streams: NodeStreams | None = None
        self.spool: Spool | None = None
        net.nodes[name] = self
        self.start()

    # -- life -------------------------------------------------------------------

    def start(self) -> None:
        self.private = self._make_keys()
        self.ring = KeyRing(self.private, self.net.clock)
        self.got: list[tuple[str, int, bytes]] = []
        self.sent: dict[tuple[bytes, int], Sent] = {}
        self.outcomes: dict[tuple[bytes, int], list[Outcome]] = {}
        self.records = Records(None)
        self.compactor: SpoolCompactor | None = None
        stored: Any = ()
        if self.directory is None:
            store: Any = self.memory()
            next_epoch = epochs.in_memory(self.net.random.randbytes, self.net.wall)
        else:
            store, stored = self._open_spool(self.directory)
            random_bytes, wall = self.net.random.randbytes, self.net.wall
            next_epoch = epochs.load(self.directory, self.name, random_bytes=random_bytes, wall=wall)
        network = FakeNetwork(self.net, self.name)
        self.streams = NodeStreams(network, store, self.ring, self.net.clock, next_epoch, **self.options)
        if self.spool is not None:
            others = (self.records, self.streams)
            sessions: Any = NoSessions(self.journal)
            self.compactor = SpoolCompactor(self.spool, sessions, self.net.clock, self.slack, others)
            self.compactor.startService()
        self.streams.start(self, stored)
        self.net.advertise(self.name, self.private.public)

    def _open_spool(self, directory: Path) -> tuple[SpoolStreamStore, Any]:
        directory.mkdir(exist_ok=True)
        full, self.disk.full = self.disk.full, False
        self.spool = Spool(directory / "spool", write=self.disk.write, segment_bytes=self.segment_bytes)
        self.records = Records(self.spool)
        found = self.spool.open()
        self.disk.full = full
        read = self.records.restore
        self.got = read(DELIVERED, found.get(DELIVERED))
        self.sent = {identifier: Sent(*fields) for identifier, *fields in read(SENT, found.get(SENT))}
        self.outcomes = {identifier: [] for identifier in self.sent}
        for identifier, code, reason in read(OUTCOMES, found.get(OUTCOMES)):
            self.outcomes[identifier].append(Outcome(code, reason))
        clock = self.net.clock
        nothing: Any = lambda *args: None  # noqa: E731
        self.journal = DeliveryJournal(self.spool, 1 << 30, nothing, nothing, nothing, clock, clock.seconds)
        store = SpoolStreamStore(self.journal)
        return store, store.recover(found)

    def kill(self) -> None:
        """
        End as by kill -9: what is not on disk is lost.
        """
        assert self.streams is not None
        self.streams.stop()
        self.streams = None
        self.held = []
        if self.spool is not None and self.compactor is not None:
            self.disk.full, full = True, self.disk.full  # nothing more is written
            self.compactor.stopService()
            self.disk.full = full
            self.spool.close()

    def restart(self) -> None:
        self.kill()
        self.start()

    # -- messages ---------------------------------------------------------------

    def send(
        self,
        to: str,
        payload: bytes,
        priority: int = 5,
        sender: str = "",
        if_replaced: IfReplaced = "wait",
        **fields: Any,
    ) -> Any:
        """
        Send one message; returns its identifier.
        """
        self._made += 1
        fields.setdefault("ttl_millis", 3_600_000)
        fields.setdefault("kind", "message")
        fields.setdefault("id", (self.name.encode(), self._made))
        envelope = Envelope(priority=priority, **fields)
        assert self.streams is not None
        self.outcomes.setdefault(envelope.id, [])
        try:
            self.streams.send(to, envelope, payload, self.done, sender, if_replaced)
        except Exception:
            del self.outcomes[envelope.id]
            raise
        self.sent[envelope.id] = Sent(to, priority, payload)
        self.records.write(SENT, (envelope.id, to, priority, payload))
        return envelope.id

    def send_several(
        self,
        to: str,
        payloads: list[bytes],
        priority: int = 5,
        sender: str = "",
        if_replaced: IfReplaced = "wait",
        **fields: Any,
    ) -> list[Any]:
        """
        Send several messages as one; returns their identifiers. An acknowledgement of them is not told.
        """
        first = self._made + 1
        self._made += len(payloads)
        fields.setdefault("ttl_millis", 3_600_000)
        envelope = Envelope(SEVERAL, (self.name.encode(), first), priority=priority, compress=False, **fields)
        assert self.streams is not None

        def ended(each: Envelope, payload: bytes, outcome: Outcome) -> None:
            assert payload == self.sent[each.id].payload
            self.done(each, outcome)

        self.streams.send_several(to, envelope, payloads, ended, sender, if_replaced)
        identifiers = [(self.name.encode(), first + index) for index in range(len(payloads))]
        for identifier, payload in zip(identifiers, payloads, strict=True):
            self.outcomes[identifier] = []
            self.sent[identifier] = Sent(to, priority, payload, True)
            self.records.write(SENT, (identifier, to, priority, payload, True))
        return identifiers

    def done(self, envelope: Envelope, outcome: Outcome) -> None:
        self.outcomes[envelope.id].append(outcome)
        self.records.write(OUTCOMES, (envelope.id, outcome.code, outcome.reason))

    def reasons(self, identifier: Any) -> list[str]:
        return [outcome.reason for outcome in self.outcomes[identifier]]

    @property
    def payloads(self) -> list[bytes]:
        return [payload for _, _, payload in self.got]

    # -- StreamListener ---------------------------------------------------------

    def received(self, source: str, envelope: Envelope, payload: bytes, path: Any, done: Any) -> None:
        self.envelopes.append(envelope)
        self._note(source, envelope.priority, payload)
        finish = partial(self._finish, source, envelope.priority, payload, done)
        if self.slow:
            self.held.append(finish)
        else:
            finish()

    def received_several(
        self, source: str, envelope: Envelope, payloads: Iterator[bytes], path: Any, keep: Any
    ) -> None:
        self.envelopes.append(envelope)
        for payload in payloads:
            self._note(source, envelope.priority, payload)
            if self.slow:
                self.held.append(partial(self._finish, source, envelope.priority, payload, keep()))
            else:
                self._finish(source, envelope.priority, payload, lambda: None)

    def _note(self, source: str, lane: int, payload: bytes) -> None:
        self.ever.append((source, lane, payload))
        self.on_received()

    def _finish(self, source: str, lane: int, payload: bytes, done: Callable[[], None]) -> None:
        self.got.append((source, lane, payload))
        self.records.write(DELIVERED, (source, lane, payload))
        done()
        self.on_done()

    def finish(self) -> None:
        held, self.held = self.held, []
        for each in held:
            each()

    def ended(self, destination: str, envelope: Envelope, payload: bytes, outcome: Outcome) -> None:
        assert payload == self.sent[envelope.id].payload
        self.done(envelope, outcome)

    def restarted(self, source: str) -> None:
        self.restarts.append(source)


def pair(seed: int = 0, **options: Any) -> tuple[FakeNet, StreamNode, StreamNode]:
    """
    Two nodes without disks.
    """
    net = FakeNet(seed)
    return net, StreamNode(net, "mn://a.example/1", **options), StreamNode(net, "mn://b.example/1", **options)
