"""
Members of a cluster in memory: links with a bounded buffer that are cut and restored, nodes that are killed,
stopped, and started again.
"""

from collections import deque
from itertools import permutations

from twisted.internet.task import Clock

from msgnode.cluster.membership import MembersListener

DELAY = 0.001


class MemoryMembers:
    """
    The `Members` of one start of one node, in a `MemoryCluster`.
    """

    def __init__(self, cluster, node, epoch, max_payload):
        self.cluster = cluster
        self.node = node
        self.epoch = epoch
        self.max_payload = max_payload
        self.listener: MembersListener | None = None
        self.sent: list[tuple[str, bytes]] = []

    def up(self):
        return [to for (of, to) in self.cluster.wires if of == self.node]

    def send(self, node, payload):
        assert len(payload) <= self.max_payload
        return self.cluster.send(self, node, payload)


class Wire:
    """
    One direction of a link: payloads under way, in order.
    """

    def __init__(self):
        self.payloads = deque()
        self.refused = False


class MemoryCluster:
    """
    Nodes by name and the links between them. Nothing is delivered within a call.
    """

    def __init__(self, max_payload=1024 * 1024, capacity=1_000_000, clock=None):
        self.clock = clock or Clock()
        self.max_payload = max_payload
        self.capacity = capacity  # payloads under way in one direction
        self.nodes: dict[str, MemoryMembers] = {}
        self.wires: dict[tuple[str, str], Wire] = {}
        self.cut_links: set[frozenset] = set()
        self.stopped: set[str] = set()
        self.one_way: set[tuple[str, str]] = set()  # links, from and to, on which nothing arrives any more
        self.starts = 0

    def start(self, node, forgets=False):
        """
        The members of a new start of the node; set its `listener`, then call `connect`. `forgets`: it lost
        its state directory.
        """
        self.starts += 1
        instance = node.encode() + (bytes([self.starts]) if forgets else b"")
        self.nodes[node] = MemoryMembers(self, node, (instance, self.starts), self.max_payload)
        return self.nodes[node]

    def kill(self, node):
        for other in list(self.nodes):
            self._down(node, other)
        del self.nodes[node]
        self.stopped.discard(node)

    def stop(self, node):
        """
        Stop the process as SIGSTOP does: it takes nothing that is sent to it. What it holds for a clock is
        the caller's matter.
        """
        self.stopped.add(node)

    def resume(self, node):
        self.stopped.discard(node)
        for of, to in self.wires:
            if to == node:
                self._deliver_later(of, to)

    def connect(self):
        """
        Bring up all links that are not cut.
        """
        for one, other in permutations(self.nodes, 2):
            if frozenset((one, other)) not in self.cut_links and (one, other) not in self.wires:
                self.wires[one, other] = Wire()
                self.nodes[one].listener.member_up(other, self.nodes[other].epoch)

    def cut(self, one, other):
        self.cut_links.add(frozenset((one, other)))
        self._down(one, other)

    def restore(self, one, other):
        self.cut_links.discard(frozenset((one, other)))
        self.connect()

    def lose_one(self, one, other):
        """
        Lose the oldest payload under way, which no link may do.
        """
        wire = self.wires.get((one, other))
        if wire is not None and wire.payloads:
            wire.payloads.popleft()

    def _down(self, one, other):
        for of, to in ((one, other), (other, one)):
            if self.wires.pop((of, to), None) is not None and of in self.nodes:
                self.nodes[of].listener.member_down(to)

    def send(self, members, to, payload):
        if self.nodes.get(members.node) is not members:
            return False  # an earlier start
        wire = self.wires.get((members.node, to))
        if wire is None:
            return False
        if len(wire.payloads) >= self.capacity:
            wire.refused = True
            return False
        wire.payloads.append(payload)
        members.sent.append((to, payload))
        self._deliver_later(members.node, to)
        return True

    def _deliver_later(self, of, to):
        wire = self.wires[of, to]
        self.clock.callLater(DELAY, self._deliver, wire, of, to)

    def _deliver(self, wire, of, to):
        if self.wires.get((of, to)) is not wire or to in self.stopped or not wire.payloads:
            return
        if (of, to) in self.one_way:
            return
        self.nodes[to].listener.member_heard(of, wire.payloads.popleft())
        if wire.payloads:
            self._deliver_later(of, to)
        if wire.refused and len(wire.payloads) <= self.capacity // 2:
            wire.refused = False
            self.nodes[of].listener.has_room(to)

    def run(self, seconds):
        """
        Let the time pass: in steps shorter than a turn of a conversation at first, then in longer ones.
        """
        short = min(seconds, 1)
        self.clock.pump([0.002] * round(short / 0.002))
        self.clock.pump([0.05] * round((seconds - short) / 0.05))
