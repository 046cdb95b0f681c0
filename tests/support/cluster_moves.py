"""
Nodes of a cluster in memory that hold sessions, with a directory, moves, and a disk that survives kills; a
client that resumes, and sources that send to it from every node.
"""

import pickle
from dataclasses import dataclass, field
from typing import Any

import msgspec
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from msgnode.cluster.channels import Channels
from msgnode.cluster.directory.directory import ReplicatedDirectory
from msgnode.cluster.moves.moves import MAX_MOVES, Moves
from msgnode.cluster.moves.session_holder import Release
from msgnode.cluster.moves.takes import REFUSED, TAKE_SECONDS, TAKEN
from msgnode.structures.time_slices import Slices
from tests.support.cluster_members import MemoryCluster

A, B, C = "mn://example.com/a", "mn://example.com/b", "mn://example.com/c"
NAMES = (A, B, C)
HASH = bytes(16)
COMMIT_SECONDS = 0.002
RESEND_SECONDS = 1.0
MAX_HOPS = 4


@dataclass
class Item:
    """
    A message for a session: its id, and the number that it was sent with in an epoch.
    """

    id: str
    epoch: str = ""
    number: int = 0


@dataclass
class Held:
    """
    A session as it is on disk.
    """

    generation: int
    epoch: str
    last: int = 0
    out: list[Item] = field(default_factory=list)
    queue: list[Item] = field(default_factory=list)
    direct: list[Item] = field(default_factory=list)  # waits until the handovers have ended
    arriving: set[Any] = field(default_factory=set)
    claims: dict[str, int] = field(default_factory=dict)
    bindings: set[str] = field(default_factory=set)

    def drop(self, epoch, received):
        """
        The client has so many messages of that epoch.
        """
        for items in (self.out, self.queue, self.direct):
            items[:] = [item for item in items if item.epoch != epoch or item.number > received]


@dataclass
class Leaving:
    """
    A released session, and its messages by key.
    """

    release: Release
    held: Held
    items: list[tuple[int, Item]] = field(default_factory=list)
    key: int = 0
    sealed: bool = False

    def add(self, items):
        for item in items:
            self.key += 1
            self.items.append((self.key, item))


@dataclass
class Disk:
    """
    What a node remembers over a kill.
    """

    sessions: dict[str, Held] = field(default_factory=dict)
    leaving: dict[bytes, Leaving] = field(default_factory=dict)
    progress: dict[Any, tuple[int, bool]] = field(default_factory=dict)
    arrived: dict[Any, str] = field(default_factory=dict)  # names by handover
    seen: set[str] = field(default_factory=set)
    unacked: dict[str, list[tuple[str, str]]] = field(default_factory=dict)  # (id, target) by session
    waiting: dict[str, list[str]] = field(default_factory=dict)
    starts: int = 0


class World:
    """
    The nodes, their disks, and the client.
    """

    def __init__(self, capacity=1_000_000, max_payload=30_000):
        self.cluster = MemoryCluster(capacity=capacity, max_payload=max_payload)
        self.disks = {name: pickle.dumps(Disk()) for name in NAMES}
        self.nodes: dict[str, MoveNode] = {}
        self.stopped: set[str] = set()
        self.clients: dict[str, ResumingClient] = {}
        self.published: dict[str, list[str]] = {}  # ids by session
        self.full_disks: set[str] = set()
        self.commit_seconds: dict[str, float] = {}  # of slow disks
        self.excused = False  # the order is not promised: a source could not wait
        for name in NAMES:
            self.nodes[name] = MoveNode(self, name)
        self.cluster.connect()
        self.run(0.2)

    def run(self, seconds):
        short = min(seconds, 1)
        steps = [0.002] * round(short / 0.002) + [0.05] * round((seconds - short) / 0.05)
        for step in steps:
            self.cluster.clock.advance(step)
            for name, node in list(self.nodes.items()):
                if name not in self.stopped:
                    node.clock.advance(self.cluster.clock.seconds() - node.clock.seconds())

    def kill(self, name):
        if name in self.nodes:
            self.stopped.discard(name)
            self.nodes.pop(name).die()
            self.cluster.kill(name)

    def start(self, name):
        if name not in self.nodes:
            self.nodes[name] = MoveNode(self, name)
            self.cluster.connect()

    def stop(self, name):
        if name in self.nodes:
            self.stopped.add(name)
            self.cluster.stop(name)

    def resume(self, name):
        if name in self.stopped:
            self.stopped.discard(name)
            self.cluster.resume(name)

    def publish(self, name, session, count=1, size=0):
        """
        A source at that node sends messages, longer by `size`; they are on its disk when this returns.
        """
        node = self.nodes.get(name)
        if node is None:
            return
        ids = self.published.setdefault(session, [])
        for _ in range(count):
            ids.append(f"{name[-1]}{len(ids)}/{session}{'x' * size}")
            node.now.waiting.setdefault(session, []).append(ids[-1])
        node.write_now()
        node.pump()

    def client(self, session):
        if session not in self.clients:
            self.clients[session] = ResumingClient(self, session)
        return self.clients[session]

    def holders(self, session):
        return [name for name, node in self.nodes.items() if session in node.now.sessions]


class ResumingClient:
    """
    A client that counts what it has, and resumes with its epoch and count.
    """

    def __init__(self, world, session):
        self.world = world
        self.session = session
        self.connection = 0
        self.node = ""
        self.is_open = False
        self.epoch = ""
        self.received = 0
        self.got: list[str] = []
        self.faults: list[str] = []
        self.recovered: list[bool] = []
        self.acks = True

    def connect(self, name):
        self.connection += 1
        self.node = name
        self.is_open = False
        node = self.world.nodes.get(name)
        if node is not None and name not in self.world.stopped:
            node.open(self.session, self.connection, self.epoch, self.received)
            node.clock.advance(0)

    def answered(self, connection, epoch, recovered):
        if connection != self.connection:
            return
        self.is_open = True
        self.recovered.append(recovered)
        if epoch != self.epoch:
            self.epoch, self.received = epoch, 0

    def closed(self, connection):
        if connection == self.connection:
            self.is_open = False

    def deliver(self, node, connection, item):
        if connection != self.connection or not self.is_open:
            return
        if item.epoch != self.epoch or item.number > self.received + 1:
            self.faults.append(f"{item} after {self.received} of {self.epoch}")
        elif item.number == self.received + 1:
            self.received += 1
            self.got.append(item.id)
            if self.acks:
                node.acknowledge(self.session, connection, self.epoch, self.received)


class MoveNode:
    """
    One start of a node: a SessionHolder, and a SessionDirectory. `now` is what it has in memory.
    """

    def __init__(self, world, name):
        self.world = world
        self.name = name
        self.waiters: list[Deferred[None]] = []
        self.now: Disk = pickle.loads(world.disks[name])
        self.now.starts += 1
        self.write_now()
        self.alive = True
        self.clock = Clock()
        self.clock.advance(world.cluster.clock.seconds())
        self.connections: dict[str, int] = {}
        self.forwards: dict[str, str] = {}  # who waits for the acknowledgement of a message
        self.unsent: set[str] = set()  # sessions whose messages leave with the next commit
        members = world.cluster.start(name)
        channels = Channels(members)
        members.listener = channels
        self.channel = channels.make(b"x")
        self.channel.listener = self
        directory, moves = channels.make(b"d"), channels.make(b"m")
        self.directory = ReplicatedDirectory(
            directory, lambda address: address in self.now.sessions, self.clock, Slices(self.clock)
        )
        directory.listener = self.directory
        self.moves = Moves(moves, self, self, self.clock)
        moves.listener = self.moves
        self.directory.session_added = self.moves.heard_of
        self.directory.session_shared = self.moves.compare
        self.directory.session_absent = self.moves.newer_holder_is_absent
        for session, held in self.now.sessions.items():
            self.directory.session_bound(session, HASH, held.generation)
        for leaving in self.now.leaving.values():
            if leaving.release.name not in self.now.sessions:
                self.directory.session_bound(leaving.release.name, HASH, leaving.release.generation - 1)
        self.directory.start()
        self.moves.start()
        self.clock.callLater(RESEND_SECONDS, self.resend)

    def die(self):
        self.alive = False
        self.directory.stop()
        self.moves.stop()

    # -- the disk ------------------------------------------------------------------

    def write_now(self):
        self.world.disks[self.name] = pickle.dumps(self.now)

    def commit(self):
        """
        Write everything with the next group commit; what comes before that is part of it.
        """
        done: Deferred[None] = Deferred()
        self.waiters.append(done)
        if len(self.waiters) == 1:
            self.clock.callLater(self.world.commit_seconds.get(self.name, COMMIT_SECONDS), self.committed)
        return done

    def committed(self):
        waiters, self.waiters = self.waiters, []
        if not self.alive:
            return
        is_full = self.name in self.world.full_disks
        if not is_full:
            self.write_now()
        for done in waiters:
            if is_full:
                done.errback(OSError("no space"))
            else:
                done.callback(None)

    # -- the client ----------------------------------------------------------------

    def open(self, session, connection, epoch, received):
        if session in self.now.sessions:
            self.attach(session, connection, epoch, received)
            return
        asked = self.directory.ask(session, TAKE_SECONDS)
        asked.addCallback(self.look_for, session, connection, epoch, received)

    def look_for(self, found, session, connection, epoch, received):
        if not self.alive:
            return
        taken = self.moves.take(session, b"token", found or ())
        if taken is None:
            self.begin(session, 1, connection, epoch, received)
        else:
            taken.addCallback(self.taken, session, connection, epoch, received)

    def taken(self, outcome, session, connection, epoch, received):
        if not self.alive or outcome.kind == REFUSED:
            return
        if outcome.kind == TAKEN or session in self.now.sessions:
            if session in self.now.sessions:
                self.attach(session, connection, epoch, received)
        else:
            self.begin(session, outcome.generation, connection, epoch, received)

    def begin(self, session, generation, connection, epoch, received):
        if session not in self.now.sessions:
            generation = max([generation, *[known + 1 for known, _ in self.other_holders(session)]])
            self.now.sessions[session] = Held(generation, "", bindings={f"{session}/of/{self.name[-1]}"})
            self.directory.session_bound(session, HASH, generation)
        self.attach(session, connection, epoch, received)
        self.moves.compare(session)

    def attach(self, session, connection, epoch, received):
        held = self.now.sessions[session]
        self.connections[session] = connection
        recovered = epoch == held.epoch and bool(epoch)
        if epoch:
            held.drop(epoch, received)
        if not recovered:
            if epoch:
                held.claims[epoch] = received
            held.queue[:0] = held.out
            held.out.clear()
            held.epoch = f"{self.name[-1]}{self.now.starts}.{connection}"
            held.last = 0

        def answer(done):
            if self.connections.get(session) == connection and session in self.now.sessions:
                self.world.clients[session].answered(connection, held.epoch, recovered)
                for item in list(held.out):
                    self.world.clients[session].deliver(self, connection, item)
                self.flush(session)

        self.commit().addCallback(answer)

    def flush(self, session):
        """
        Number what is queued, write it, and send it.
        """
        held = self.now.sessions.get(session)
        if held is None or session not in self.connections or not held.epoch:
            return
        if not held.arriving:
            held.queue += held.direct
            held.direct.clear()
        fresh = []
        for item in held.queue:
            held.last += 1
            fresh.append(Item(item.id, held.epoch, held.last))
        held.queue.clear()
        held.out += fresh
        self.send_written(session, fresh)

    def send_written(self, session, items):
        if not items:
            return
        connection = self.connections.get(session)

        def send(done):
            for item in items:
                if connection is not None and self.connections.get(session) == connection:
                    self.world.clients[session].deliver(self, connection, item)

        self.commit().addCallback(send)

    def acknowledge(self, session, connection, epoch, received):
        held = self.now.sessions.get(session)
        if held is not None and self.connections.get(session) == connection and held.epoch == epoch:
            held.out = [item for item in held.out if item.number > received]

    # -- the directory of sessions -------------------------------------------------

    def other_holders(self, name):
        return [(entry.generation, node) for node, entry in self.directory.sessions(name)]

    def held(self, name, generation):
        self.directory.session_bound(name, HASH, generation)

    def let_go(self, name):
        self.directory.session_unbound(name)

    # -- the holder of sessions ----------------------------------------------------

    def generation(self, name):
        held = self.now.sessions.get(name)
        return None if held is None else held.generation

    def refusal(self, name, claim):
        return None if claim == b"token" else (4403, "token")

    def outrank(self, name, generation):
        return None

    def redirect(self, release, other):
        raise NotImplementedError

    def take_back(self, release):
        raise NotImplementedError

    def release(self, release):
        held = self.now.sessions.pop(release.name)
        connection = self.connections.pop(release.name, None)
        if connection is not None:
            self.world.clients[release.name].closed(connection)
        leaving = self.now.leaving[release.id] = Leaving(release, held)
        leaving.add(held.out + held.queue)

        def keep(why):
            del self.now.leaving[release.id]
            self.now.sessions[release.name] = held
            return why

        return self.commit().addErrback(keep)

    def releases(self):
        return [leaving.release for leaving in self.now.leaving.values()]

    def state(self, release, claims):
        leaving = self.now.leaving[release.id]
        held = leaving.held
        for epoch, received in claims:
            held.drop(epoch, received)
            leaving.items = [
                (key, item) for key, item in leaving.items if item.epoch != epoch or item.number > received
            ]
        return msgspec.json.encode(
            {
                "epoch": held.epoch,
                "last": held.last,
                "claims": held.claims,
                "bindings": sorted(held.bindings),
            }
        )

    def messages(self, release, after, most_bytes):
        leaving = self.now.leaving[release.id]
        found = [(key, item) for key, item in leaving.items if key > after][:5]
        return [(key, msgspec.json.encode([item.id, item.epoch, item.number])) for key, item in found]

    def handed_over(self, release, key):
        leaving = self.now.leaving[release.id]
        leaving.items = [each for each in leaving.items if each[0] > key]

    def seal(self, release):
        leaving = self.now.leaving[release.id]
        if leaving.held.arriving:
            return False
        if leaving.held.direct:
            leaving.add(leaving.held.direct)
            leaving.held.direct = []
        if leaving.items:
            self.clock.callLater(0, self.moves.more, release.name)
            return False
        leaving.sealed = True
        return True

    def is_late(self, release):
        return False

    def discard(self, release):
        del self.now.leaving[release.id]
        self.write_now()

    def progress(self, of, id):
        return self.now.progress.get((of, id))

    def claims(self, name):
        held = self.now.sessions.get(name)
        return list(held.claims.items()) if held is not None else []

    def import_state(self, of, release, state):
        found = msgspec.json.decode(state)
        name = release.name
        self.now.progress[of, release.id] = (0, False)
        self.now.arrived[of, release.id] = name
        place = self.place(name, release.generation)
        if place is None:
            place = self.now.sessions[name] = Held(release.generation, found["epoch"], found["last"])
        place.generation = max(place.generation, release.generation)
        place.bindings |= set(found["bindings"])
        place.claims = found["claims"] | place.claims
        place.arriving.add((of, release.id))

        def forget(why):
            del self.now.progress[of, release.id]
            place.arriving.discard((of, release.id))
            return why

        return self.commit().addErrback(forget)

    def place(self, name, generation=0):
        """
        The session, or the newest release of it that still accepts messages, of a higher generation.
        """
        if name in self.now.sessions:
            return self.now.sessions[name]
        leaving = self.open_leaving(name)
        return leaving.held if leaving is not None and leaving.release.generation > generation else None

    def import_messages(self, of, id, key, messages):
        name = self.now.arrived[of, id]
        items = [Item(*msgspec.json.decode(message)) for message in messages]
        self.now.seen |= {item.id for item in items}
        self.now.progress[of, id] = (key, False)
        held = self.now.sessions.get(name)
        if held is None or (of, id) not in held.arriving:
            leaving = next(each for each in self.now.leaving.values() if (of, id) in each.held.arriving)
            leaving.add(items)
            return self.commit().addCallback(lambda done: self.moves.more(name))
        fresh = []
        for item in items:
            received = held.claims.get(item.epoch, 0)
            if item.number and item.number <= received:
                continue
            if item.number and item.epoch == held.epoch:
                held.out.append(item)
                fresh.append(item)
            else:
                held.queue.append(item)
        self.send_written(name, fresh)
        return self.commit().addCallback(lambda done: self.flush(name))

    def open_leaving(self, name):
        """
        The newest release of the session that still accepts messages, or None.
        """
        return max(
            (each for each in self.now.leaving.values() if each.release.name == name and not each.sealed),
            key=lambda each: each.release.generation,
            default=None,
        )

    def wait_no_more(self, of, id):
        return succeed(None)

    def finish(self, of, id):
        name = self.now.arrived[of, id]
        self.now.progress[of, id] = (self.now.progress[of, id][0], True)
        for held in (
            *self.now.sessions.values(),
            *[leaving.held for leaving in self.now.leaving.values()],
        ):
            held.arriving.discard((of, id))
        self.moves.more(name)

        def written(done):
            self.flush(name)
            self.moves.more(name)

        return self.commit().addCallback(written)

    # -- what the sources send -----------------------------------------------------

    def target(self, session):
        if session in self.now.sessions or self.place(session) is not None:
            return self.name
        found = self.other_holders(session)
        found += [
            (leaving.release.generation, leaving.release.to)
            for leaving in self.now.leaving.values()
            if leaving.release.name == session
        ]
        return max(found)[1] if found else None

    def pump(self):
        for session, waiting in list(self.now.waiting.items()):
            target = self.target(session)
            unacked = self.now.unacked.setdefault(session, [])
            if target is None or not waiting:
                continue
            others = {to for _, to in unacked if to != target}
            if any(to == self.name or to in self.channel.up() for to in others):
                continue  # the earlier holder has to acknowledge first
            self.world.excused |= bool(others)
            is_idle = not unacked
            unacked += [(id, target) for id in waiting]
            waiting.clear()
            if is_idle:
                self.give_first(session)

    def give_first(self, session):
        """
        One message of a source is under way, so that they arrive in order.
        """
        unacked = self.now.unacked[session]
        if unacked:
            self.give(unacked[0][0], session, unacked[0][1])

    def give(self, id, session, target, hops=0):
        if target == self.name:
            self.accept(id, session, self.name, hops)
        else:
            self.channel.send(target, msgspec.json.encode(["m", id, session, hops]))

    def resend(self):
        if not self.alive:
            return
        self.clock.callLater(RESEND_SECONDS, self.resend)
        for session in list(self.now.unacked):
            self.give_first(session)
        self.pump()

    def accept(self, id, session, of, hops):
        if id in self.now.seen:
            self.accepted(id, of)
            return
        held = self.now.sessions.get(session)
        place = self.place(session)
        if held is not None:
            (held.direct if held.arriving else held.queue).append(Item(id))
        elif place is not None:
            if place.arriving or place.direct:
                place.direct.append(Item(id))
            else:
                self.open_leaving(session).add([Item(id)])
        else:
            target = self.target(session)
            if target is not None and target != self.name and hops < MAX_HOPS:
                self.forwards[id] = of
                self.give(id, session, target, hops + 1)
            return
        self.now.seen.add(id)

        def written(done):
            self.accepted(id, of)
            self.flush(session)
            self.moves.more(session)

        self.commit().addCallback(written)

    def accepted(self, id, of):
        if of != self.name:
            self.channel.send(of, msgspec.json.encode(["a", id]))
        else:
            self.acked(id)

    def acked(self, id):
        for session, unacked in list(self.now.unacked.items()):
            if unacked and unacked[0][0] == id:
                del unacked[0]
                self.clock.callLater(0, self.give_first, session)
        of = self.forwards.pop(id, None)
        if of is not None:
            self.now.seen.add(id)
            self.accepted(id, of)
        self.pump()

    def member_up(self, node, epoch):
        pass

    def member_down(self, node):
        pass

    def has_room(self, node):
        pass

    def member_heard(self, node, payload):
        kind, id, *rest = msgspec.json.decode(payload)
        if kind == "m":
            self.accept(id, rest[0], node, rest[1])
        else:
            self.acked(id)


class QuickNode:
    """
    A node that holds sessions in memory (SessionHolder, SessionDirectory). Each has five messages.
    """

    def __init__(self, cluster, nodes, name, most=MAX_MOVES):
        self.nodes = nodes
        self.name = name
        self.sessions: dict[str, int] = {}
        self.leaving: dict[bytes, list[tuple[int, bytes]]] = {}
        self.arrived: dict[bytes, tuple[int, bool]] = {}
        self.received = 0
        members = cluster.start(name)
        self.moves = members.listener = Moves(members, self, self, cluster.clock, most=most)
        nodes[name] = self

    def other_holders(self, name):
        others = [node for node in self.nodes.values() if node is not self]
        return [(node.sessions[name], node.name) for node in others if name in node.sessions]

    def held(self, name, generation):
        pass

    def let_go(self, name):
        pass

    def generation(self, name):
        return self.sessions.get(name)

    def refusal(self, name, claim):
        return None

    def outrank(self, name, generation):
        return None

    def redirect(self, release, other):
        raise NotImplementedError

    def take_back(self, release):
        raise NotImplementedError

    def releases(self):
        return []

    def release(self, release):
        del self.sessions[release.name]
        self.leaving[release.id] = [(key, b"m" * 300) for key in range(1, 6)]
        return succeed(None)

    def state(self, release, claims):
        return b"s" * 1500

    def messages(self, release, after, most_bytes):
        return [each for each in self.leaving[release.id] if each[0] > after]

    def handed_over(self, release, key):
        self.leaving[release.id] = [each for each in self.leaving[release.id] if each[0] > key]

    def seal(self, release):
        return not self.leaving[release.id]

    def is_late(self, release):
        return False

    def discard(self, release):
        del self.leaving[release.id]

    def progress(self, of, id):
        return self.arrived.get(id)

    def claims(self, name):
        return []

    def import_state(self, of, release, state):
        self.arrived[release.id] = (0, False)
        self.sessions[release.name] = release.generation
        return succeed(None)

    def import_messages(self, of, id, key, messages):
        self.received += len(messages)
        self.arrived[id] = (key, False)
        return succeed(None)

    def wait_no_more(self, of, id):
        return succeed(None)

    def member_up(self, of, epoch):
        pass

    def member_down(self, of):
        pass

    def finish(self, of, id):
        self.arrived[id] = (self.arrived[id][0], True)
        return succeed(None)
