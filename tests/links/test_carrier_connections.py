"""
Connections of links on a clock: hello, pings, two connections of the same nodes, bounds and ends.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from msgnode.config.federation import Peer
from msgnode.links.carrier import codec
from msgnode.links.carrier.connection import BATCH_BYTES, MAX_HELLO_BYTES, MAX_PONGS, MAX_TURN_ENTRIES
from msgnode.links.carrier.pings import FIRST_PINGS, FIRST_SECONDS, PING_SECONDS, SAMPLES
from msgnode.links.wire.entries import MAX_MESSAGE_BYTES, Close, Data, Digest, Ping, State, Summary
from tests.support.links_carrier import A, B, datagram
from tests.support.links_wires import EndOfWire, TableNode, dial


class ConnectionTests(SynchronousTestCase):
    """
    a.example dials b.example.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.a, self.b = TableNode(self.clock, A), TableNode(self.clock, B)

    def turn(self, seconds: float = 0.2) -> None:
        for _ in range(round(seconds / 0.01)):
            self.clock.advance(0.01)

    def linked(self) -> tuple[EndOfWire, EndOfWire]:
        ends = dial(self.a, self.b)
        self.turn()
        return ends

    def closed(self, end: EndOfWire) -> Close:
        entries = [entry for message in end.sent for entry in codec.decode(message)]
        assert isinstance(entries[-1], Close)
        return entries[-1]

    # -- hello -----------------------------------------------------------------------

    def test_hello_makes_a_link(self) -> None:
        """
        After both said hello, both have a link, measured by the first ping.
        """
        near, far = dial(self.a, self.b)
        self.assertEqual((MAX_HELLO_BYTES, MAX_HELLO_BYTES), (near.limit, far.limit))
        self.turn()

        self.assertEqual((B, A), (self.a.link.node, self.b.link.node))
        self.assertApproximates(0.02, self.a.link.round_trip, 0.011)
        self.assertEqual(MAX_MESSAGE_BYTES, far.limit)
        self.assertTrue(self.a.heard.trips)

    def test_dialled_node_says_nothing_before_it_trusts(self) -> None:
        """
        The node that was dialled sends its hello only to a node that it accepts.
        """
        self.b.anchors.refuses = "no authority vouches"

        _, far = self.linked()

        self.assertEqual(Close(403, "no authority vouches", 300.0), self.closed(far))
        self.assertEqual(1, len(far.sent))
        self.assertEqual([], self.b.heard.links + self.a.heard.links)

    def test_hello_has_a_deadline(self) -> None:
        """
        A connection without a hello in time is closed.
        """
        wire = EndOfWire(self.clock, 0.01)
        wire.connection = self.b.table.connect(wire)
        wire.connection.secured()

        self.clock.advance(9.9)
        self.assertEqual([], wire.sent)
        self.clock.advance(0.2)

        self.assertEqual(408, self.closed(wire).code)
        self.clock.advance(1)
        self.assertEqual(set(), self.b.table.connections)

    def test_handshakes_are_bounded(self) -> None:
        """
        Of connections without a hello there are at most as many as configured.
        """
        self.b.settings.federation.handshakes = 2
        made = [self.b.table.connect(EndOfWire(self.clock, 0.01)) for _ in range(3)]

        self.assertIsNone(made[2])
        self.assertEqual(2, self.b.table.handshakes)

    def test_one_host_may_use_a_quarter_of_the_handshakes(self) -> None:
        """
        Connections of one host do not keep those of others out.
        """
        self.b.settings.federation.handshakes = 8

        same = [self.b.table.connect(EndOfWire(self.clock, 0.01), host="192.0.2.1") for _ in range(3)]
        other = self.b.table.connect(EndOfWire(self.clock, 0.01), host="192.0.2.2")

        self.assertEqual([True, True, False], [each is not None for each in same])
        self.assertIsNotNone(other)

    def test_a_tls_handshake_has_a_short_deadline(self) -> None:
        """
        A connection that does not finish its TLS handshake is cut after a third of the time for the hello.
        """
        wires = [EndOfWire(self.clock, 0.01) for _ in range(2)]
        for wire in wires:
            wire.connection = self.b.table.connect(wire)
        self.clock.advance(3)
        wires[0].connection.secured()

        self.clock.advance(0.5)

        self.assertEqual([True, False], [wire.is_open for wire in wires])
        self.assertEqual((1, 1), (self.b.table.handshakes, self.b.table.counts["tls"]))
        self.clock.advance(6.4)
        self.assertEqual([], wires[0].sent)
        self.clock.advance(0.2)
        self.assertEqual(408, self.closed(wires[0]).code)

    def test_strangers_leave_half_of_the_handshakes_to_known_nodes(self) -> None:
        """
        Idle connections of any number of strangers keep no node out that was linked or dialled before.
        """
        self.b.settings.federation.handshakes = 8
        _, far = self.linked()
        self.b.table.connect(EndOfWire(self.clock, 0.01), dialled="c.example", host="198.51.100.9")
        far.cut()

        strangers = [
            self.b.table.connect(EndOfWire(self.clock, 0.01), host=f"203.0.113.{number}")
            for number in range(100)
        ]
        known = [
            self.b.table.connect(EndOfWire(self.clock, 0.01), host=host)
            for host in ("192.0.2.1", "198.51.100.9", "192.0.2.1", "192.0.2.1")
        ]

        self.assertEqual(4, sum(each is not None for each in strangers))
        self.assertEqual([True, True, True, False], [each is not None for each in known])
        self.assertEqual(97, self.b.table.counts["handshakes"])

    def test_a_link_that_flaps_is_logged_a_few_times_a_minute(self) -> None:
        """
        A link that is lost each second fills no log; how often it was lost is counted.
        """
        lines = []
        observer = lambda event: lines.append(event["log_format"])  # noqa: E731
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)

        for _ in range(120):
            _, far = self.linked()
            self.turn(0.8)
            far.cut()

        told = [line for line in lines if "is up" in line or "is down" in line]
        self.assertEqual(120, self.b.table.counts["down"])
        self.assertEqual(120, self.b.table.peer_counts.of("a.example").failures)
        self.assertLessEqual(len(told), 2 * 10 * 3)  # two nodes, ten lines a minute each

    def test_links_of_a_domain_are_bounded(self) -> None:
        """
        A domain has at most as many links as configured.
        """
        self.b.settings.federation.links_per_domain = 2
        nodes = [TableNode(self.clock, f"mn://a.example/n{number}") for number in range(3)]

        ends = [dial(node, self.b) for node in nodes]
        self.turn()

        self.assertEqual(2, len(self.b.heard.links))
        self.assertEqual(429, self.closed(ends[2][1]).code)

    def test_domains_that_may_have_no_link(self) -> None:
        """
        With "none" no domain has a link; a peer with link "none" has none; with "peers" others have none.
        """
        for accept, peers, words in (
            ("none", [Peer(domain="a.example")], "no links with other domains"),
            ("peers", [Peer(domain="a.example", link="none")], "no direct links with a.example"),
            ("peers", [], "a.example is not a peer"),
        ):
            self.b.settings.federation.accept = accept
            self.b.settings.peer = peers
            _, far = self.linked()

            self.assertIn(words, self.closed(far).reason)

    # -- pings -------------------------------------------------------------------------

    def test_three_missed_pings_end_the_link(self) -> None:
        """
        A stalled connection ends after three pings without an answer.
        """
        near, far = self.linked()

        near.stalled = far.stalled = True
        self.clock.pump([1.0] * 29)
        self.assertEqual(1, len(self.a.heard.links))
        self.clock.pump([1.0] * 12)

        self.assertEqual(
            (["no answer to pings"], ["no answer to pings"]), (self.a.heard.reasons, self.b.heard.reasons)
        )

    def test_one_slow_answer_is_no_longer_way(self) -> None:
        """
        The round trip is the least of the last four: some slow answers change nothing, four do.
        """
        near, far = self.linked()
        self.turn(FIRST_PINGS * FIRST_SECONDS)
        before = self.a.link.round_trip

        near.delay = far.delay = 0.41
        self.turn((SAMPLES - 1) * PING_SECONDS)
        busy = self.a.link.round_trip
        self.turn(PING_SECONDS + 1)

        self.assertApproximates(before, busy, 0.001)
        self.assertApproximates(0.82, self.a.link.round_trip, 0.01)

    def test_first_round_trips_of_a_busy_start_do_not_count(self) -> None:
        """
        The least round trip of the first seconds counts.
        """
        near, far = dial(self.a, self.b)
        near.delay = far.delay = 0.41
        self.turn(2.5)  # hello there and back, a ping and its answer
        first = self.a.link.round_trip

        near.delay = far.delay = 0.01
        self.turn(FIRST_PINGS * FIRST_SECONDS)

        self.assertApproximates(0.82, first, 0.01)
        self.assertApproximates(0.02, self.a.link.round_trip, 0.01)

    def test_pong_that_nobody_asked_for(self) -> None:
        """
        A pong with a number that no ping had does not count.
        """
        near, _ = self.linked()
        trips = len(self.a.heard.trips)

        near.connection.message_received(msgspec.msgpack.encode([["pong", n] for n in range(1000)]))

        self.assertEqual(trips, len(self.a.heard.trips))

    def test_pings_of_a_peer_that_does_not_read(self) -> None:
        """
        Of many pings that come while the transport is full, the latest are answered.
        """
        _, far = self.linked()
        far.connection.paused()
        far.sent.clear()

        for number in range(500):
            far.connection.message_received(msgspec.msgpack.encode([Ping(number)]))
        far.connection.resumed()

        (message,) = far.sent
        decoded: list[Any] = codec.decode(message)
        self.assertEqual(list(range(500 - MAX_PONGS, 500)), [entry.number for entry in decoded])

    # -- two connections -------------------------------------------------------------------

    def both_dial(self) -> tuple[EndOfWire, EndOfWire]:
        """
        A's connection and B's connection, at the end that dialled.
        """
        ends = dial(self.a, self.b)[0], dial(self.b, self.a)[0]
        self.turn()
        return ends

    def test_smaller_name_wins(self) -> None:
        """
        When both dialled, the connection of the smaller name stays, without a flap.
        """
        by_a, by_b = self.both_dial()

        self.assertEqual((True, False), (by_a.is_open, by_b.is_open))
        self.assertEqual(([], []), (self.a.heard.reasons, self.b.heard.reasons))
        self.a.link.send(datagram(b"x"))
        self.b.link.send(datagram(b"y"))
        self.turn()
        self.assertEqual((1, 1), (len(self.a.heard.entries), len(self.b.heard.entries)))

    def test_smaller_name_wins_also_when_it_comes_later(self) -> None:
        """
        The connection of the smaller name replaces an older one; what is queued moves over.
        """
        by_b = dial(self.b, self.a)[0]
        self.turn()
        links = self.a.link, self.b.link
        by_b.connection.paused()
        self.b.link.send(datagram(b"queued"))

        by_a = dial(self.a, self.b)[0]
        self.turn()

        self.assertEqual((True, False), (by_a.is_open, by_b.is_open))
        self.assertEqual(links, (self.a.link, self.b.link))
        self.assertEqual([datagram(b"queued")], self.a.heard.entries)

    def test_other_is_kept_until_a_ping_is_answered(self) -> None:
        """
        If the connection that should stay answers no ping, the other one stays.
        """
        by_b = dial(self.b, self.a)[0]
        self.turn()
        near, _ = dial(self.a, self.b)
        for _ in range(15):  # the hello of A has come, its answer to the ping will not
            self.clock.advance(0.001)
        near.stalled = True

        self.turn(35)
        near.cut()

        self.assertTrue(by_b.is_open)
        self.assertEqual(([], []), (self.a.heard.reasons, self.b.heard.reasons))

    def test_same_side_dials_again(self) -> None:
        """
        A node that dials again has lost the first connection: the link goes down and comes up.
        """
        first = self.linked()[1]
        first.stalled = True

        self.a.table.links.clear()  # as a node that noticed the loss, while the other did not
        self.a.heard.links.clear()
        dial(self.a, self.b)
        self.turn()

        self.assertEqual(["the node has connected again"], self.b.heard.reasons)
        self.assertEqual(1, len(self.b.heard.links))

    def test_newer_start_replaces_at_once(self) -> None:
        """
        A newer start of the same node replaces its link at once, an older one is refused.
        """
        self.linked()
        newer = TableNode(self.clock, A, epoch=2)

        dial(newer, self.b)
        self.turn(0.05)
        self.assertEqual(["replaced by a newer start of the same node"], self.b.heard.reasons)
        self.assertEqual(2, self.b.link.epoch)
        _, far = dial(self.a, self.b)
        self.turn()

        self.assertEqual(409, self.closed(far).code)
        self.assertEqual(1, len(self.b.heard.links))

    def test_third_connection_is_refused(self) -> None:
        """
        While two connections are being settled, a third is refused.
        """
        first = self.linked()[1]
        first.stalled = True
        dial(self.a, self.b)[0].stalled = True
        self.b.table.links[A].spare = self.b.table.links[A].spare or self.b.table.links[A].connection

        _, far = self.linked()

        self.assertEqual(429, self.closed(far).code)

    # -- sending and receiving ------------------------------------------------------------

    def test_what_one_turn_sends_is_one_message(self) -> None:
        """
        Entries of one turn of the event loop leave in one message, the link state first.
        """
        near, _ = self.linked()
        near.sent.clear()

        for number in range(5):
            self.a.link.send(datagram(b"%d" % number))
        self.a.link.send_state(Digest(b"d"))
        self.assertEqual([], near.sent)
        self.clock.advance(0)

        (message,) = near.sent
        self.assertEqual(
            [Digest, Data, Data, Data, Data, Data], [type(each) for each in codec.decode(message)]
        )

    def test_what_one_message_causes_is_written_at_once(self) -> None:
        """
        All entries of one message are passed on within one cork, so that clients' output is one write.
        """
        self.linked()
        heard: list[int] = []

        @contextmanager
        def cork() -> Iterator[None]:
            before = len(self.b.heard.entries)
            yield
            heard.append(len(self.b.heard.entries) - before)

        self.b.table.together = cork
        for number in range(5):
            self.a.link.send(datagram(b"%d" % number))
        self.turn()

        self.assertEqual([5], heard)

    def test_batches_are_bounded(self) -> None:
        """
        Much at once leaves in messages of some 32 KiB, and nothing while the transport is full.
        """
        near, _ = self.linked()
        near.sent.clear()
        near.connection.paused()
        for _ in range(40):
            self.a.link.send(datagram(bytes(10_000)))
        self.turn()
        self.assertEqual([], near.sent)

        near.connection.resumed()

        self.assertLessEqual(max(map(len, near.sent)), BATCH_BYTES + 100)
        self.assertEqual(14, len(near.sent))

    def test_full_link(self) -> None:
        """
        A full link refuses, and says once when half of its queue is free.
        """
        self.a.settings.federation.link_queue_bytes = 100_000
        near, _ = self.linked()
        near.connection.paused()

        results = [self.a.link.send(datagram(bytes(30_000))) for _ in range(5)]
        near.connection.resumed()

        self.assertEqual([True, True, True, False, False], results)
        self.assertEqual((1, 2), (self.a.heard.rooms, self.a.link.refused))

    def test_link_states_of_a_peer_that_does_not_read(self) -> None:
        """
        A link whose peer does not read, while link states pile up, ends.
        """
        self.a.settings.federation.link_queue_bytes = 100_000
        near, _ = self.linked()
        near.connection.paused()
        link = self.a.link

        for _ in range(20):
            link.send_state(State("x" * 10_000))

        self.assertEqual(["the node does not read"], self.a.heard.reasons)
        self.assertFalse(link.send(datagram()))

    def test_entry_that_fits_in_no_message(self) -> None:
        """
        A summary that is larger than a message is not sent, and counted.
        """
        self.linked()

        self.a.link.send_state(
            Summary([(f"mn://a.example/{number}" + "x" * 100, 1, 1) for number in range(5000)])
        )
        self.turn()

        self.assertEqual((1, []), (self.a.link.too_large, self.b.heard.entries))

    def test_many_entries_are_passed_on_in_slices(self) -> None:
        """
        A message of very many entries is passed on over several turns, and nothing is read meanwhile.
        """
        _, far = self.linked()
        data = codec.message([codec.encode(Digest(b"d"))] * 1000)

        far.connection.message_received(data)

        self.assertEqual((MAX_TURN_ENTRIES, False), (len(self.b.heard.entries), far.reading))
        self.clock.pump([0] * 10)
        self.assertEqual((1000, True), (len(self.b.heard.entries), far.reading))

    def test_advertisements_count_more(self) -> None:
        """
        Fewer advertisements are passed on in one turn, because each may cost a signature.
        """
        _, far = self.linked()

        far.connection.message_received(codec.message([codec.encode(State("x"))] * 100))

        self.assertEqual(16, len(self.b.heard.entries))

    # -- ends ---------------------------------------------------------------------------------

    def test_close_tells_code_and_reason(self) -> None:
        """
        `close` takes the link down at once, and the peer learns code, reason and when to come back.
        """
        near, _ = self.linked()

        self.b.link.close(503, "the node is stopping", 7.0)

        self.assertEqual(["the node is stopping"], self.b.heard.reasons)
        self.turn()
        self.assertEqual(["closed by the peer: 503 the node is stopping"], self.a.heard.reasons)
        self.assertEqual(7.0, near.connection.retry_after)

    def test_entries_before_a_close_still_count(self) -> None:
        """
        What came in the same message before a close entry is passed on.
        """
        _, far = self.linked()
        entries: list[Any] = [*[Digest(b"d")] * 300, Close(503, "bye", 0.0), Digest(b"late")]

        far.connection.message_received(codec.message([codec.encode(entry) for entry in entries]))
        self.turn()

        self.assertEqual(300, len(self.b.heard.entries))
        self.assertEqual(["closed by the peer: 503 bye"], self.b.heard.reasons)

    def test_expired_certificate_ends_the_link(self) -> None:
        """
        A link ends when the certificate of the peer does.
        """
        self.b.anchors.expires = 100.0
        self.linked()
        self.clock.pump([1.0] * 98)
        self.assertEqual(1, len(self.b.heard.links))

        self.b.anchors.refuses = "the certificate expired"
        self.clock.pump([1.0] * 3)

        self.assertEqual(["the certificate expired"], self.b.heard.reasons)

    def test_review_ends_links_of_removed_peers(self) -> None:
        """
        After a change of the configuration, links that are no longer allowed end, others stay.
        """
        self.linked()
        other = TableNode(self.clock, "mn://c.example/c1")
        dial(other, self.b)
        self.turn()
        self.b.settings.federation.accept = "peers"
        self.b.settings.peer = [Peer(domain="c.example", cost=3, transit=True)]

        self.b.table.review()

        self.assertEqual(["the domain a.example is not a peer of this node"], self.b.heard.reasons)
        self.assertEqual((3, True), (self.b.link.cost, self.b.link.transit))

    def test_faults_are_logged_once_for_each_cause(self) -> None:
        """
        A peer that repeats its fault is counted each time.
        """
        self.b.anchors.refuses = "no"
        for _ in range(5):
            self.linked()

        self.assertEqual(5, self.b.table.counts["refused-403"])

    def test_no_timer_is_left(self) -> None:
        """
        After the end of all connections no timer is left.
        """
        self.both_dial()

        self.a.table.close_all("stop", 1.0)
        self.turn()

        self.assertEqual([], self.clock.getDelayedCalls())
        self.assertEqual((set(), set()), (self.a.table.connections, self.b.table.connections))
