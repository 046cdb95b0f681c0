"""
The Python client while connections come and go: nothing is lost or doubled, and it knows when to stop.
"""

from typing import Any

from twisted.internet.protocol import Factory, Protocol
from twisted.trial.unittest import SynchronousTestCase

from msgnode.client import CannotConnect, Closed, Full, Refused
from msgnode.client import connection as connection_module
from msgnode.protocol.close_codes import REMOVED, Closing
from tests.support.network import Network
from tests.support.programs import Program

NEWS = "comm://example.org/o/changes"


class Greeter(Protocol):
    """
    A server of another kind.
    """

    def connectionMade(self) -> None:
        self.transport.write(b"SSH-2.0-OpenSSH_9.2\r\n")


class ResumeSuite:
    """
    A program `a` that sends, and a program `b` that is subscribed to NEWS.
    """

    wire = "line"

    def setUp(self: Any) -> None:
        self.restart()

    def restart(self: Any, **sections: Any) -> None:
        self.net = Network(**sections)
        self.a, self.b = self.program("a"), self.program("b")
        self.b.result(self.b.subscribe(NEWS))

    def program(self: Any, name: str, **options: Any) -> Program:
        return Program(self.net, name, self.wire, **options).opened()

    def publish(self: Any, *numbers: int) -> None:
        for number in numbers:
            self.a.publish(NEWS, number)

    def got(self: Any) -> list[int]:
        self.net.pump()
        return [message.body["value"] for message in self.b.came if message.type == "update"]

    # -- nothing is lost -------------------------------------------------------------

    def test_client_that_loses_its_connection_comes_back(self: Any) -> None:
        """
        A client that loses its connection comes back by itself, and what came meanwhile arrives.
        """
        self.b.drop()
        self.publish(1, 2)
        self.net.pump()

        self.net.advance(1)

        self.assertEqual([1, 2], self.got())
        self.assertTrue(self.b.is_open)

    def test_sends_while_away(self: Any) -> None:
        """
        What is sent without a connection leaves when there is one again, in order.
        """
        self.a.drop()
        self.publish(1, 2)
        self.assertFalse(self.a.is_open)

        self.net.advance(1)
        self.publish(3)

        self.assertEqual([1, 2, 3], self.got())

    def test_lost_on_the_way(self: Any) -> None:
        """
        What was written to a connection that broke off is sent again, by either side, and counted once.
        """
        self.publish(1)
        self.net.pump()
        self.publish(2, 3)
        self.a.drop()  # they never left
        self.net.advance(1)
        self.b.endpoint.links[-1].serverIO.stalled = True
        self.publish(4, 5)
        self.net.pump()
        self.b.drop()  # they never came
        self.net.advance(1)

        self.assertEqual([1, 2, 3, 4, 5], self.got())

    def test_flushed_over_a_loss(self: Any) -> None:
        """
        What was flushed has arrived at the node, whatever happened meanwhile.
        """
        self.publish(1)
        flushed = self.a.flushed()
        self.a.drop()
        self.assertNoResult(flushed)

        self.net.advance(2)

        self.successResultOf(flushed)
        self.assertEqual([1], self.got())

    def test_request_over_a_loss(self: Any) -> None:
        """
        A request whose connection is lost is answered when the client is back.
        """
        self.b.handle(self.b.runtime, lambda request: "here")
        asked = self.a.request(f"{self.b.runtime}/x")
        self.a.drop()

        self.net.advance(1)

        self.assertEqual("here", self.a.result(asked).body["value"])

    def test_forgotten_session_is_told_its_subscriptions_again(self: Any) -> None:
        """
        A node that has forgotten the session is told again what was subscribed, before all that waits.
        """
        self.publish(1)
        self.net.advance(1)  # all is acknowledged
        node = self.net.node
        self.b.drop()
        node.sessions.end(node.sessions.get(self.b.runtime), "expired")
        self.b.publish(NEWS, 2)
        flushed = self.b.flushed()
        self.net.advance(2)

        self.successResultOf(flushed)
        self.publish(3)
        self.assertEqual([1, 2, 3], self.got())

    def test_counts_anew(self: Any) -> None:
        """
        After the node has forgotten a session, its successor loses and doubles nothing either.
        """
        node = self.net.node
        self.publish(1, 2, 3)
        self.net.advance(1)
        self.b.drop()
        node.sessions.end(node.sessions.get(self.b.runtime), "expired")
        self.net.advance(1)

        for number in (4, 6, 8):
            self.publish(number)
            self.net.advance(1)
            self.b.drop()
            self.publish(number + 1)
            self.b.publish(NEWS, -number)
            self.net.advance(10)

        self.assertEqual(list(range(1, 10)), [number for number in self.got() if number > 0])
        self.assertEqual([-4, -6, -8], [number for number in self.got() if number < 0])
        self.assertEqual(0, len(self.b._connection.resume_state.kept))

    def test_acknowledges_many_at_once(self: Any) -> None:
        """
        Every 64 messages are acknowledged at once, a few of them after half a second.
        """
        self.net.advance(1)
        delivered = [self.a.deliver(f"{self.b.runtime}/x", number) for number in range(70)]
        self.net.pump()
        self.assertEqual(64, sum(each.called for each in delivered))

        self.net.advance(1)

        self.assertEqual(70, sum(each.called for each in delivered))

    def test_dropped_messages_are_counted_in_missed(self: Any) -> None:
        """
        What the node had to drop is counted in `missed`, and the rest goes on.
        """
        self.restart(session={"queue_messages": 3})
        self.b.drop()
        self.b.endpoint.down = True
        self.publish(*range(10))
        self.net.advance(1)

        self.b.endpoint.down = False
        self.net.advance(5)
        self.publish(10)

        self.assertEqual([7, 8, 9, 10], self.got())
        self.assertEqual(7, self.b.missed)

    def test_without_resume(self: Any) -> None:
        """
        A client that does not count comes back too; what waited at either side arrives.
        """
        c = self.program("c", resume=False)
        c.drop()
        c.publish(NEWS, 1)
        self.a.publish(f"{c.runtime}/x", 2)
        flushed = c.flushed()
        self.assertNoResult(flushed)

        self.net.advance(1)

        self.assertEqual([1], self.got())
        self.assertEqual([2], [message.body["value"] for message in c.came])
        self.successResultOf(flushed)

    def test_keeps_no_end(self: Any) -> None:
        """
        A client that is away does not fill the memory: it says so, and keeps what it has.
        """
        self.patch(connection_module, "MAX_KEPT_BYTES", 500)
        self.a.drop()
        with self.assertRaisesRegex(Full, "messages wait for the node"):
            self.publish(*range(100))

        self.net.advance(1)

        self.assertEqual(list(range(len(self.got()))), self.got())
        self.assertGreater(len(self.got()), 2)

    # -- when it comes back, and when not --------------------------------------------

    def test_backs_off(self: Any) -> None:
        """
        While the node is down the client tries less and less often, and at least every 30 seconds.
        """
        self.b.drop()
        self.b.endpoint.down = True
        before = self.b.endpoint.attempts
        self.net.advance(60)
        tried = self.b.endpoint.attempts - before
        self.net.advance(60)

        self.assertEqual(6, tried)  # after 0.5, 1, 2, 4, 8 and 16 s
        self.assertEqual(2, self.b.endpoint.attempts - before - tried)

    def test_backs_off_anew(self: Any) -> None:
        """
        When a session was open for a while, the next loss is a first one again.
        """
        self.b.drop()
        self.b.endpoint.down = True
        self.net.advance(20)
        self.b.endpoint.down = False
        self.net.advance(30)
        self.assertTrue(self.b.is_open)

        self.b.drop()
        self.net.advance(1)

        self.assertTrue(self.b.is_open)

    def test_honours_retry_after(self: Any) -> None:
        """
        A node that stops says when to come back; the client does not come sooner.
        """
        session = self.net.node.sessions.get(self.b.runtime)
        session.connection.lose(Closing(1001, "going away", 9))
        self.net.advance(8)
        self.assertFalse(self.b.is_open)
        self.assertEqual(1, self.b.endpoint.attempts)

        self.net.advance(3)

        self.assertTrue(self.b.is_open)

    def test_client_whose_session_another_one_resumed_does(self: Any) -> None:
        """
        A client whose session another one resumed does not fight for it; it says why it stopped.
        """
        asked = self.b.request("hyperty://example.org/nobody")
        self.program("b")
        self.net.advance(60)

        self.assertEqual(1, self.b.endpoint.attempts)
        self.assertEqual(4409, self.failureResultOf(asked, Closed).value.code)
        with self.assertRaisesRegex(Closed, "the node closed the session: 4409 superseded"):
            self.b.publish(NEWS)

    def test_client_that_an_operator_removed(self: Any) -> None:
        """
        A client that is removed for good stays away; one that is given a time comes back then.
        """
        for removed in (REMOVED._replace(retry_after=9), REMOVED):
            session = self.net.node.sessions.get(self.b.runtime)
            session.connection.lose(removed)
            self.net.advance(8)
            self.assertFalse(self.b.is_open)
            self.net.advance(60)
            self.assertEqual(removed.retry_after is not None, self.b.is_open)

        with self.assertRaisesRegex(Closed, "the node closed the session: 4410 .*removed"):
            self.b.publish(NEWS)

    def test_refused_name(self: Any) -> None:
        """
        A runtimeURL that cannot be opened fails at once, with the node's words.
        """
        client = Program(self.net, "", self.wire)
        client._connection.runtime = "domain://msg-node.example.org/x"

        connecting = client.connect(retry=True)

        with self.assertRaisesRegex(Closed, "4403 refused"):
            client.result(connecting)
        self.net.advance(60)
        self.assertEqual(1, client.endpoint.attempts)

    def test_connecting_where_nobody_listens_fails_at_once(self: Any) -> None:
        """
        Where nobody listens, connecting fails at once, and names where.
        """
        client = Program(self.net, "c", self.wire)
        client.endpoint.down = True

        with self.assertRaisesRegex(CannotConnect, "example.org.*: connection refused"):
            client.result(client.connect())
        self.net.advance(60)
        self.assertEqual(1, client.endpoint.attempts)

    def test_nobody_listens_yet(self: Any) -> None:
        """
        A client that is told to retry waits for its node.
        """
        client = Program(self.net, "c", self.wire)
        client.endpoint.down = True
        connecting = client.connect(retry=True)
        self.net.advance(10)
        self.assertNoResult(connecting)
        client.endpoint.down = False

        self.net.advance(20)

        self.successResultOf(connecting)

    def test_no_answer_to_open(self: Any) -> None:
        """
        A server that never answers `open` is no node.
        """
        self.restart(session={"open_deadline_seconds": 60})
        client = Program(self.net, "c", self.wire)
        self.net.node.handshake.respond = lambda message, connection: None
        connecting = client.connect()
        self.net.advance(12)

        with self.assertRaisesRegex(CannotConnect, "'open' was not answered within 10 s"):
            client.result(connecting)

    def test_half_open(self: Any) -> None:
        """
        A connection that is dead without a word is given up within 75 seconds, and nothing is lost.
        """
        self.net.advance(100)
        self.b.swallow()
        self.publish(1, 2)
        self.b.publish(NEWS, 3)
        self.net.advance(40)
        self.assertEqual((1, []), (self.b.endpoint.attempts, self.got()))

        self.net.advance(40)
        self.publish(4)

        self.assertEqual([1, 2, 3, 4], self.got())
        self.assertEqual(2, self.b.endpoint.attempts)

    def test_half_open_and_closing(self: Any) -> None:
        """
        A client that leaves over such a connection waits no longer than ten seconds.
        """
        self.b.swallow()
        closed = self.b.close()
        self.net.advance(11)

        self.successResultOf(closed)
        self.assertEqual(1, self.b.endpoint.attempts)

    def test_closed_while_away(self: Any) -> None:
        """
        A client that is closed while it is away does not come back.
        """
        self.a.drop()
        closed = self.a.close()
        self.net.advance(60)

        self.successResultOf(closed)
        self.assertEqual(1, self.a.endpoint.attempts)


class LineResumeTests(ResumeSuite, SynchronousTestCase):
    """
    By lines.
    """

    def test_quiet_node_is_asked_for_a_sign_of_life(self) -> None:
        """
        A node that has nothing to say is asked for a sign of life; one that speaks is not.
        """
        self.net.advance(300)
        self.assertEqual((1, 6), (self.b.endpoint.attempts, self.pings()))

        for number in range(30):
            self.publish(number)
            self.net.advance(10)

        self.assertEqual((1, 6), (self.b.endpoint.attempts, self.pings()))

    def pings(self) -> int:
        said = [(message["type"], message["from"]) for message in self.net.traffic_recorder.messages]
        return said.count(("ping", self.b.runtime))

    def test_nothing_goes_on_once_a_client_has_left(self) -> None:
        """
        Nothing goes on once a client has left.
        """
        self.assertEqual(2, self.looks())

        for client in (self.a, self.b):
            client.result(client.close())

        self.assertEqual(0, self.looks())

    def looks(self) -> int:
        return sum("Keepalive" in str(call) for call in self.net.clock.getDelayedCalls())

    def test_wrong_port(self) -> None:
        """
        A client that speaks lines to the web port is asked whether it is the right one.
        """
        client = Program(self.net, "c")
        client.endpoint.listener = "web"
        connecting = client.connect()
        self.net.advance(11)

        with self.assertRaisesRegex(CannotConnect, "is this the node's port for lines?"):
            client.result(connecting)

    def test_no_node(self) -> None:
        """
        A client that reaches another kind of server says that it is none.
        """
        self.net.listeners["ssh"] = Factory.forProtocol(Greeter)
        client = Program(self.net, "c")
        client.endpoint.listener = "ssh"

        with self.assertRaisesRegex(CannotConnect, "the peer is not a messaging node"):
            client.result(client.connect())


class WebSocketResumeTests(ResumeSuite, SynchronousTestCase):
    """
    By WebSocket.
    """

    wire = "web"

    def test_message_that_the_node_finds_too_long_fails_alone(self) -> None:
        """
        A message that the node finds too long fails alone; what was sent around it arrives.
        """
        self.restart(limits={"message_bytes": 5000})
        self.publish(1)
        asked = self.a.request(NEWS, {"value": "x" * 6000})
        self.publish(2)
        self.net.advance(2)

        self.assertEqual(413, self.failureResultOf(asked, Refused).value.code)
        self.assertEqual([1, 2], self.got())


class PollingResumeTests(ResumeSuite, SynchronousTestCase):
    """
    By long-polling.
    """

    wire = "poll"

    def test_acknowledges_many_at_once(self) -> None:
        """
        Each GET acknowledges all that the answer before it had.
        """
        delivered = [self.a.deliver(f"{self.b.runtime}/x", number) for number in range(70)]
        self.net.pump()

        self.assertEqual(70, sum(each.called for each in delivered))

    def test_no_answer_to_open(self) -> None:
        """
        A server that answers `open` with something else is no node.
        """
        client = Program(self.net, "c", self.wire)
        self.net.node.handshake.respond = lambda message, connection: None

        with self.assertRaisesRegex(CannotConnect, "not an open of a session"):
            client.result(client.connect())
