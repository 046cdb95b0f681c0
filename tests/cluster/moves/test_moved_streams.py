"""
Event streams in a cluster: the session of a stream is where its client comes back.
"""

from pathlib import Path

import pytest

from msgnode.cluster.member_requests import MemberRequests
from msgnode.service.cluster_relay import ClusterRelay
from tests.support.cluster_durable import NAMES, TOPIC, DurableMember, DurableWorld
from tests.support.event_reader import EventReader
from tests.support.network import Network

A, B, C = NAMES
NEWS = TOPIC.format("news")
STEP_SECONDS = 0.05


class World(DurableWorld):
    """
    Nodes with listeners, a reader of events, and a source at the third node.
    """

    def __init__(self, directory: Path) -> None:
        self.networks: dict[str, Network] = {}
        super().__init__(directory)
        self.source = self.senders[C]
        self.source.connect(C)
        self.run(0.5)
        self.published_ids: list[int] = []
        self.reader = EventReader(self.networks[A], NEWS)
        self.got: list[int] = []

    def made(self, name: str) -> DurableMember:
        member = super().made(name)
        network = self.networks[name] = Network(member.node)
        network.listener("web")  # makes the resources
        channel = member.channels.make(b"r")
        channel.listener = requests = MemberRequests(channel, member.clock)
        directory, up = member.directory, member.members.up
        ClusterRelay(member.node, member.channels, requests, up, list, directory, member.clock)
        return member

    def turn(self, seconds: float = 0.5) -> None:
        """
        Let nodes and clients move for so long.
        """
        for _ in range(round(seconds / STEP_SECONDS)):
            for network in self.networks.values():
                network.pump()
            self.run(STEP_SECONDS)

    def connect(self, name: str) -> None:
        self.reader.network = self.networks[name]
        self.reader.connect()
        self.turn()

    def lose(self) -> None:
        """
        The connection of the reader breaks; what has come was read.
        """
        self.read()
        self.reader.client.transport.abortConnection()
        self.turn()

    def read(self) -> list[str]:
        """
        Read what has come; the names of events that are no messages.
        """
        events = self.reader.take()
        self.got += [event.data["id"] for event in events if event.name == "message"]
        return [event.name for event in events if event.name != "message"]

    def tell(self, number: int = 3) -> None:
        for _ in range(number):
            self.published_ids.append(len(self.published_ids) + 1)
            self.source.send(id=self.published_ids[-1], type="update", to=NEWS)
        self.turn()

    def streams(self) -> dict[str, int]:
        """
        The sessions without a name, by node.
        """
        return {
            name: sum("anonymous" in session.runtime for session in member.node.sessions)
            for name, member in self.members.items()
        }


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_stream_goes_on_at_another_node(world: World) -> None:
    """
    A stream that comes back at another node gets what was published before, meanwhile and after, in order and
    once; its session is there.
    """
    world.connect(A)
    world.tell()
    world.lose()
    world.tell()

    world.connect(B)
    world.tell()

    assert world.read() == ["session"]
    assert world.got == world.published_ids
    assert world.streams() == {A: 0, B: 1, C: 0}


def test_stream_goes_to_and_fro(world: World) -> None:
    """
    So does one that comes to each node in turn while its earlier connection is still open.
    """
    for name in (A, B, C, B, A):
        world.connect(name)
        world.tell()
        world.read()

    assert world.got == world.published_ids
    assert world.streams() == {A: 1, B: 0, C: 0}
