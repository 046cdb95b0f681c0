"""
Streams against a model: a network that loses, doubles, delays and cuts, nodes that are killed, disks that
fill up.

Whatever happens, each message that was taken is delivered once and in order within its lane, or its outcome
is known, and in the end there is silence.
"""

import random
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from msgnode.links.stream.common import StreamLimits
from msgnode.links.stream.streams import NoRoom
from msgnode.storage import spool
from tests.support.fuzz import TIMES
from tests.support.links_stream import FakeNet, StreamNode, Weather

LIMITS = StreamLimits(
    queue_messages=200,
    queue_bytes=2_000_000,
    message_bytes=100_000,
    memory_bytes=1_000_000,
    receive_bytes=400_000,
    pending=20,
    piece_bytes=4000,
)
LONG = 10**6  # milliseconds, more than a course of events lasts
TTLS = (500, 5000, LONG, LONG, LONG, LONG)
# Each node may fill its queues to each of three others, its budget for what it receives, and its listener.
MOST_BYTES = 3 * LIMITS.queue_bytes + LIMITS.receive_bytes + LIMITS.pending_bytes


class Driver:
    """
    A random course of events with two to four nodes, each with a disk or not.
    """

    def __init__(self, seed: int, directory: Path) -> None:
        self.random = random.Random(seed)
        self.net = FakeNet(seed)
        count = self.random.randint(2, 4)
        self.nodes = [
            StreamNode(
                self.net,
                f"mn://{letter}.example/1",
                directory / letter if self.random.random() < 0.6 else None,
                limits=LIMITS,
                segment_bytes=self.random.choice((100_000, 64_000_000)),
                slack=200_000,
            )
            for letter in "abcd"[:count]
        ]
        self.forgetful: set[str] = set()  # nodes that have lost their memory
        self.cancelled: set[tuple[str, str]] = set()  # pairs whose stream was begun again, or forgotten
        self.heirs: dict[tuple[str, str], set[str]] = {}  # nodes for which a source gave another one up
        self.to: dict[int, str] = {}  # the node that each message was for, by its number
        self.ttl: dict[int, int] = {}  # the time to live of each in milliseconds, by its number
        self.killed: set[str] = set()
        self.number = 0

    # -- events -------------------------------------------------------------------

    def step(self) -> None:
        events = {
            self.send: 12,
            self.burst: 2,
            self.send_several: 4,
            self.wait: 12,
            self.change_weather: 2,
            self.kill: 1,
            self.cut: 1,
            self.change_route: 1,
            self.fill_disk: 1,
            self.fill_link: 1,
            self.be_slow: 1,
            self.end: 0.2,
            self.replace: 0.5,
        }
        self.random.choices(list(events), list(events.values()))[0]()
        for node in self.nodes:
            assert node.streams.memory_bytes <= MOST_BYTES

    def any_node(self) -> StreamNode:
        return self.random.choice(self.nodes)

    def any_pair(self) -> tuple[StreamNode, StreamNode]:
        one, other = self.random.sample(self.nodes, 2)
        return one, other

    def send(self) -> None:
        source, destination = self.any_pair()
        self.number += 1
        size = self.random.choice((0, 10, 10, 10, 2000, 30_000))
        payload = b"%d " % self.number + self.random.randbytes(size)
        try:
            source.send(
                destination.name,
                payload,
                self.random.choice((1, 5, 5, 7)),
                if_replaced=self.random.choice(("wait", "move", "move", "end")),
                ttl_millis=(ttl := self.random.choice(TTLS)),
            )
            self.to[self.number], self.ttl[self.number] = destination.name, ttl
        except NoRoom:
            assert len(source.streams.peers[destination.name].outgoing) > 40

    def burst(self) -> None:
        for _ in range(self.random.randint(1, 60)):
            self.send()

    def send_several(self) -> None:
        source, destination = self.any_pair()
        numbers = range(self.number + 1, self.number + 1 + self.random.randint(2, 12))
        payloads = [
            b"%d " % each + self.random.randbytes(self.random.choice((0, 10, 900))) for each in numbers
        ]
        try:
            source.send_several(
                destination.name,
                payloads,
                self.random.choice((1, 5, 5, 7)),
                if_replaced=self.random.choice(("wait", "move", "move", "end")),
                ttl_millis=(ttl := self.random.choice(TTLS)),
            )
        except NoRoom:
            return
        self.number = numbers[-1]
        self.to |= dict.fromkeys(numbers, destination.name)
        self.ttl |= dict.fromkeys(numbers, ttl)

    def wait(self) -> None:
        self.net.run(self.random.choice((0.01, 0.1, 1, 5)), 0.01 + 0.1 * self.random.random())

    def change_weather(self) -> None:
        delay = self.random.choice(((0, 0), (0.01, 0.02), (0, 0.5), (0, 3)))
        self.net.weather = Weather(self.random.choice((0, 0.05, 0.5)), self.random.choice((0, 0.2)), delay)

    def kill(self) -> None:
        node = self.any_node()
        if node.directory is None:
            self.forgetful.add(node.name)
        self.killed.add(node.name)
        node.restart()

    def cut(self) -> None:
        one, other = self.any_pair()
        up = not self.net.has_route(one.name, other.name)
        self.net.set_route(one.name, other.name, up)

    def change_route(self) -> None:
        one, other = self.any_pair()
        one.streams.route_changed(other.name)

    def fill_disk(self) -> None:
        node = self.any_node()
        node.disk.full = not node.disk.full

    def fill_link(self) -> None:
        self.net.full ^= {self.any_node().name}
        for node in self.nodes:
            if node.name not in self.net.full:
                node.streams.has_room()

    def be_slow(self) -> None:
        node = self.any_node()
        node.slow = not node.slow
        node.finish()

    def end(self) -> None:
        one, other = self.any_pair()
        self.cancelled.add((one.name, other.name))
        if self.random.random() < 0.5:
            one.streams.begin_epoch(other.name)
        else:
            one.streams.forget(other.name)

    def replace(self) -> None:
        """
        Replace one node by another, never there and back: what moves twice may overtake.
        """
        if len(self.nodes) < 3:
            return
        source, one, other = self.random.sample(self.nodes, 3)
        took = {heir for (giver, _), heirs in self.heirs.items() if giver == source.name for heir in heirs}
        if one.name not in took and (source.name, other.name) not in self.heirs:
            self.heirs.setdefault((source.name, one.name), set()).add(other.name)
            self.cancelled.add((source.name, one.name))
            source.streams.replace(one.name, other.name)

    # -- the end --------------------------------------------------------------------

    def settle(self) -> None:
        """
        All is well again, for as long as the longest timeouts take.
        """
        self.net.weather = Weather()
        self.net.full.clear()
        for node in self.nodes:
            node.disk.full = node.slow = False
            node.finish()
        for one in self.nodes:
            for other in self.nodes:
                if one is not other and not self.net.has_route(one.name, other.name):
                    self.net.set_route(one.name, other.name, True)
        for _ in range(80):
            self.net.run(10, 0.25)
            for node in self.nodes:
                node.finish()
            known = all(
                outcomes or node.sent[identifier].is_quiet
                for node in self.nodes
                for identifier, outcomes in node.outcomes.items()
            )
            if known and not any(node.streams.memory_bytes for node in self.nodes):
                break

    def check(self) -> None:
        by_name = {node.name: node for node in self.nodes}
        for node in self.nodes:
            for identifier, (to, lane, payload, is_quiet) in node.sent.items():
                outcomes = node.reasons(identifier) or ["acknowledged"] * is_quiet
                assert len(outcomes) == 1, (node.name, to, lane, payload[:10], outcomes)
                possible = {to, *self.heirs.get((node.name, to), ())}
                times = sum(
                    (each.got if each.directory else each.ever).count((node.name, lane, payload))
                    for each in map(by_name.__getitem__, possible)
                )
                what = (node.name, to, payload[:10], outcomes, times)
                if outcomes == ["acknowledged"]:
                    assert times == 1, what
                elif outcomes == ["stale"]:
                    assert times == 0, what
                else:
                    assert times <= 1, what
                    in_doubt = possible & self.forgetful or any(
                        (node.name, each) in self.cancelled for each in possible
                    )
                    # What a node that was killed had sent ends a minute after its time to live.
                    is_short = self.ttl[int(payload.split(b" ", 1)[0])] < LONG
                    in_doubt = in_doubt or (is_short and node.name in self.killed)
                    assert in_doubt and outcomes[0] in ("in-doubt", "no-path"), what
            assert node.streams.memory_bytes == 0
        for node in self.nodes:
            self.check_order(node.got if node.directory else node.ever)

    def check_order(self, got: list[tuple[str, int, bytes]]) -> None:
        assert not [each for each, times in Counter(got).items() if times > 1]
        last: dict[tuple[str, int, str], int] = {}
        for source, lane, payload in got:
            number = int(payload.split(b" ", 1)[0])
            stream = source, lane, self.to[number]
            assert number > last.get(stream, 0), (stream, number)
            last[stream] = number

    def check_silence(self) -> None:
        before = len(self.net.sent)
        self.net.run(300, 1)
        assert len(self.net.sent) == before


@pytest.mark.parametrize("seed", range(20 * TIMES))
def test_streams_deliver_once_in_order_or_say_what_became_of_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Through loss, doubling, reordering, cuts, full disks and restarts nothing is lost in silence or doubled.
    """
    monkeypatch.setattr(spool, "MAX_BUFFERED_BYTES", 100_000)
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
        driver = Driver(seed, Path(directory))
        for _ in range(150):
            driver.step()
        driver.settle()
        driver.check()
        driver.check_silence()
        for node in driver.nodes:
            node.kill()
