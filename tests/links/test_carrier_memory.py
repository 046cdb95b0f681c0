"""
Links in memory: delay, faults, cuts, and what is full.
"""

import random

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.links.carrier.memory import SILENCE_SECONDS, Faults, MemoryNetwork
from msgnode.links.wire.entries import Digest
from tests.support.links_carrier import A, B, RecordingListener, datagram


class MemoryNetworkTests(SynchronousTestCase):
    """
    Two nodes and one cable.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.network = MemoryNetwork(self.clock, random.Random(7))
        self.a, self.b = RecordingListener(), RecordingListener()
        self.network.add(A, self.a)
        self.network.add(B, self.b)

    def test_link_comes_up_at_both_ends(self) -> None:
        """
        Both nodes hear of the link, with the name of the other.
        """
        self.network.join(A, B, delay=0.02, cost=3)

        self.assertEqual((B, A), (self.a.link.node, self.b.link.node))
        self.assertEqual((3, 0.04, "SERVER"), (self.a.link.cost, self.a.link.round_trip, self.a.link.kind))

    def test_datagram_arrives_after_the_delay_as_a_copy(self) -> None:
        """
        A datagram arrives after the delay, equal, and is not the same object.
        """
        self.network.join(A, B, delay=0.5)
        sent = datagram(b"x")

        self.assertTrue(self.a.link.send(sent))
        self.clock.advance(0.4)
        self.assertEqual([], self.b.entries)
        self.clock.advance(0.2)

        self.assertEqual([sent], self.b.entries)
        self.assertIsNot(sent, self.b.entries[0])

    def test_order_is_kept_without_faults(self) -> None:
        """
        Without faults, entries arrive in the order in which they were sent.
        """
        self.network.join(A, B)
        sent = [datagram(bytes([number])) for number in range(100)]

        for each in sent:
            self.a.link.send(each)
        self.clock.advance(1)

        self.assertEqual(sent, self.b.entries)

    def test_faults(self) -> None:
        """
        Some entries are lost, some come twice, some later than others.
        """
        self.network.join(A, B, faults=Faults(loss=0.2, doubling=0.2, disorder=0.5))

        for number in range(200):
            self.a.link.send(datagram(bytes([number])))
        self.clock.pump([0.01] * 20)

        got = [entry.datagram.payload[0] for entry in self.b.entries]
        self.assertTrue(100 < len(set(got)) < 200)
        self.assertLess(len(set(got)), len(got))
        self.assertNotEqual(sorted(got), got)

    def test_cut_and_restore(self) -> None:
        """
        A cut loses what is under way, is told to both, and a new link comes up afterwards.
        """
        cable = self.network.join(A, B)
        before = self.a.link
        before.send(datagram(b"x"))

        cable.cut()
        self.clock.advance(1)
        cable.restore()

        self.assertFalse(before.send(datagram(b"y")))
        self.clock.advance(1)
        self.assertEqual([], self.b.entries)
        self.assertEqual(["connection lost"], self.b.reasons)
        self.assertIsNot(before, self.a.link)

    def test_stall_ends_after_silence(self) -> None:
        """
        A stalled cable lets nothing through, and its link ends like one whose pings are not answered.
        """
        cable = self.network.join(A, B)

        cable.stall()
        self.assertTrue(self.a.link.send(datagram(b"x")))
        self.clock.advance(SILENCE_SECONDS - 1)
        self.assertEqual(([], []), (self.b.entries, self.b.reasons))
        self.clock.advance(1)

        self.assertEqual(["no answer to pings"], self.b.reasons)

    def test_full_link_refuses_and_says_when_it_has_room(self) -> None:
        """
        A full link refuses datagrams, not entries of the link state, and says once that it has room.
        """
        self.network.join(A, B, max_bytes=3000)
        results = [self.a.link.send(datagram(bytes(1000))) for _ in range(4)]
        self.a.link.send_state(Digest(b"d"))

        self.assertEqual([True, True, False, False], results)
        self.clock.advance(1)

        self.assertEqual(1, self.a.rooms)
        self.assertEqual(3, len(self.b.entries))

    def test_slow_link_sends_by_priority(self) -> None:
        """
        On a cable with a rate, a higher priority overtakes what waits.
        """
        self.network.join(A, B, bytes_per_second=1000)

        for priority in (5, 1, 9):
            self.a.link.send(datagram(bytes(900), priority))
        for _ in range(60):
            self.clock.advance(0.1)

        self.assertEqual([5, 9, 1], [entry.datagram.priority for entry in self.b.entries])

    def test_node_that_is_gone(self) -> None:
        """
        A node that is removed hears nothing more, and its neighbour loses the link.
        """
        self.network.join(A, B)

        self.network.remove(B)

        self.assertEqual([f"{B} is gone"], self.a.reasons)
        self.assertEqual([], self.b.reasons)

    def test_close_ends_both(self) -> None:
        """
        A link that one node closes is down at both before `close` returns.
        """
        self.network.join(A, B)

        self.a.link.close(403, "peer")

        self.assertEqual((["403 peer"], ["403 peer"]), (self.a.reasons, self.b.reasons))
