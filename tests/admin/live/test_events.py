"""
Live events: `/api/v1/events`.
"""

from twisted.internet.address import IPv4Address

from msgnode.admin.live.event_ring import MAX_EVENTS, EventRing
from tests.support.operators import OperatorCase


class EventRingTests(OperatorCase):
    """
    The ring of events, and its ids.
    """

    def test_ring_keeps_the_last_events_only(self) -> None:
        """
        The ring holds ten thousand events; an older position goes on at the oldest, and says so.
        """
        ring = EventRing(lambda: 1.0, "e")

        for number in range(MAX_EVENTS + 5):
            ring.add("shed", {"n": number})

        self.assertEqual(MAX_EVENTS, len(ring.after(0)))
        self.assertEqual((5, False), ring.position("e-3"))
        self.assertEqual((7, True), ring.position("e-7"))
        self.assertEqual([MAX_EVENTS + 5], [event.number for event in ring.after(MAX_EVENTS + 4)])

    def test_ids_of_before_a_restart_are_known_as_such(self) -> None:
        """
        An id of another epoch, of the future, or none at all begins at the oldest event, and says so.
        """
        ring = EventRing(lambda: 1.0, "new")
        ring.add("shed", {})

        for last_id in ("old-1", "new-99", "new-x", "-", "new-" + "9" * 40):
            self.assertEqual((0, False), ring.position(last_id), last_id)


class EventStreamTests(OperatorCase):
    """
    Streams of events.
    """

    def test_session_events_are_streamed(self) -> None:
        """
        A stream shows that a client opens a session and closes it, with its connector and peer.
        """
        stream = self.stream("?kinds=session")
        ann = self.client("ann")
        ann.close()

        self.net.advance(1)

        self.assertIn("text/event-stream", stream.head)
        events = stream.events
        self.assertEqual(["opened", "attached", "closed"], [event["event"] for event in events])
        self.assertEqual("memory", events[1]["connector"])

    def test_refusals_are_streamed_with_their_reason(self) -> None:
        """
        A refused message is an event with code, reason and text.
        """
        stream = self.stream("?kinds=refusal")
        ann = self.client("ann")
        ann.tell(
            {
                "id": 5,
                "type": "create",
                "from": "runtime://example.org/ann",
                "to": "domain://msg-node.example.org/no",
            }
        )

        self.net.advance(1)

        [event] = stream.events
        self.assertEqual(("refusal", 501), (event["event"], event["code"]))
        self.assertEqual("runtime://example.org/ann", event["session"])

    def test_a_stream_resumes_after_its_last_event(self) -> None:
        """
        With Last-Event-ID a new stream has what came since, and nothing twice.
        """
        first = self.stream("?kinds=session")
        self.client("ann")
        self.net.advance(1)
        last = first.events[-1]["id"]
        first.http.hang_up()
        self.client("bob")

        second = self.stream("?kinds=session", Last_Event_ID=last)

        self.assertEqual(["runtime://example.org/bob"] * 2, [event["session"] for event in second.events])

    def test_a_stream_that_missed_events_is_told(self) -> None:
        """
        After a restart of the node, whose epoch is another one, the stream begins with an event `gap`.
        """
        self.client("ann")

        stream = self.stream(Last_Event_ID="0000-5")

        self.assertEqual(
            ["gap", "session", "session"], [event.get("kind", event["event"]) for event in stream.events]
        )

    def test_more_than_eight_streams_of_a_token_are_refused(self) -> None:
        """
        The ninth stream is answered 429, while another token has one; when one ends, there is room again.
        """
        named = self.net.tokens.named
        ann, bob = (named.add(name, ["viewer"], None, 0.0, "") for name in ("ann", "bob"))
        streams = [self.stream(token=ann) for _ in range(8)]

        self.assertEqual(429, self.stream(token=ann).status)
        self.assertEqual([200] * 8, [self.stream(token=bob).status for _ in range(8)])
        self.assertEqual(429, self.stream().status)

        streams[0].http.hang_up()
        self.assertEqual(200, self.stream(token=ann).status)

    def test_unknown_kind_is_refused_with_those_that_there_are(self) -> None:
        """
        400, with the kinds in the text.
        """
        answer = self.ask("GET", "events?kinds=gossip")

        self.assertEqual(400, answer.status)
        self.assertIn("refusal", answer.json()["description"])

    def test_stream_needs_a_token(self) -> None:
        """
        Without a token 401; the role viewer is enough, but not for the audit.
        """
        viewer = self.token_for("viewer")

        self.assertEqual(401, self.ask("GET", "events", token="nonsense").status)
        self.assertEqual(403, self.ask("GET", "events?kinds=audit", token=viewer).status)
        self.assertEqual(200, self.stream(token=viewer).status)

    def test_heartbeat(self) -> None:
        """
        A stream without events gets a comment every 15 seconds, and lives longer than an idle connection.
        """
        stream = self.stream("?kinds=policy")

        self.net.advance(95)

        self.assertEqual(6, stream.text.count(":\n\n"))
        self.assertTrue(stream.http.is_connected)

    def test_a_revoked_token_ends_its_streams(self) -> None:
        """
        Five seconds after its token is removed the stream has ended.
        """
        stream = self.stream(token=self.token_for("viewer"))
        (self.state / "admin-token").write_text(f"{self.token}\n")

        self.net.advance(5)

        self.assertEqual(0, len(self.net.live.streams))
        self.assertTrue(stream.http.came.endswith(b"0\r\n\r\n"))

    def test_a_reader_that_does_not_read_is_dropped(self) -> None:
        """
        The node keeps nothing for a slow reader; after ten seconds its connection is closed.
        """
        stream = self.stream("?kinds=session")
        stream.http.transport.deaf = True
        self.net.links[-1].serverIO.stalled = True
        clients = [self.client(f"c{number}") for number in range(600)]

        self.net.advance(20)

        self.assertEqual(600, len(clients))
        self.assertEqual(0, len(self.net.live.streams))
        self.assertEqual(1, self.net.live.streams.dropped)

    def test_traffic_is_sampled(self) -> None:
        """
        At most 200 messages a second are shown; how many were left out is told.
        """
        stream = self.stream("?kinds=traffic")
        ann, bob = self.client("ann"), self.client("bob")
        bob.subscribe("comm://example.org/x")
        for _ in range(500):
            ann.post("comm://example.org/x")

        self.net.advance(1)

        events = stream.events
        shown = [event for event in events if event["event"] == "traffic"]
        self.assertEqual(200, len(shown))
        self.assertEqual(503 - 200, sum(event["dropped"] for event in events if event["event"] == "dropped"))
        self.assertEqual("comm://example.org/x", shown[-1]["to"])

    def test_nobody_pays_for_traffic_that_nobody_looks_at(self) -> None:
        """
        When the last stream with traffic ends, messages are recorded as if there had been none.
        """
        before = self.node.traffic.message
        stream = self.stream("?kinds=traffic")
        self.assertNotEqual(before, self.node.traffic.message)

        stream.http.hang_up()

        self.assertEqual(before, self.node.traffic.message)

    def test_a_filter_shows_one_session(self) -> None:
        """
        With `session` only events of this one are shown.
        """
        stream = self.stream("?kinds=session&session=runtime%3A%2F%2Fexample.org%2Fbob")
        self.client("ann")
        self.client("bob")

        self.net.advance(1)

        self.assertEqual({"runtime://example.org/bob"}, {event["session"] for event in stream.events})

    def test_events_of_the_node_itself(self) -> None:
        """
        Messages that were dropped for want of memory are an event.
        """
        stream = self.stream("?kinds=shed,slow")
        self.node.counts.shed += 3
        client = self.net.node.client("runtime://example.org/wall")
        client.peer = str(IPv4Address("TCP", "192.0.2.9", 1).host)
        self.node.sessions.connections.close_slow(client)
        self.net.advance(1)
        client.drop()

        self.net.advance(1)

        self.assertEqual(
            [("shed", 3), ("slow", None)], [(e["event"], e.get("messages")) for e in stream.events]
        )
