"""
The ring of refusals and the records of connections.
"""

from collections import Counter
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.protocol.close_codes import REMOVED, SLOW
from msgnode.sessions.history.connection_records import MAX_CLOSED
from msgnode.sessions.history.refusals import MAX_IDS, MAX_OF_ONE, MAX_REFUSALS, RefusalRing
from tests.support.fakes import MemoryNode

A, B = "runtime://example.org/a", "runtime://example.org/b"


class HistoryCase(SynchronousTestCase):
    """
    A node in memory.
    """

    def setUp(self) -> None:
        self.node = MemoryNode(session={"from_check": "refuse"})
        self.client = self.node.client(A)

    @property
    def refusals(self) -> list[Any]:
        return list(self.node.sessions.refusals)

    @property
    def closed(self) -> list[Any]:
        return list(self.node.sessions.connections.closed)


class RefusalTests(HistoryCase):
    """
    The ring of refusals.
    """

    def test_refused_message_is_kept_with_text_session_peer_and_address(self) -> None:
        """
        What the traffic log does not have: the words.
        """
        self.client.tell({"id": 5, "type": "ping", "from": f"{B}/x", "to": f"{B}/y"})

        [found] = self.refusals
        self.assertEqual((403, "not-your-address", "refused"), (found.code, found.reason, found.outcome))
        self.assertIn("is not yours to send from", found.text)
        self.assertEqual((A, "192.0.2.1:1", "memory"), (found.session, found.peer, found.connector))
        self.assertEqual((5, "ping", f"{B}/x", f"{B}/y"), (found.id, found.type, found.from_, found.to))
        self.assertEqual(1, self.node.sessions.get(A).refused)

    def test_equal_refusals_within_a_second_are_one_entry_with_a_count(self) -> None:
        """
        A client that floods the node does not push the refusals of others out of the ring.
        """
        for _ in range(100):
            self.client.post("domain://registry.example.org")
        self.node.clock.advance(2)
        self.client.post("domain://registry.example.org")

        self.assertEqual([100, 1], [found.count for found in self.refusals])
        self.assertEqual([1, 2], [found.number for found in self.refusals])

    def test_every_message_of_an_entry_is_found_by_its_id(self) -> None:
        """
        Of those that were counted in it the newest; the others are only counted.
        """
        for id in range(20):
            self.client.tell({"id": id, "type": "ping", "from": f"{B}/x", "to": f"{B}/y"})

        [found] = self.refusals
        self.assertEqual(20, found.count)
        self.assertEqual([0, *range(20 - MAX_IDS, 20)], [id for id in range(20) if found.is_of(str(id))])

    def test_after_the_clock_is_set_back_equal_refusals_are_entries_of_their_own(self) -> None:
        """
        They are not counted, with the time of then, in one of an hour later.
        """
        now = [7200.0]
        ring = RefusalRing(lambda: now[0])
        ring.add(A, 403, "policy", "no")
        now[0] = 3600.0
        for _ in range(2):
            ring.add(A, 403, "policy", "no")

        self.assertEqual([(7200.0, 1), (3600.0, 2)], [(found.time, found.count) for found in ring])

    def test_ring_has_a_bound(self) -> None:
        """
        The oldest entry goes when a new one comes.
        """
        for number in range(MAX_REFUSALS + 3):
            self.node.sessions.refusals.add(f"{A}{number % 30}", 403, "policy", "no", f"comm://x/{number}")

        self.assertEqual(MAX_REFUSALS, len(self.refusals))
        self.assertEqual("comm://x/3", self.refusals[0].to)

    def test_one_client_has_a_share_of_the_ring(self) -> None:
        """
        It pushes out its own refusals, to however many addresses; of a client without a session all
        connections from its IP address count together.
        """
        ring = self.node.sessions.refusals
        ring.add(B, 403, "policy", "no", "comm://x/kept")
        for number in range(MAX_REFUSALS + 1000):
            ring.add(A, 403, "policy", "no", f"comm://x/{number}")
            ring.add(f"192.0.2.7:{number}", 401, "token", "no", f"comm://x/{number}")

        kept = Counter(found.sender for found in ring)
        self.assertEqual({B: 1, A: MAX_OF_ONE, "192.0.2.7": MAX_OF_ONE}, kept)
        self.assertEqual("comm://x/kept", self.refusals[0].to)
        self.assertEqual(sorted(found.number for found in ring), [found.number for found in ring])
        self.assertEqual(ring.last_number, next(reversed(ring)).number)

    def test_message_to_nobody_is_kept_although_its_sender_gets_no_error(self) -> None:
        """
        A publication without a subscriber.
        """
        self.client.post("comm://example.org/chat/changes", type="update")

        [found] = self.refusals
        self.assertEqual(("no-route", 404), (found.outcome, found.code))

    def test_message_that_is_dropped_from_a_full_queue_is_kept_with_its_recipient(self) -> None:
        """
        A queue of one message, and two messages.
        """
        node = MemoryNode(session={"queue_messages": 1})
        sender, away = node.client(A), node.client(B)
        away.drop()
        for _ in range(2):
            sender.post(f"{B}/x", type="update")

        [found] = node.sessions.refusals
        self.assertEqual(("dropped", "overflow", B), (found.outcome, found.reason, found.to))

    def test_refused_open_is_kept_with_the_peer_and_the_name(self) -> None:
        """
        A name that no client may have.
        """
        client = self.node.client()
        client.tell({"id": 1, "type": "open", "from": "mn:/policy", "to": "mn:/session"})

        [found] = self.refusals
        self.assertEqual(("open", "192.0.2.1:1"), (found.type, found.peer))
        self.assertIn("4403", found.text)

    def test_session_tokens_are_not_in_the_ring(self) -> None:
        """
        Whatever a client writes.
        """
        token = self.client.token
        self.client.tell({"id": token, "type": token, "from": f"{B}/{token}", "to": f"comm://x/{token}"})

        entries = [[str(getattr(each, name)) for name in each.__slots__] for each in self.refusals]
        self.assertTrue(entries)
        self.assertNotIn(token, str(entries))


class ConnectionTests(HistoryCase):
    """
    The records of connections.
    """

    def test_closed_connection_is_kept_with_its_session_lifetime_and_bytes(self) -> None:
        """
        A client that leaves after a message.
        """
        other = self.node.client(B)
        self.node.clock.advance(7)
        message = self.client.post(f"{B}/x")
        self.client.drop()

        [found] = self.closed
        self.assertEqual((A, "192.0.2.1:1", "client", 0), (found.session, found.peer, found.by, found.code))
        self.assertEqual(7, found.closed - found.opened)
        self.assertEqual((1, len(other.raw[-1])), (found.in_messages, found.in_bytes))
        self.assertEqual(message, other.got[-1])

    def test_who_closed_a_connection_is_kept(self) -> None:
        """
        The node for a slow client, an operator by 4410, the client by nothing.
        """
        for why in (SLOW, REMOVED, None):
            client = self.node.client(B)
            if why is not None:
                self.node.sessions.connections.close(client, why)
            client.drop()

        self.assertEqual(
            [("node", 4413, "slow consumer"), ("admin", 4410, "removed"), ("client", 0, "")],
            [(found.by, found.code, found.reason) for found in self.closed],
        )

    def test_the_last_closed_connections_are_kept(self) -> None:
        """
        The oldest goes when a new one comes.
        """
        for _ in range(MAX_CLOSED + 2):
            self.node.client().drop()

        self.assertEqual(MAX_CLOSED, len(self.closed))
        self.assertEqual(4, self.closed[0].number)


class CounterTests(HistoryCase):
    """
    The counters of a session.
    """

    def test_messages_and_bytes_of_a_session_are_counted_in_and_out(self) -> None:
        """
        At once, and from the queue.
        """
        self.client.drop()
        sender = self.node.client(B)
        before = self.node.sessions.get(B).in_bytes
        for _ in range(3):
            sender.post(f"{A}/x", type="update")
        back = self.node.client()
        back.reopen(A)
        sender.post(f"{A}/x", type="update")

        out, session = self.node.sessions.get(A), self.node.sessions.get(B)
        self.assertEqual((4, session.in_bytes - before), (out.out_messages, out.out_bytes))
        self.assertEqual(4, session.in_messages)
        self.assertEqual(
            self.node.traffic_recorder.outcomes.count("delivered")
            + self.node.traffic_recorder.outcomes.count("waiting"),
            out.out_messages,
        )

    def test_sessions_are_counted_by_connector_as_they_come_and_go(self) -> None:
        """
        Superseded, away, ended.
        """
        sessions = self.node.sessions
        second = self.node.client()
        second.reopen(A)
        self.assertEqual(1, sessions.attached["memory"])
        second.drop()
        self.assertEqual((0, 2), (sessions.attached["memory"], sessions.connections.closed.by["client"] + 1))

        third = self.node.client(B)
        self.assertEqual(1, sessions.attached["memory"])
        third.close()

        self.assertEqual(0, sessions.attached["memory"])
