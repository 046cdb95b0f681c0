"""
Links between the members of a cluster, over NATS in memory.
"""

from twisted.trial.unittest import SynchronousTestCase

from msgnode.cluster.carrier import packets
from msgnode.cluster.carrier.packets import Head
from tests.support.cluster_nats import CarrierCase, data, name


class CarrierTests(SynchronousTestCase):
    """
    Two or three nodes, which claim their names and greet each other.
    """

    def setUp(self) -> None:
        self.case = CarrierCase()
        self.run_for, self.nats = self.case.run, self.case.nats
        self.n1, self.at1 = self.case.start("n1")
        self.n2, self.at2 = self.case.start("n2")
        self.run_for(3)

    def test_all_members_have_links(self) -> None:
        """
        Each member has a link to each other, also to one that comes later, with the start of each.
        """
        _, at3 = self.case.start("n3")
        self.run_for(3)

        self.assertEqual({name("n2"), name("n3")}, self.at1.links.keys())
        self.assertEqual({name("n1"), name("n3")}, self.at2.links.keys())
        self.assertEqual([("up", name("n1"), 1), ("up", name("n2"), 1)], sorted(at3.members))
        self.assertEqual("", self.n1.why_degraded)

    def test_one_turn_is_one_publication(self) -> None:
        """
        What one turn of the event loop makes for a member leaves in one publication, the urgent first.
        """
        before = len(self.nats.published)

        for number in range(100):
            self.assertTrue(self.at1.links[name("n2")].send(data(b"%d" % number, number % 2)))
        self.case.clock.advance(0)
        self.case.clock.advance(0.01)

        self.assertEqual(before + 1, len(self.nats.published))
        self.assertEqual(100, len(self.at2.datagrams))
        self.assertEqual(b"1", self.at2.datagrams[0])

    def test_full_link_refuses_and_has_room_again(self) -> None:
        """
        While NATS takes nothing a link keeps what it has room for, and refuses the rest until it has room.
        """
        self.nats.clients[0].fill()
        link = self.at1.links[name("n2")]

        taken = sum(link.send(data(bytes(30_000))) for _ in range(400))
        self.run_for(1)
        self.assertEqual((True, []), (200 < taken < 400, self.at2.datagrams))
        self.nats.clients[0].drain()
        self.run_for(1)

        self.assertEqual(taken, len(self.at2.datagrams))
        self.assertEqual([name("n2")], self.at1.had_room)

    def test_restarted_member_takes_the_place_of_the_one_before(self) -> None:
        """
        A member that was killed and is started again has a link at once, with its new start.
        """
        self.nats.clients[1].kill()
        self.at1.members.clear()

        self.case.start("n2", counter=2)
        self.run_for(2)

        self.assertEqual([("down", name("n2")), ("up", name("n2"), 2)], self.at1.members)

    def test_silent_member_is_down(self) -> None:
        """
        A member that says nothing for twelve seconds has no link, and one again when it speaks.
        """
        self.nats.lose = lambda subject, payload: True
        self.run_for(10)
        self.assertEqual({name("n2")}, self.at1.links.keys())
        self.run_for(8)
        self.assertEqual({}, self.at1.links)

        self.nats.lose = lambda subject, payload: False
        self.run_for(6)

        self.assertEqual(({name("n2")}, {name("n1")}), (self.at1.links.keys(), self.at2.links.keys()))

    def test_links_outlive_a_short_loss_of_nats(self) -> None:
        """
        A restart of the NATS server leaves the links as they are; a longer absence ends them, and the carrier
        says why it is degraded.
        """
        self.nats.kill()
        self.run_for(5)
        self.assertEqual({name("n2")}, self.at1.links.keys())
        self.assertEqual("no connection to NATS: the server is gone", self.n1.why_degraded)
        self.nats.restart()
        self.run_for(1)
        self.assertEqual([("up", name("n2"), 1)], self.at1.members)

        self.nats.kill()
        self.run_for(20)
        self.assertEqual({}, self.at1.links)
        self.nats.restart()
        self.run_for(2)

        self.assertEqual({name("n2")}, self.at1.links.keys())

    def test_second_process_with_the_name_is_refused(self) -> None:
        """
        A process that starts with the name of another one learns it, and takes no link from it.
        """
        second, _ = self.case.start("n2", start=b"\x00" * 16)
        self.run_for(3)

        self.assertEqual(1, len(self.case.conflicts))
        self.assertIn(
            "another process is mn://example.com/n2 in this cluster already", self.case.conflicts[0]
        )
        self.assertEqual([("up", name("n2"), 1)], self.at1.members)
        self.assertTrue(second.claim.is_lost)

    def test_of_two_that_ask_at_once_one_has_the_name(self) -> None:
        """
        Of two processes that ask for a name in the same second, that with the smaller start gets it.
        """
        one, _ = self.case.start("n9", start=b"a" * 16)
        other, _ = self.case.start("n9", start=b"b" * 16)
        self.run_for(3)

        self.assertEqual((True, False), (one.claim.is_granted, other.claim.is_granted))
        self.assertEqual(1, len(self.case.conflicts))

    def test_node_that_is_not_a_member_is_refused(self) -> None:
        """
        With a list of members, others get no link.
        """
        _, at4 = self.case.start("n4", members=["n4", "n1"])
        self.run_for(3)

        self.assertEqual({name("n1")}, at4.links.keys())

    def test_stopped_member_is_gone_at_once(self) -> None:
        """
        A member that stops says so, and its links end without waiting for silence.
        """
        self.n2.stopService()
        self.run_for(0.1)

        self.assertEqual({}, self.at1.links)


class ToldTests(SynchronousTestCase):
    """
    What members tell each other in order.
    """

    def setUp(self) -> None:
        self.case = CarrierCase()
        self.n1, self.at1 = self.case.start("n1")
        self.n2, self.at2 = self.case.start("n2")
        self.case.run(3)
        self.at2.members.clear()
        self.at1.members.clear()

    def test_told_in_order(self) -> None:
        """
        Payloads arrive in the order in which they were sent.
        """
        for number in range(3000):
            self.assertTrue(self.n1.table.send(name("n2"), b"%d" % number))
        self.case.run(1)

        self.assertEqual([("heard", name("n1"), b"%d" % number) for number in range(3000)], self.at2.members)

    def test_loss_begins_again(self) -> None:
        """
        After a loss both ends are told that the member is down and up, so that all is sent again; nothing
        that came after the loss is delivered.
        """
        self.case.nats.lose = lambda subject, payload: b"second" in payload
        for payload in (b"first", b"second", b"third"):
            self.n1.table.send(name("n2"), payload)
            self.case.run(0.1)

        self.assertEqual([("down", name("n2")), ("up", name("n2"), 1)], self.at1.members)
        self.n1.table.send(name("n2"), b"again")
        self.case.run(0.1)
        self.assertEqual(
            [
                ("heard", name("n1"), b"first"),
                ("down", name("n1")),
                ("up", name("n1"), 1),
                ("heard", name("n1"), b"again"),
            ],
            self.at2.members,
        )

    def test_loss_of_the_last_is_noticed(self) -> None:
        """
        A loss that nothing follows is noticed by the next ping.
        """
        self.case.nats.lose = lambda subject, payload: b"last" in payload
        self.n1.table.send(name("n2"), b"last")
        self.case.run(5)

        self.assertEqual([("down", name("n2")), ("up", name("n2"), 1)], self.at1.members)

    def test_no_room(self) -> None:
        """
        While NATS takes nothing, what does not fit is refused; the member is told of when there is room.
        """
        self.case.nats.clients[0].fill()
        taken = 0
        while self.n1.table.send(name("n2"), bytes(30_000)):
            taken += 1
        self.assertEqual(279, taken)
        self.case.nats.clients[0].drain()
        self.case.run(1)

        self.assertEqual((taken, [name("n2")]), (len(self.at2.members), self.at1.had_room))
        self.assertFalse(self.n1.table.send(name("n7"), b"nobody"))


class StrangerTests(SynchronousTestCase):
    """
    Whatever comes over NATS is counted, and ends nothing.
    """

    def setUp(self) -> None:
        self.case = CarrierCase()
        self.n1, self.at1 = self.case.start("n1")
        self.n2, self.at2 = self.case.start("n2")
        self.case.run(3)

    def refused(self, payload: bytes, reason: str) -> None:
        before = self.n1.table.refusals.by_reason[reason]
        self.case.nats.publish(None, "msgnode.example=2Ecom.node.n1", payload)
        self.case.run(0.1)
        self.assertEqual(before + 1, self.n1.table.refusals.by_reason[reason], payload[:50])
        self.assertEqual({name("n2")}, self.at1.links.keys())

    def test_malformed_packets(self) -> None:
        """
        A packet that is malformed, too long, of another domain, or claims to be from this node, is refused.
        """
        head = packets.encode(Head(name("n2")))
        for payload in (
            b"",
            b"\x02\x00\x00",
            b"\x01\xff\xff",
            packets.packet(b"\xc1", []),
            packets.packet(packets.encode(Head("n2")), []),
            packets.packet(head, [b"\xc1"]),
            packets.packet(head, [packets.encode(("told", -1, 0, b""))]),
            packets.packet(head, [b"\x91\xa4ping"]),
            bytes(packets.MAX_PACKET_BYTES + 1),
            b"\x01" + len(head).to_bytes(2, "big") + head + b"\xdd\xff\xff\xff\xff",
        ):
            self.refused(payload, "malformed")
        self.refused(packets.packet(packets.encode(Head("mn://b.example/n2")), []), "name")
        self.refused(packets.packet(packets.encode(Head(name("n1"))), []), "name")

    def test_unknown_entries_are_skipped(self) -> None:
        """
        An entry with an unknown tag is of a later version, and is skipped.
        """
        head = packets.encode(Head(name("n2")))
        self.case.nats.publish(
            None, "msgnode.example=2Ecom.node.n1", packets.packet(head, [packets.encode(("later", 1))])
        )
        self.case.run(0.1)

        self.assertEqual(0, self.n1.table.refusals.by_reason["malformed"])

    def test_entries_without_a_token_are_ignored(self) -> None:
        """
        Who does not know the tokens of a link cannot speak for the member.
        """
        self.at1.datagrams.clear()
        for link in (b"", b"x" * 8):
            head = packets.encode(Head(name("n2"), link, b"y" * 8))
            self.case.nats.publish(
                None, "msgnode.example=2Ecom.node.n1", packets.packet(head, [packets.encode(data(b"false"))])
            )
            self.case.run(2)

        self.assertEqual([], self.at1.datagrams)
        self.assertEqual({name("n2")}, self.at1.links.keys())

    def test_too_many_members(self) -> None:
        """
        A node knows 64 members; further ones are refused.
        """
        for number in range(70):
            head = packets.encode(Head(name(f"x{number}")))
            self.case.nats.publish(None, "msgnode.example=2Ecom.node.n1", packets.packet(head, []))
        self.case.run(0.1)

        self.assertEqual(7, self.n1.table.refusals.by_reason["limit"])
