"""
REST at `/events`: a subscription as server-sent events, which resumes by Last-Event-ID.
"""

from typing import Any

from twisted.internet.testing import EventLoggingObserver
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from msgnode.connectors.http.rest.event_stream import HEARTBEAT_SECONDS
from msgnode.sessions.access.device_tokens import line, make_token
from tests.support.event_reader import EventReader
from tests.support.fakes import directory
from tests.support.http_client import HTTPClient
from tests.support.made_policies import rule, use
from tests.support.network import Network
from tests.support.runtimes import TCPRuntime, dumps

NEWS, MORE = "comm://example.org/news/changes", "comm://example.org/more/changes"
ANN = "runtime://example.org/ann"


class EventsCase(SynchronousTestCase):
    """
    A node, a device that publishes, and readers of events.
    """

    def setUp(self) -> None:
        self.restart()

    def restart(self, **sections: Any) -> None:
        self.net = Network(**sections)
        self.number = 0
        self.device = TCPRuntime(self.net, "runtime://example.org/b").open()

    def publish(self, number: int = 1, to: str = NEWS, **fields: Any) -> None:
        for _ in range(number):
            self.number += 1
            self.device.send(
                {"id": self.number, "type": "update", "from": self.device.url, "to": to, **fields}
            )
        self.net.pump()

    def reader(self, *resources: str, **headers: str) -> EventReader:
        return EventReader(self.net, *(resources or (NEWS,)), **headers).connect()

    def assertRefused(self, status: int, words: str, reader: EventReader) -> None:
        self.assertEqual(status, reader.status, reader.text)
        self.assertIn(words, reader.client.response.json()["desc"])
        self.assertEqual([], [c for c in self.net.node.sessions.connections if c.connector == "events"])


class StreamTests(EventsCase):
    """
    A stream.
    """

    def test_subscription(self) -> None:
        """
        A stream has what is published to each of its addresses, one event for a message, to the byte.
        """
        reader = self.reader(NEWS, MORE)
        self.publish(body={"value": 1.50})
        self.publish(to=MORE)
        self.publish(to="comm://example.org/other/changes")

        session, first, second = reader.take()

        self.assertIn("content-type: text/event-stream", reader.head.lower())
        self.assertEqual(("session", ["runtime", "token"]), (session.name, sorted(session.data)))
        self.assertEqual([("message", 1, NEWS), ("message", 2, MORE)], [_what(e) for e in (first, second)])
        self.assertIn('"value": 1.5', reader.text.replace('"value":1.5', '"value": 1.5'))
        self.assertEqual(["0", "1", "2"], [e.id.partition(".")[0] for e in (session, first, second)])

    def test_message_of_several_lines(self) -> None:
        """
        A message that has lines of its own is one event.
        """
        reader = self.reader()
        poster = HTTPClient(self.net)
        message = b'{"id":1,"type":"update",\r\n\n"to":"%s",\r"body":{}}' % NEWS.encode()
        poster.start("POST", "/message", message)
        self.net.pump()

        [_, event] = reader.take()

        self.assertEqual(NEWS, event.data["to"])

    def test_heartbeat(self) -> None:
        """
        A quiet stream has a comment from time to time, and one with events has none.
        """
        reader = self.reader()
        self.net.clock.advance(HEARTBEAT_SECONDS)
        self.net.clock.advance(HEARTBEAT_SECONDS)
        self.net.pump()

        self.assertEqual(1, reader.text.count("\n:\n"))

    def test_client_that_goes(self) -> None:
        """
        When the client hangs up its session is away, and ends when its time is over.
        """
        reader = self.reader()
        reader.client.hang_up()

        sessions = self.net.node.sessions
        self.assertEqual(2, len(sessions))
        self.assertEqual(0, sessions.connections.by_connector["events"])
        self.net.clock.advance(61)
        self.assertEqual(1, len(sessions))
        self.assertNotIn(NEWS, self.net.node.routes)

    def test_session_that_has_a_token(self) -> None:
        """
        With the token of a session the stream is its connection, and ids are without the token.
        """
        ann = TCPRuntime(self.net, ANN).open()
        reader = self.reader(Authorization=f"Bearer {ann.token}")
        self.device.send({"id": 7, "type": "event", "from": self.device.url, "to": f"{ANN}/inbox"})

        session, event = reader.take()

        self.assertEqual(({"runtime": ANN}, 7), (session.data, event.data["id"]))
        self.assertNotIn("mns_", reader.text)

    def test_token_in_the_query(self) -> None:
        """
        An EventSource sends no header fields, so the token may be in the query.
        """
        ann = TCPRuntime(self.net, ANN).open()
        for token in (ann.token, ann.token.replace("_", "%5F")):
            reader = EventReader(self.net, f"{NEWS}&access_token={token}").connect()

            self.assertEqual([{"runtime": ANN}], [event.data for event in reader.take()])

    def test_token_is_in_no_log(self) -> None:
        """
        A token in the query or in the id of an event is in no log, whether the stream is opened or refused.
        """
        logged = EventLoggingObserver.createWithCleanup(self, globalLogPublisher)
        ann = TCPRuntime(self.net, ANN).open()
        wrong = "mns_" + 43 * "w"

        for asked in (
            f"{NEWS}&access_token={ann.token}",
            f"{NEWS}&access_token={wrong}",
            f"&access_token={wrong}",
        ):
            EventReader(self.net, asked).connect()
        self.reader(NEWS, Last_Event_ID=f"1.0123456789abcdef.{wrong}")
        self.publish()

        traffic = self.net.traffic_recorder
        said = repr([traffic.messages, traffic.events, list(logged)])
        self.assertIn(NEWS, said)
        for token in (ann.token, wrong):
            self.assertNotIn(token, said)

    def test_token_sends(self) -> None:
        """
        The token of a new stream is one of a session, which may send.
        """
        reader = self.reader()
        [session] = reader.take()
        client = HTTPClient(self.net)
        message = dumps({"id": 5, "type": "update", "to": NEWS})
        client.start("POST", "/message", message, Authorization=f"Bearer {session.data['token']}")
        self.net.pump()

        [event] = reader.take()

        self.assertEqual(session.data["runtime"], event.data["from"])

    def test_the_node_says_why_it_closes(self) -> None:
        """
        A stream that the node closes ends with the reason, and when to come back.
        """
        ann = TCPRuntime(self.net, ANN).open()
        reader = self.reader(Authorization=f"Bearer {ann.token}")
        reader.take()
        ann.session("re-open", **{"from": f"{ANN}/{ann.token}"})

        [closed] = reader.take()

        self.assertEqual(("close", {"code": 4409, "reason": "superseded"}), (closed.name, closed.data))
        self.assertIn("retry: 86400000\n", reader.text)
        self.assertTrue(reader.is_over)


class ResumeTests(EventsCase):
    """
    Clients that come back.
    """

    def test_last_event(self) -> None:
        """
        A client that comes back with the last id gets what it has not had, in order, and nothing twice.
        """
        reader = self.reader()
        self.publish(3)
        reader.take()
        reader.last_id = reader.last_id.replace("3.", "1.", 1)
        reader.client.hang_up()
        self.publish(2)

        reader.connect()
        self.publish()

        self.assertEqual([2, 3, 4, 5, 6], reader.messages())
        self.assertEqual(1, len(self.net.node.routes.resolve(NEWS)))

    def test_stream_that_is_still_open(self) -> None:
        """
        A client may come back before the node knows that it was gone.
        """
        reader = self.reader()
        self.publish(2)
        reader.take()
        older = reader.client
        reader.connect()
        self.publish()

        self.assertEqual([3], reader.messages())
        self.assertIn(b"superseded", older.came)

    def test_session_that_has_ended(self) -> None:
        """
        A client that comes back too late is told that it may have missed something, and goes on.
        """
        reader = self.reader()
        self.publish(2)
        reader.take()
        reader.client.hang_up()
        self.net.clock.advance(61)
        self.publish()

        reader.connect()
        self.publish()

        session, gap, event = reader.take()
        self.assertEqual(("session", "gap", {"missed": None}), (session.name, gap.name, gap.data))
        self.assertEqual((4, "1"), (event.data["id"], event.id.partition(".")[0]))

    def test_id_that_is_too_old(self) -> None:
        """
        A client that goes back behind what is kept is told how many messages it misses.
        """
        self.restart(session={"queue_messages": 20})
        reader = self.reader()
        self.publish(30)
        self.assertEqual(list(range(1, 31)), reader.messages())
        reader.last_id = reader.last_id.replace("30.", "2.", 1)
        reader.client.hang_up()

        reader.connect()

        events = reader.take()
        gap, missed = events[1].data["missed"], [e.data["id"] for e in events[2:]]
        self.assertEqual(list(range(3, 31)), [*range(3, 3 + gap), *missed])
        self.assertGreaterEqual(len(missed), 10)

    def test_token_and_last_event(self) -> None:
        """
        A stream of a session with a token resumes by the number alone.
        """
        ann = TCPRuntime(self.net, ANN).open()
        reader = self.reader(Authorization=f"Bearer {ann.token}")
        self.publish(2)
        reader.take()
        reader.client.hang_up()
        self.publish()

        self.assertEqual([3], reader.connect().messages())

    def test_nothing_is_lost_over_reconnects(self) -> None:
        """
        Whatever is published while a client comes and goes arrives once, in order.
        """
        reader, had = self.reader(), []
        for round in range(40):
            self.publish(round % 7)
            had += reader.messages()
            reader.client.hang_up()
            self.publish(round % 3)
            reader.connect()
        had += reader.messages()

        self.assertEqual(list(range(1, self.number + 1)), had)


class SlowTests(EventsCase):
    """
    Clients that do not read.
    """

    def test_slow_reader_costs_its_queue_only(self) -> None:
        """
        A client that does not read is closed when its queue is full, and others go on.
        """
        self.restart(session={"queue_messages": 20})
        reader, other = self.reader(), self.reader()
        reader.client.link.serverIO.stalled = True

        for _ in range(60):
            self.publish(body={"value": "x" * 10_000})
            other.take()
        self.net.clock.advance(0.1)

        self.assertEqual(60, int(other.last_id.partition(".")[0]))
        self.assertEqual(1, self.net.node.sessions.connections.by_connector["events"])

    def test_reader_that_catches_up(self) -> None:
        """
        A client that reads again gets what waited for it.
        """
        reader = self.reader()
        reader.client.link.serverIO.stalled = True
        self.publish(50, body={"value": "x" * 5000})
        reader.client.link.serverIO.stalled = False

        self.assertEqual(list(range(1, 51)), reader.messages())

    def test_many_more_than_are_kept(self) -> None:
        """
        A client that reads gets all, however many there are.
        """
        limits = {"message_bytes": 10_000}
        self.restart(session={"queue_messages": 20, "queue_bytes": 20_000}, limits=limits)
        reader, had = self.reader(), []
        for _ in range(30):
            self.publish(10, body={"value": "x" * 1500})
            had += reader.messages()

        self.assertEqual(list(range(1, 301)), had)


class RefusalTests(EventsCase):
    """
    Requests that are refused.
    """

    def test_requests_that_make_no_sense(self) -> None:
        """
        A request that names no addresses, or something else, is refused in its own words.
        """
        for path, words in (
            ("/events", "name 1 to 100 addresses"),
            ("/events?resource=", "'resource' is an address"),
            (f"/events?resource={'x' * 2049}", "at most 2048"),
            ("/events?resource=a:b&foo=1", "unknown parameter 'foo'"),
            ("/events?" + "&".join(f"resource=a:{n}" for n in range(101)), "name 1 to 100 addresses"),
            ("/events?" + "&".join(["resource=a:b"] * 500), "at most 101 parameters"),
            ("/events?resource=a:%ff", "not UTF-8"),
        ):
            reader = EventReader(self.net)
            reader.path = path
            self.assertRefused(400, words, reader.connect())
        self.assertRefused(400, "Last-Event-ID must be", self.reader(NEWS, Last_Event_ID="7"))
        reader = EventReader(self.net, NEWS)
        reader.path = "/events/x"
        self.assertRefused(404, "/events?resource", reader.connect())

    def test_address_that_cannot_be_subscribed(self) -> None:
        """
        An address that is another's is refused as in a subscription, and nothing stays.
        """
        self.assertRefused(403, "belongs to the runtime", self.reader(NEWS, f"{self.device.url}/x"))
        self.assertEqual(1, len(self.net.node.sessions))

    def test_policy(self) -> None:
        """
        Policies decide about the subscription.
        """
        use(self.net.node, rule("deny", {"direction": {"equals": "subscribe"}}))
        self.assertRefused(403, "", self.reader())

    def test_unknown_token(self) -> None:
        """
        A token that no session has is refused.
        """
        self.assertRefused(401, "no session has this token", self.reader(NEWS, Authorization="Bearer mns_x"))

    def test_login_is_required(self) -> None:
        """
        Where a token is required, a stream without one is refused at once.
        """
        secret, path = make_token(), directory(self) / "devices"
        path.write_text(line(secret, "device://example.org/lamp") + "\n")
        self.net = Network(identity={"auth": "required", "devices": str(path)})

        self.assertEqual(401, self.reader().status)
        reader = self.reader(Authorization=f"Bearer {secret}")
        [session] = reader.take()
        reader.client.hang_up()
        again = EventReader(self.net, NEWS)
        again.last_id = reader.last_id  # the session's own token, in the id, will do
        self.assertEqual([session.data], [event.data for event in again.connect().take()])

    def test_limits(self) -> None:
        """
        There are so many streams of one host, and of all; one that ends makes room.
        """
        self.restart(limits={"event_streams": 3, "event_streams_per_ip": 2})
        readers = [self.reader(), self.reader()]
        reader = self.reader()
        self.assertEqual(429, reader.status)
        self.assertIn("limits.event_streams_per_ip", reader.text)

        readers[0].client.hang_up()

        self.assertEqual(200, self.reader().status)

    def test_temporary_refusal_for_a_browser(self) -> None:
        """
        An EventSource stays away after any status but 200, so it is told later by an event.
        """
        self.restart(limits={"event_streams_per_ip": 1})
        self.reader()

        reader = self.reader(NEWS, Accept="text/event-stream")

        [refused] = reader.take()
        self.assertEqual((200, "refused", 429), (reader.status, refused.name, refused.data["code"]))
        self.assertIn("retry: 30000\n", reader.text)
        self.assertTrue(reader.is_over)

    def test_figures(self) -> None:
        """
        Streams are counted by what happened to them.
        """
        reader = self.reader()
        reader.take()
        reader.client.hang_up()
        reader.connect()
        self.reader("")

        self.assertEqual({"opened": 1, "resumed": 1, "refused": 1}, dict(self.net.node.counts.event_streams))


def _what(event: Any) -> tuple[str, int, str]:
    return event.name, event.data["id"], event.data["to"]
