"""
Several users of the links to members.
"""

from msgnode.cluster.channels import Channels
from tests.support.cluster_members import MemoryCluster

A, B = "mn://example.com/a", "mn://example.com/b"


class Recorder:
    """
    A listener that remembers what it heard.
    """

    def __init__(self):
        self.events: list[tuple[object, ...]] = []

    def member_up(self, node, epoch):
        self.events.append(("up", node, epoch))

    def member_down(self, node):
        self.events.append(("down", node))

    def member_heard(self, node, payload):
        self.events.append(("heard", node, payload))

    def has_room(self, node):
        self.events.append(("room", node))


def pair(**options):
    """
    A cluster of two nodes with channels `x` and `y` each, and the channels and their listeners by node.
    """
    cluster = MemoryCluster(**options)
    made = {}
    for node in (A, B):
        members = cluster.start(node)
        members.listener = channels = Channels(members)
        made[node] = channels, channels.make(b"x"), channels.make(b"y")
        for channel in made[node][1:]:
            channel.listener = Recorder()
    cluster.connect()
    return cluster, made


def test_payload_is_heard_on_its_channel_only():
    """
    A payload arrives at the listener of the same channel, without the mark, and at no other.
    """
    cluster, made = pair()

    assert made[A][1].send(B, b"payload")
    cluster.run(0.1)

    assert made[B][1].listener.events[-1] == ("heard", A, b"payload")
    assert [event[0] for event in made[B][2].listener.events] == ["up"]


def test_channels_leave_room_for_their_mark():
    """
    The longest payload of a channel fits into one of the links.
    """
    _, made = pair(max_payload=100)

    assert made[A][1].send(B, b"p" * made[A][1].max_payload)
    assert made[A][1].max_payload == 99


def test_payload_of_an_unknown_channel_is_counted():
    """
    A payload of a later version, or an empty one, is dropped and counted.
    """
    cluster, made = pair()

    cluster.nodes[A].send(B, b"zzz")
    cluster.nodes[A].send(B, b"")
    cluster.run(0.1)

    assert made[B][0].unknown == 2


def test_links_and_room_concern_all_channels():
    """
    Each channel learns of links that come up and go down, and of room.
    """
    cluster, made = pair(capacity=1)
    made[A][1].send(B, b"1")
    assert not made[A][1].send(B, b"2")
    cluster.run(0.1)
    cluster.cut(A, B)

    for channel in made[A][1:]:
        assert [event[0] for event in channel.listener.events] == ["up", "room", "down"]
