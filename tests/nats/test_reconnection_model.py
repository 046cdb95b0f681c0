"""
Any order of publications, subscriptions, losses and pauses: what each server gets is as it should be.
"""

import re

from hypothesis import given
from hypothesis import strategies as st

from msgnode.nats.errors import BufferFull
from msgnode.nats.subscriptions import Subscription
from tests.support.nats_network import NatsCase, ServerEnd

STEPS = st.sampled_from(
    ["publish", "publish", "subscribe", "unsubscribe", "lose", "accept", "pause", "resume", "turn"]
)
COMMAND = re.compile(rb"(CONNECT|PING|PONG|SUB|UNSUB|PUB)(?: ([^\r]*))?\r\n(?:(?<=\r\n)n(\d+)\r\n)?")


class World(NatsCase):
    """
    A client with a small buffer, and all that was published and subscribed.
    """

    def begin(self) -> None:
        self.setUp()
        self.client = self.make(max_pending_bytes=200)
        self.client.connect(retry=True).addErrback(lambda why: None)
        self.published: list[int] = []
        self.subscribed: dict[int, Subscription] = {}
        self.number = 0

    def step(self, name: str) -> None:
        self.number += 1
        end = self.network.newest
        if name == "publish":
            try:
                self.client.publish("p", b"n%d" % self.number)
                self.published.append(self.number)
            except BufferFull:
                pass
        elif name == "subscribe":
            self.subscribed[self.number] = self.client.subscribe(f"s{self.number}", print)
        elif name == "unsubscribe" and self.subscribed:
            self.subscribed.pop(min(self.subscribed)).unsubscribe()
        elif name == "lose" and not end.is_closed:
            end.lose()
        elif name == "accept" and not end.is_closed and self.client.server is None:
            end.send(b'INFO {"headers": true}\r\nPONG\r\n')
        elif name in ("pause", "resume") and end.transport.producer is not None:
            getattr(end.transport.producer, f"{name}Producing")()
        elif name == "turn":
            self.turn(40)

    def finish(self) -> None:
        """
        Let all that waits leave: the newest server accepts the client and reads.
        """
        while self.client.server is None:
            self.step("turn" if self.network.newest.is_closed else "accept")
        self.step("resume")
        self.turn()


def commands_of(end: ServerEnd) -> list[tuple[bytes, bytes, bytes]]:
    """
    The commands that a server got: verb, arguments, payload. All of them are whole.
    """
    data, found, at = end.transport.value(), [], 0
    while at < len(data):
        match = COMMAND.match(data, at)
        assert match is not None, data[at:]
        found.append((match[1], match[2] or b"", match[3] or b""))
        at = match.end()
    return found


@given(st.lists(STEPS, max_size=40))
def test_what_servers_get(steps: list[str]) -> None:
    """
    Each publication that was not refused is written once, in order, and behind the subscriptions of its time.
    """
    world = World("begin")
    world.begin()
    for name in steps:
        world.step(name)
    world.finish()
    written: list[int] = []
    hears: set[bytes] = set()
    for end in world.network.ends:
        hears = set()
        for verb, arguments, payload in commands_of(end):
            if verb == b"PUB":
                written.append(int(payload))
            elif verb == b"SUB":
                sid = arguments.split()[-1]
                assert sid not in hears, "it was subscribed twice on one connection"
                hears.add(sid)
            elif verb == b"UNSUB":
                hears.discard(arguments)
    standing = {each.sid for each in world.subscribed.values()}
    world.client.close()
    world.turn()

    assert written == world.published
    assert hears == standing
    assert world.clock.getDelayedCalls() == []


@given(st.lists(STEPS, max_size=30))
def test_subscriptions_come_first(steps: list[str]) -> None:
    """
    On a new connection no publication is written before the subscriptions that stand when it begins.
    """
    world = World("begin")
    world.begin()
    for name in steps:
        was_connected, standing = world.client.server, {each.sid for each in world.subscribed.values()}
        world.step(name)
        if was_connected is None and world.client.server is not None:
            first = [verb for verb, _, _ in commands_of(world.network.newest) if verb in (b"SUB", b"PUB")]
            assert first[: len(standing)] == [b"SUB"] * len(standing)
    world.client.close()
