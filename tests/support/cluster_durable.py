"""
Whole nodes of a cluster in memory whose state is on disk: real sessions, moves, directory and exchange, on
links and streams that are cut, and processes that are killed, stopped and started again.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from msgnode.cluster.channels import Channels
from msgnode.cluster.directory.directory import ReplicatedDirectory
from msgnode.cluster.exchange.member_exchange import MemberExchange
from msgnode.links.exchange.envelopes import MessageIds
from msgnode.links.exchange.exchange import Exchange
from msgnode.links.exchange.node_parts import ExchangeOptions
from msgnode.links.overlay.network import NodeKeys
from msgnode.links.stream.body import pack, unpack
from msgnode.links.stream.streams import ACKNOWLEDGED, SEVERAL, UNCONFIRMED, Envelope, Outcome, part_of
from msgnode.protocol.close_codes import Closing
from msgnode.service.cluster_sessions import ClusterSessions
from msgnode.sessions.session import Session
from tests.support.cluster_members import MemoryCluster
from tests.support.durable import SM, DurableNode
from tests.support.fakes import Turns
from tests.support.links_exchange import NOW, SharedKeySigner

NAMES = tuple(f"mn://example.org/{name}" for name in "abc")
TOPIC = "comm://example.org/{}/changes"
STEP_SECONDS = 0.005


class Entry:
    """
    One entry of a stream. It is on the disk of its source until it is acknowledged.
    """

    def __init__(self, envelope: Envelope, payload: bytes, done: Any) -> None:
        self.envelope = envelope
        self.payload = payload
        self.done = done
        self.taken_by: DurableMember | None = None
        self.is_acknowledged = False


class DurableStreams:
    """
    The streams of one start of one node, in order (the Streams of an exchange).
    """

    def __init__(self, world: "DurableWorld", node: str) -> None:
        self._world = world
        self._node = node

    def _wire(self, destination: str) -> deque[Entry]:
        return self._world.wires.setdefault((self._node, destination), deque())

    def send(
        self,
        destination: str,
        envelope: Envelope,
        payload: bytes,
        done: Callable[[Envelope, Outcome], None] | None = None,
        sender: str = "",
        if_replaced: str = "wait",
        is_answer: bool = False,
    ) -> None:
        self._wire(destination).append(Entry(envelope, payload, done))

    def send_several(
        self,
        destination: str,
        envelope: Envelope,
        payloads: list[bytes],
        ended: Callable[[Envelope, bytes, Outcome], None],
        sender: str = "",
        if_replaced: str = "wait",
    ) -> None:
        def done(envelope: Envelope, outcome: Outcome) -> None:
            if outcome is not ACKNOWLEDGED:
                for index, each in enumerate(payloads):
                    ended(part_of(envelope, index), each, outcome)

        self.send(destination, envelope, pack(payloads), done)

    def would_take(self, destination: str, sender: str, messages: int, size: int) -> bool:
        return True

    def unacknowledged(self, destination: str) -> Callable[[], bool]:
        entries = list(self._wire(destination))
        return lambda: not all(entry.is_acknowledged for entry in entries)

    def ask(self, destination: str) -> None:
        pass  # what is taken is acknowledged at once

    def undelivered(self, destination: str) -> int:
        return len(self._wire(destination))

    def waiting(self) -> Iterator[str]:
        return iter([to for (of, to), wire in self._world.wires.items() if of == self._node and wire])


class DurableView:
    """
    The network as one node sees it.
    """

    def __init__(self, world: "DurableWorld", node: str) -> None:
        self._world = world
        self.node = node

    def keys(self, node: str) -> NodeKeys | None:
        return NodeKeys(b"", b"", b"", frozenset())

    def has_route(self, node: str) -> bool:
        return (self.node, node) in self._world.cluster.wires

    def nodes_of(self, domain: str) -> Iterable[str]:
        return ()

    def knows(self, domain: str) -> bool:
        return domain in self._world.reached.get(self.node, ())


class DurableMember:
    """
    One start of one node.
    """

    def __init__(self, world: "DurableWorld", name: str) -> None:
        self.world = world
        self.name = name
        clock = Turns()
        clock.advance(world.now)
        self.node = node = DurableNode(world.directory / name[-1], clock)
        self.clock = clock
        self.members = members = world.cluster.start(name)
        self.channels = channels = members.listener = Channels(members)
        channel = channels.make(b"d")
        self.directory = ReplicatedDirectory(channel, self._is_held, clock, node.slices)
        channel.listener = self.directory
        moving = channels.make(b"m")
        streams: Any = DurableStreams(world, name)
        view: Any = DurableView(world, name)
        ids = MessageIds(name.encode(), members.epoch[1])
        self.exchange = Exchange(
            node,
            streams,
            view,
            ids,
            clock,
            node.traffic_recorder,
            ExchangeOptions(),
            SharedKeySigner(name),
            lambda: NOW + clock.seconds(),
        )
        self.exchange.start()
        self.held = MemberExchange(
            node, streams, view, self.exchange, self.directory, ids, node.traffic_recorder, clock.seconds
        )
        self.sessions = ClusterSessions(
            node, moving, self.directory, streams, self.held, self._missing, lambda: True, clock
        )
        self.held.start()
        self.directory.start()
        self.sessions.start()

    def _is_held(self, address: str) -> bool:
        return self.held.is_held(address)

    def _missing(self) -> set[str]:
        return {name for name in NAMES if name != self.name} - set(self.members.up())

    def knows(self, runtime: str) -> bool:
        """
        Does it know a node, or is it one, that holds the session and its topic?
        """
        topic = TOPIC.format(runtime[-1])
        return all(
            self.node.routes.resolve(address) or self.directory.holders(address)
            for address in (runtime, topic)
        )

    def die(self) -> None:
        self.node.spool.close()
        self.node.store.shut()
        for call in list(self.clock.getDelayedCalls()):
            call.cancel()


class RoamingWire:
    """
    A connection of a client: what the node sends arrives with the next step of the world.
    """

    connector = "memory"
    peer = "192.0.2.1:1"
    identity = ""
    bearer = ""
    acks_by_request = False

    def __init__(self, member: DurableMember) -> None:
        self.member = member
        self.session: Session | None = None
        self.write_paused = False
        self.arrived: list[bytes] = []
        self.is_lost = False
        member.node.sessions.connections.made(self)

    def send(self, data: bytes) -> None:
        self.member.node.settle()
        if not self.is_lost:
            self.arrived.append(data)

    def outbox_ready(self) -> None: ...

    def lose(self, why: Closing) -> None:
        if not self.is_lost:
            self.is_lost = True
            self.member.clock.callLater(0, self.member.node.sessions.connections.lost, self)

    def abort(self) -> None:
        self.is_lost = True
        self.member.clock.callLater(0, self.member.node.sessions.connections.lost, self)

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def report_undecodable(self, text: str, code: int) -> None: ...


class RoamingClient:
    """
    A client that counts, acknowledges and resumes, at any node. It subscribes its topic in each new session.
    """

    def __init__(self, world: "DurableWorld", runtime: str, subscribes: bool = True) -> None:
        self.world = world
        self.runtime = runtime
        self.subscribes = subscribes
        self.wire: RoamingWire | None = None
        self.token = self.epoch = ""
        self.received = self.sent = 0
        self.kept: list[bytes] = []
        self.got: list[str] = []
        self.acks = True
        self.is_open = False
        self.recovered: list[bool] = []
        self.missed = 0
        self.sent_again: set[str] = set()  # in an epoch of its own: those may come twice

    @property
    def is_up(self) -> bool:
        wire = self.wire
        return wire is not None and not wire.is_lost and self.world.runs(wire.member)

    def connect(self, name: str) -> None:
        """
        Open, or come back, at that node, if it runs.
        """
        self.drop()
        member = self.world.members.get(name)
        if member is None or name in self.world.stopped:
            return
        self.wire = RoamingWire(member)
        resume: Any = {"epoch": self.epoch, "received": self.received} if self.token else True
        kind, from_ = ("re-open", f"{self.runtime}/{self.token}") if self.token else ("open", self.runtime)
        self._tell(kind, from_, {"resume": resume})

    def drop(self) -> None:
        """
        Lose the connection; what is on its way is lost.
        """
        self.is_open = False
        if self.wire is not None and self.is_up:
            self.wire.is_lost = True
            self.wire.member.node.sessions.connections.lost(self.wire)
        self.wire = None

    def send(self, **fields: Any) -> None:
        data = json.dumps({"from": self.runtime, **fields}).encode()
        self.sent += 1
        self.kept.append(data)
        if self.is_open:
            self._put(data)

    def hear(self) -> None:
        """
        Take what has arrived.
        """
        wire = self.wire
        if wire is None or not wire.arrived or wire.member.name in self.world.stopped:
            return
        arrived, wire.arrived = wire.arrived, []
        before = self.received
        for data in arrived:
            self._hear(json.loads(data))
        if self.acks and self.is_open and self.received != before:
            self._tell("ack", self.runtime, {"received": self.received})

    def _hear(self, message: dict[str, Any]) -> None:
        body = message.get("body", {})
        if message["from"] != "mn:/session":
            self.received += 1
            if "n" in body:
                self.got.append(body["n"])
        elif message["type"] == "ack":
            self._acknowledged(body["received"])
        elif message["type"] == "response" and "resume" in body:
            self._opened(body)

    def _opened(self, body: dict[str, Any]) -> None:
        self.token = body.get("runtimeToken", self.token)
        told = body["resume"]
        self.is_open = True
        self.recovered.append(bool(told["recovered"]))
        if told["epoch"] == self.epoch:
            self.received += told["missed"] or 0
            self.missed += told["missed"] or 0
            self._acknowledged(told["received"])
        else:
            if self.epoch:
                bodies = [json.loads(data).get("body", {}) for data in self.kept]
                self.sent_again |= {body["n"] for body in bodies if "n" in body}
            self.epoch, self.received, self.sent = told["epoch"], 0, len(self.kept)
            if self.subscribes:
                topic = TOPIC.format(self.runtime[-1])
                self.send(id=1, type="subscribe", to=SM, body={"resources": [topic]})
                return self._repeat(self.kept[:-1])
        return self._repeat(self.kept)

    def _repeat(self, kept: list[bytes]) -> None:
        for data in kept:
            self._put(data)

    def _acknowledged(self, number: int) -> None:
        keep = self.sent - number
        self.kept = self.kept[len(self.kept) - keep :] if keep else []

    def _tell(self, type: str, from_: str, body: dict[str, Any]) -> None:
        message = {"id": 0, "type": type, "from": from_, "to": "mn:/session", "body": body}
        self._put(json.dumps(message).encode())

    def _put(self, data: bytes) -> None:
        if self.is_up:
            assert self.wire is not None
            self.wire.member.node.receive(data, self.wire)
            self.wire.member.node.settle()


class DurableWorld:
    """
    Three nodes, and the streams between them. At each node there is a sender that stays.
    """

    def __init__(self, directory: Path) -> None:
        self.reached: dict[str, set[str]] = {}  # other domains, by node
        self.directory = directory
        self.cluster = MemoryCluster(max_payload=30_000)
        self.wires: dict[tuple[str, str], deque[Entry]] = {}
        self.members: dict[str, DurableMember] = {}
        self.stopped: set[str] = set()
        self.slow: set[tuple[str, str]] = set()  # streams, from and to, whose messages do not arrive now
        self.unheard: set[tuple[str, str]] = set()  # streams whose acknowledgements do not arrive now
        self.clients: dict[str, RoamingClient] = {}
        self.published: dict[str, list[str]] = {}  # by runtimeURL
        for name in NAMES:
            (directory / name[-1]).mkdir()
            self.start(name)
        self.run(0.5)
        self.senders = {
            name: RoamingClient(self, f"runtime://example.org/from-{name[-1]}", False) for name in NAMES
        }

    @property
    def now(self) -> float:
        seconds: float = self.cluster.clock.seconds()
        return seconds

    def give_up(self, of: str, to: str) -> None:
        """
        The stream ends what is not acknowledged: it may have been delivered.
        """
        wire = self.wires[of, to]
        while wire:
            entry = wire.popleft()
            if entry.done is not None:
                entry.done(entry.envelope, UNCONFIRMED)

    def runs(self, member: DurableMember) -> bool:
        """
        Is this the node's present process, and does it run?
        """
        return self.members.get(member.name) is member and member.name not in self.stopped

    def run(self, seconds: float) -> None:
        short = min(seconds, 1)
        steps = [STEP_SECONDS] * round(short / STEP_SECONDS) + [0.1] * round((seconds - short) / 0.1)
        for step in steps:
            self.cluster.clock.advance(step)
            for name, member in list(self.members.items()):
                if name not in self.stopped:
                    member.clock.advance(self.now - member.clock.seconds())
            self._move()
            for client in [*self.clients.values(), *getattr(self, "senders", {}).values()]:
                client.hear()

    def _move(self) -> None:
        for (of, to), wire in list(self.wires.items()):
            source, target = self.members.get(of), self.members.get(to)
            if source is None or target is None or {of, to} & self.stopped:
                continue
            if (of, to) not in self.cluster.wires or (of, to) in self.slow:
                continue
            for entry in list(wire):
                if entry.taken_by is not target:
                    entry.taken_by = target
                    self._deliver(source, target, entry, wire)
            target.node.settle()

    def _deliver(
        self, source: DurableMember, target: DurableMember, entry: Entry, wire: deque[Entry]
    ) -> None:
        def acknowledge() -> None:
            if self.members.get(target.name) is not target or entry.is_acknowledged:
                return
            if (source.name, target.name) in self.unheard:
                return
            target.node.settle()
            entry.is_acknowledged = True
            wire.remove(entry)
            if entry.done is not None and self.members.get(source.name) is source:
                entry.done(entry.envelope, ACKNOWLEDGED)

        path = ((source.name, 5),)
        if entry.envelope.kind == SEVERAL:
            left = [1]

            def keep() -> Callable[[], None]:
                left[0] += 1
                return end

            def end() -> None:
                left[0] -= 1
                if not left[0]:
                    acknowledge()

            payloads = iter(unpack(entry.payload))
            target.exchange.received_several(source.name, entry.envelope, payloads, path, keep)
            end()
        else:
            target.exchange.received(source.name, entry.envelope, entry.payload, path, acknowledge)

    # -- what happens to nodes -------------------------------------------------------

    def kill(self, name: str) -> None:
        member = self.members.pop(name, None)
        if member is None:
            return
        self.stopped.discard(name)
        member.die()
        self.cluster.kill(name)
        for (of, _), wire in self.wires.items():
            for entry in wire if of == name else ():
                entry.done = None

    def start(self, name: str) -> None:
        if name not in self.members:
            self.members[name] = self.made(name)
            self.cluster.connect()

    def made(self, name: str) -> DurableMember:
        """
        A new process of that node.
        """
        return DurableMember(self, name)

    def stop(self, name: str) -> None:
        if name in self.members:
            self.stopped.add(name)
            self.cluster.stop(name)

    def resume(self, name: str) -> None:
        if name in self.stopped:
            self.stopped.discard(name)
            self.cluster.resume(name)

    # -- what clients do -------------------------------------------------------------

    def client(self, runtime: str) -> RoamingClient:
        if runtime not in self.clients:
            self.clients[runtime] = RoamingClient(self, runtime)
        return self.clients[runtime]

    def publish(self, name: str, runtime: str, count: int) -> None:
        """
        The sender at a node sends to the session, by its name and by its topic in turn.
        """
        sender, member = self.senders[name], self.members.get(name)
        if member is None or name in self.stopped:
            return
        if not sender.is_up:
            sender.connect(name)
            self.run(STEP_SECONDS)
        if not sender.is_open or not member.knows(runtime):
            return
        sent = self.published.setdefault(runtime, [])
        for number in range(count):
            sent.append(f"{name[-1]}{len(sent)}")
            to = (f"{runtime}/x", TOPIC.format(runtime[-1]))[number % 2]
            sender.send(id=1, type="update", to=to, body={"n": sent[-1]})

    def holders(self, runtime: str) -> list[str]:
        return [name for name, member in self.members.items() if member.node.sessions.get(runtime)]

    def is_leaving(self, runtime: str, name: str) -> bool:
        """
        Is the node still handing the session over, to which the client would come back?
        """
        member = self.members.get(name)
        released = member.node.sessions.released.values() if member is not None else ()
        return any(session.runtime == runtime for session in released)

    def heal(self) -> None:
        """
        Everything runs again, and all clients have come back.
        """
        self.cluster.cut_links.clear()
        self.slow.clear()
        for name in NAMES:
            self.resume(name)
            self.start(name)
        self.cluster.connect()
        for _ in range(4):
            self.run(6)
            for name, sender in self.senders.items():
                if not sender.is_open or not sender.is_up:
                    sender.connect(name)
            for runtime, client in self.clients.items():
                client.acks = True
                if not client.is_open or not client.is_up:
                    client.connect((self.holders(runtime) or [NAMES[0]])[-1])
        self.run(15)
