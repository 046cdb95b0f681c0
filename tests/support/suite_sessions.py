"""
How sessions behave on every connector, whatever the client says to open one.
"""

from typing import Any

from tests.support.runtimes import Runtime
from tests.support.suite import Suite


class Attachment(Suite):
    """
    Connections that come, go, and replace one another.
    """

    def test_newer_of_two_connections_is_given_all(self: Any) -> None:
        """
        Of two connections of one runtime the newer is given what is delivered.
        """
        older, newer, sender = self.client(), self.client(), self.client("b")

        self.assertReaches(sender, newer)

        self.assertEqual([], older.take())
        self.assertIn(("superseded", newer.url), self.net.traffic_recorder.events)

    def test_loss_of_a_replaced_connection_touches_nothing(self: Any) -> None:
        """
        The loss of a connection that was replaced touches nothing.
        """
        older, newer, sender = self.client(), self.client(), self.client("b")

        older.drop()

        self.assertReaches(sender, newer)
        self.assertNotIn(("detached", newer.url), self.net.traffic_recorder.events)

    def test_lost_and_back(self: Any) -> None:
        """
        A runtime that lost its connection and comes back is reached again, under the same name.
        """
        runtime, sender = self.client(), self.client("b")

        runtime.drop()
        runtime.come_back()

        self.assertReaches(sender, runtime)

    def test_messages_to_an_absent_runtime_reach_it_in_order(self: Any) -> None:
        """
        What is sent to a runtime that is away reaches it when it is back, in order and before what is new.
        """
        runtime, sender = self.client(), self.client("b")
        updates = [
            {"id": n, "type": "update", "from": "comm://example.org/1", "to": f"{runtime.url}/x"}
            for n in range(5)
        ]

        runtime.drop()
        sender.send(*updates[:4])
        self.assertEqual(("waiting", 0), self.logged())
        runtime.come_back()
        sender.send(updates[4])

        self.assertEqual(updates, [message for message in runtime.take() if message["type"] == "update"])

    def test_observer_keeps_its_feed_without_subscribing_again(self: Any) -> None:
        """
        An observer keeps its feed across a lost connection, without subscribing again.
        """
        observer, reporter = self.client(), self.client("b")
        self.subscribe(observer, "comm://example.org/o1/changes")
        update = {"id": 3, "type": "update", "from": "comm://example.org/o1"}

        observer.drop()
        observer.come_back()
        observer.take()
        reporter.send({**update, "to": "comm://example.org/o1/changes"})

        self.assertEqual([{**update, "to": "comm://example.org/o1/changes"}], observer.take())

    def test_request_waits_15_s_a_response_60_s_and_all_else(self: Any) -> None:
        """
        A request waits 15 s, a response 60 s, and all else, also to children, as long as the session.
        """
        kinds = [(type, "x") for type in ("create", "READ", "subscribe", "unsubscribe", "execute")]
        kinds += [("response", "x"), ("update", "x"), ("delete", "x"), ("create", "children/n")]
        for seconds, left in ((14.9, 9), (15.1, 4), (59.9, 4), (60.1, 3), (86000, 3)):
            self.restart()
            runtime, sender = self.client(), self.client("b")
            self.subscribe(runtime, "comm://example.org/1")
            runtime.drop()
            sender.send(
                *(
                    {"id": n, "type": type, "from": "x", "to": f"{runtime.url}/{to}"}
                    for n, (type, to) in enumerate(kinds)
                )
            )

            self.net.clock.advance(seconds)
            runtime.come_back()

            got = [message["type"] for message in runtime.take() if message["from"] == "x"]
            expected = [type for type, _ in kinds[-left:]]
            expected.sort(key=lambda type: type != "response")  # more urgent than the rest
            self.assertEqual(expected, got, seconds)
            self.assertEqual(9 - left, self.net.node.counts.stale)

    def test_overflow_while_away(self: Any) -> None:
        """
        Of more messages than may wait the newest are kept, and the others are counted.
        """
        self.restart(session={"queue_messages": 3})
        runtime, sender = self.client(), self.client("b")

        runtime.drop()
        sender.send(*({"id": n, "type": "update", "from": "x", "to": runtime.url} for n in range(5)))
        runtime.come_back()

        self.assertEqual([2, 3, 4], [m["id"] for m in runtime.take() if m["type"] == "update"])
        self.assertEqual(2, self.net.node.counts.overflowed)

    def test_runtime_that_stays_away_too_long_is_forgotten(self: Any) -> None:
        """
        A runtime that stays away too long is forgotten, with every address bound to it.
        """
        self.restart(session={"expiry_seconds": 200})
        runtime, other = self.client(), self.client("b")
        self.subscribe(runtime, "comm://example.org/1")

        runtime.drop()
        self.net.advance(61 + 138)  # a poller lingers for a minute
        other.send({"id": 1, "type": "update", "from": "x", "to": "comm://example.org/1"})
        self.assertEqual(("waiting", 0), self.logged())
        self.net.advance(62)
        other.send({"id": 1, "type": "update", "from": "x", "to": "comm://example.org/1"})

        self.assertEqual(("no-route", 0), self.logged())
        self.assertEqual(1, self.net.node.counts.no_route)
        self.assertIn(("expired", runtime.url), self.net.traffic_recorder.events)

    def test_unused_expires_soon(self: Any) -> None:
        """
        A runtime that never bound anything is forgotten a minute after it was lost.
        """
        runtime, other = self.client(), self.client("b")

        runtime.drop()
        self.net.advance(61 + 60)
        other.send({"id": 1, "type": "update", "from": "x", "to": runtime.url})

        self.assertEqual(("no-route", 0), self.logged())

    def test_returns_in_time(self: Any) -> None:
        """
        A runtime that came back does not expire because of its earlier absence.
        """
        self.restart(session={"expiry_seconds": 100, "unused_expiry_seconds": 100})
        runtime, sender = self.client(), self.client("b")

        runtime.drop()
        self.net.advance(90)
        runtime.come_back()
        self.net.advance(100)

        self.assertReaches(sender, runtime)


class Ends(Suite):
    """
    How sessions and connections end.
    """

    def test_client_that_closes_its_session_is_told_1000(self: Any) -> None:
        """
        A client that closes its session is told 1000 and nothing else, and all that was bound to it is free.
        """
        runtime, other = self.client(), self.client("b")
        self.subscribe(runtime, "comm://example.org/1")

        runtime.close()
        other.send({"id": 1, "type": "update", "from": "x", "to": ["comm://example.org/1", runtime.url]})

        self.assertEqual([], runtime.take())
        self.assertClosed(runtime, 1000)
        self.assertEqual(["no-route"] * 2, self.net.traffic_recorder.outcomes[-2:])
        self.assertEqual(("closed", runtime.url), self.net.traffic_recorder.events[-1])

    def test_open_after_close(self: Any) -> None:
        """
        A runtime that closed its session may open another one under the same name.
        """
        runtime, other = self.client(), self.client("b")
        self.subscribe(runtime, "comm://example.org/1")

        runtime.close()
        again = self.client()

        self.assertReaches(other, again)
        self.assertEqual(0, len(self.net.node.routes))

    def test_superseded_close(self: Any) -> None:
        """
        A connection that was replaced and says close ends alone.
        """
        older, newer, sender = self.client(), self.client(), self.client("b")

        older.close()

        self.assertFalse(older.is_connected)
        self.assertReaches(sender, newer)
        self.assertNotIn(("closed", newer.url), self.net.traffic_recorder.events)

    def test_when_the_node_stops_every_client_is_told_1001(self: Any) -> None:
        """
        When the node stops every client is told 1001 and that it may come back soon.
        """
        self.net.node.sessions.startService()
        runtime, other = self.client(), self.client("b")

        stopped = self.net.node.sessions.stopService()
        self.net.pump()

        for client in (runtime, other):
            self.assertClosed(client, 1001)
            self.assertEqual(1, client.retry_after)
        self.net.clock.advance(2)
        self.successResultOf(stopped)
        timers = [call.func.__name__ for call in self.net.clock.getDelayedCalls()]
        self.assertEqual(set(), set(timers) - {"__timedOut"})  # that is HTTP's own

    def test_node_does_not_wait_for_the_deaf(self: Any) -> None:
        """
        A client that does not read holds the stopping node up for two seconds.
        """
        self.net.node.sessions.startService()
        self.client().stop_reading()

        stopped = self.net.node.sessions.stopService()
        self.net.clock.advance(2)

        self.successResultOf(stopped)

    def enter(self: Any, url: str) -> Runtime:
        """
        A client that opens a session of that name, and may be refused.
        """
        runtime = self.connect(self.net, url)
        if runtime.is_connected:
            runtime.send({"id": 1, "type": "open", "from": url, "to": "mn:/session"})
        return runtime

    def test_node_address_cannot_be_opened_as_session(self: Any) -> None:
        """
        A node address, or a URL without a path, cannot be opened: the connection is closed 4403.
        """
        bystander = self.client("b")
        for url in (
            "mn:/session",
            "domain://msg-node.example.org/sm",
            "domain://registry.example.org",
            "domain://example.org/x",
            "global://registry",
            "runtime://example.org",
            "runtime://example.org/",
        ):
            runtime = self.enter(url)

            self.assertEqual([], runtime.take(), url)
            self.assertClosed(runtime, 4403)
            self.assertIsNone(runtime.retry_after)
        self.assertEqual(1, len(self.net.node.sessions))
        self.assertReaches(bystander, bystander)

    def test_node_that_holds_as_many_sessions_as_it_may_closes(self: Any) -> None:
        """
        A node that holds as many sessions as it may closes 1013 and says when to come back.
        """
        self.restart(limits={"sessions": 1})
        first = self.client()

        second = self.enter("runtime://example.org/b")
        self.net.advance(5)

        self.assertClosed(second, 1013)
        self.assertEqual(30, second.retry_after)
        self.assertReaches(first, first)
        first.drop()
        first.come_back()
        self.assertReaches(first, first)
