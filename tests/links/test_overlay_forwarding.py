"""
Forwarding: paths, hop limits, loops, priorities with ageing, and room.
"""

import msgspec
import pytest
from simulating.world import World

from msgnode.links.overlay.holding import MAX_BYTES, MAX_LINK_BYTES, Budget, Holding
from msgnode.links.wire.datagram import HOP_LIMIT, Datagram
from msgnode.links.wire.entries import Data
from tests.support.links_overlay import A, B, C, D, link, network, overlay, refused, wire


def datagram(source=A, destination=C, path=None, priority=5, hop_limit=HOP_LIMIT, payload=b"x", number=1):
    path = [(source, 0)] if path is None else path
    return Datagram(source, destination, hop_limit, path, priority, "k", number, b"", b"", payload)


class Streams:
    """
    The streams of a node: what they hear.
    """

    def __init__(self):
        self.room = 0
        self.routes = []

    def received(self, datagram):
        pass

    def route_changed(self, node):
        self.routes.append(node)

    def keys_changed(self, node):
        pass

    def has_room(self):
        self.room += 1


def arrive(world, node, source, what):
    """
    A datagram comes from a neighbour, whatever it is.
    """
    overlay(world, node).received(link(world, node, source), Data(what))
    world.run(1)


def test_a_datagram_travels_with_its_path():
    """
    At the destination the path has each node that it left, with the time that it stayed there.
    """
    world = network((A, B), (B, C))

    number = world.send(A, C)
    world.run(1)

    arrived = world.arrived[number]
    assert [A, B] == [node for node, _ in arrived.path]
    assert HOP_LIMIT - 1 == arrived.hop_limit


def test_no_route():
    """
    A datagram to an unknown node is not taken.
    """
    world = network((A, B))

    assert world.send(A, C) is None
    assert not overlay(world, A).has_route(C)


@pytest.mark.parametrize(
    "what, reason",
    [
        (datagram(path=[(A, 0), (B, 0), (A, 0)]), "loop"),
        (datagram(path=[(A, 0), (C, 0), (A, 0)], destination=C), "loop"),
        (datagram(hop_limit=1), "hop-limit"),
        (datagram(hop_limit=0), "malformed"),
        (datagram(hop_limit=1 << 62), "malformed"),
        (datagram(path=[]), "malformed"),
        (datagram(path=[(D, 0)]), "malformed"),
        (datagram(source=D), "malformed"),
        (datagram(path=[(A, -1)]), "malformed"),
        (datagram(path=[(A, 0)] * 33), "malformed"),
        (datagram(priority=10), "malformed"),
        (datagram(priority=-1), "malformed"),
        (datagram(payload=b"x" * 40_000), "malformed"),
        (datagram(destination="nonsense"), "no-route"),
    ],
)
def test_what_is_refused_is_counted_by_reason(what, reason):
    """
    A datagram that cannot be right, or would come back, is refused and counted.
    """
    world = network((A, B), (B, C))

    arrive(world, B, A, what)

    assert {reason: 1} == refused(world, B)
    assert {} == world.arrived


def test_datagrams_of_a_neighbour_without_transit_end_here():
    """
    A neighbour without transit reaches this node, and nothing behind it.
    """
    world = World(1)
    for name in (A, B, C):
        world.add(name)
    world.join(B, A, cost=1, transit=(False, True))
    world.join(B, C, cost=1)
    world.start()
    world.run(10)

    arrive(world, B, A, datagram(destination=C))
    arrive(world, B, A, datagram(destination=B, number=2))

    assert {"transit": 1} == refused(world, B)
    assert [2] == list(world.arrived)


def test_nothing_is_forwarded_to_a_neighbour_without_transit():
    """
    Datagrams of others do not leave for a neighbour without transit, because its answers could not return.
    """
    world = World(1)
    for name in (A, B, C):
        world.add(name)
    world.join(B, A, cost=1)
    world.join(B, C, cost=1, transit=(False, True))
    world.start()
    world.run(10)

    arrive(world, B, A, datagram(destination=C))

    assert {"no-route": 1} == refused(world, B)


def test_a_client_neighbour_forwards_nothing():
    """
    A datagram of another source that comes from a CLIENT node is refused.
    """
    world = World(1)
    for name, kind in ((A, "CLIENT"), (B, "SERVER"), (C, "SERVER")):
        world.add(name, kind)
    world.join(A, B, cost=1)
    world.join(B, C, cost=1)
    world.start()
    world.run(10)

    arrive(world, B, A, datagram(source=D, path=[(D, 0), (A, 0)]))
    arrive(world, B, A, datagram(number=7))

    assert {"client": 1} == refused(world, B)
    assert [7] == list(world.arrived)


def test_a_full_link_holds_datagrams_by_priority():
    """
    What a full link does not take waits, and leaves by priority; the time that it waited is in the path.
    """
    world = network((A, B), (B, C), room=1)
    numbers = [world.send(A, C, priority) for priority in (5, 1, 5, 9)]

    world.run(5)

    order = sorted(world.arrived, key=list(world.arrived).index)
    assert [numbers[0], numbers[3], numbers[2], numbers[1]] == order
    assert 0 == world.arrived[numbers[0]].path[0][1]
    assert world.arrived[numbers[1]].path[0][1] >= 10_000


def test_a_sender_is_notified_of_room():
    """
    When its own datagrams fill the lane, `send` returns False, and `has_room` follows.
    """
    world = network((A, B), room=1)
    streams = Streams()
    overlay(world, A).listen(streams)
    taken = 0
    while world.send(A, B) is not None:
        taken += 1

    world.run(5)

    assert 1 + 128 == taken
    assert 1 == streams.room
    assert 0 == sum(len(each.held) for each in overlay(world, A).neighbours)


def test_waiting_datagrams_take_another_route():
    """
    What waits for a link that is lost leaves by the next best one.
    """
    world = network((A, B, 1), (B, D, 1), (A, C, 5), (C, D, 5))
    wire(world, A, B).room = 0
    number = world.send(A, D)

    wire(world, A, B).down()
    world.run(1)

    assert [A, C] == [node for node, _ in world.arrived[number].path]


def test_streams_hear_of_routes():
    """
    Streams hear when the first hop to a node is another one.
    """
    world = network((A, B, 1), (B, D, 1), (A, C, 5), (C, D, 5))
    streams = Streams()
    overlay(world, A).listen(streams)

    wire(world, B, D).down()
    world.run(1)

    assert [D] == streams.routes


def test_streams_hear_of_a_new_link_to_the_same_first_hop():
    """
    What was on the link before is lost, also what was for nodes behind it.
    """
    world = network((A, B, 1), (B, D, 1))
    streams = Streams()
    overlay(world, A).listen(streams)

    wire(world, A, B).renew()
    world.run(1)

    assert sorted(streams.routes) == [B, D]


def test_streams_hear_that_the_way_round_an_avoided_first_hop_is_lost():
    """
    What took that way goes by the first hop that was avoided.
    """
    world = network((A, B, 10), (B, D, 10), (A, C, 20), (C, D, 20))
    overlay(world, A).avoid_first_hop(D)
    streams = Streams()
    overlay(world, A).listen(streams)

    wire(world, A, C).down()
    world.run(1)

    assert overlay(world, A).routes.first_hop(D) == B
    assert D in streams.routes


class TestHolding:
    """
    Datagrams that wait for a link.
    """

    def test_after_nine_the_oldest_leaves(self):
        """
        After nine datagrams have overtaken the oldest one, it leaves.
        """
        holding = Holding(Budget())
        holding.put(datagram(priority=0, number=100), 0)
        for number in range(20):
            holding.put(datagram(priority=9, number=number), 0)

        order = [holding.pop().datagram.nonce for _ in range(21)]

        assert [*range(9), 100, *range(9, 20)] == order

    def test_a_lane_is_bounded(self):
        """
        A full lane refuses the newest, and other lanes have room.
        """
        holding = Holding(Budget())
        for number in range(256):
            assert [] == holding.put(datagram(number=number), 0)

        assert [999] == [each.nonce for each in holding.put(datagram(number=999), 0)]
        assert [] == holding.put(datagram(priority=4), 0)

    def test_higher_priorities_displace_lower_ones(self):
        """
        When the bytes of a link are used up, the newest of the lowest priority makes room; nothing of the
        same.
        """
        holding = Holding(Budget())
        big = b"x" * 32_000
        low = 0
        while not holding.put(datagram(priority=1, payload=big, number=low), 0):
            low += 1

        dropped = holding.put(datagram(priority=2, payload=big), 0)

        assert [low - 1] == [each.nonce for each in dropped]
        assert holding.bytes <= MAX_LINK_BYTES

    def test_all_links_share_a_budget(self):
        """
        The bytes that wait for all links together are bounded, and are free again when they leave.
        """
        budget = Budget()
        all_of_them = [Holding(budget) for _ in range(80)]
        for holding in all_of_them:
            for number in range(40):
                holding.put(datagram(payload=b"x" * 32_000, number=number), 0)
        most = budget.bytes

        for holding in all_of_them:
            while holding.pop():
                pass

        assert MAX_BYTES - 33_000 < most <= MAX_BYTES
        assert 0 == budget.bytes


def test_datagrams_are_copied():
    """
    The sender's own datagram stays as it is, so that it can be sent again.
    """
    world = network((A, B))
    own = datagram(destination=B, path=[])
    before = msgspec.json.encode(own)

    overlay(world, A).send(own)

    assert before == msgspec.json.encode(own)
