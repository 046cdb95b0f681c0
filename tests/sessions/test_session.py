"""
Sessions: connections come and go beneath them, and they end.
"""

import json

from twisted.trial.unittest import SynchronousTestCase

from msgnode.protocol.close_codes import OPEN_TIMEOUT
from msgnode.sessions.session import hashed
from tests.support.durable import SM, DurableNode
from tests.support.fakes import MemoryNode, directory

RUNTIME = "runtime://example.org/1"
OTHER = "runtime://example.org/2"


def update(n: int) -> dict:
    return {"id": n, "type": "update", "from": "comm://example.org/1", "to": f"{RUNTIME}/x"}


class SessionTests(SynchronousTestCase):
    """
    A node and a sender.
    """

    def setUp(self) -> None:
        self.restart()

    def restart(self, **sections: object) -> None:
        self.node = MemoryNode(**sections)
        self.sender = self.node.client(OTHER)

    def events(self, runtime: str = RUNTIME) -> list[str]:
        return [event for event, whose in self.node.traffic_recorder.events if whose == runtime]


class AttachmentTests(SessionTests):
    """
    The newest connection of a session gets what is delivered.
    """

    def test_older_connection_of_a_session_gets_nothing(self) -> None:
        """
        The older connection stays open and is given nothing more.
        """
        older, newer = self.node.client(RUNTIME), self.node.client(RUNTIME)

        self.sender.tell(update(1))

        self.assertEqual(([], [update(1)]), (older.got, newer.got))
        self.assertIsNone(older.lost)
        self.assertEqual(["opened", "attached", "superseded", "attached"], self.events())

    def test_late_loss_of_a_superseded_connection(self) -> None:
        """
        The loss of a connection that was superseded touches nothing, also long after.
        """
        older, newer = self.node.client(RUNTIME), self.node.client(RUNTIME)
        newer.subscribe("comm://example.org/1/changes")

        older.drop()
        self.node.clock.advance(100_000)

        self.sender.tell(update(1))
        self.assertEqual([update(1)], newer.got)
        self.assertNotIn("detached", self.events())
        self.assertEqual(
            (RUNTIME,), tuple(s.runtime for s in self.node.routes.resolve("comm://example.org/1/changes"))
        )

    def test_late_close(self) -> None:
        """
        A `close` on a superseded connection ends that connection alone.
        """
        older, newer = self.node.client(RUNTIME), self.node.client(RUNTIME)

        older.close()

        self.assertEqual(1000, older.lost.code)
        self.sender.tell(update(1))
        self.assertEqual([update(1)], newer.got)
        self.assertNotIn("closed", self.events())

    def test_superseded_asks(self) -> None:
        """
        What a superseded connection sends still counts, and is answered on it.
        """
        older, newer = self.node.client(RUNTIME), self.node.client(RUNTIME)

        reply = older.ask(
            type="subscribe", to="domain://msg-node.example.org/sm", body={"resources": ["comm://d/1"]}
        )

        self.assertEqual({"code": 200}, reply["body"])
        self.assertEqual([], newer.got)
        self.sender.post("comm://d/1")
        self.assertEqual(([], 1), (older.take(), len(newer.take())))

    def test_superseded_opens_again(self) -> None:
        """
        A superseded connection that opens again is the newest; its rival's loss touches nothing.
        """
        first, second = self.node.client(RUNTIME), self.node.client(RUNTIME)

        first.open(RUNTIME)
        second.drop()

        self.sender.tell(update(1))
        self.assertEqual([update(1)], first.got)
        self.assertEqual(1, self.events().count("opened"))
        self.assertNotIn("detached", self.events())

    def test_superseded_outlives_session(self) -> None:
        """
        When its session ends, a superseded connection is as if it had just come: before `open`.
        """
        for end in ("close", "expire"):
            self.restart()
            older, newer = self.node.client(RUNTIME), self.node.client(RUNTIME)
            if end == "close":
                newer.close()
            else:
                newer.drop()
                self.node.clock.advance(61)

            reply = older.ask(
                type="subscribe", to="domain://msg-node.example.org/sm", body={"resources": ["a"]}
            )

            self.assertEqual(("mn:/validator", 401), (reply["from"], reply["body"]["code"]))
            self.assertEqual(0, len(self.node.routes))
            older.open(RUNTIME)
            self.sender.tell(update(1))
            self.assertEqual([update(1)], older.got)

    def test_superseded_never_opens(self) -> None:
        """
        A connection whose session ended and that does not open again is closed in time.
        """
        older, newer = self.node.client(RUNTIME), self.node.client(RUNTIME)

        newer.close()
        self.node.clock.advance(10)

        self.assertEqual(OPEN_TIMEOUT, older.lost)

    def test_open_with_another_url_moves_the_connection(self) -> None:
        """
        `open` with another runtimeURL moves the connection there; the session it leaves is away.
        """
        client = self.node.client(RUNTIME)

        client.open("runtime://example.org/3")

        self.assertEqual(["opened", "attached", "detached"], self.events())
        self.sender.tell(update(1))
        self.assertEqual([], client.got)
        self.assertEqual("waiting", self.node.traffic_recorder.outcomes[-1])
        self.sender.post("runtime://example.org/3/x")
        self.assertEqual(1, len(client.got))

    def test_open_twice(self) -> None:
        """
        `open` twice on one connection is answered twice and changes nothing else.
        """
        client = self.node.client(RUNTIME)
        client.subscribe("comm://d/1")

        client.open(RUNTIME)

        self.assertEqual(["opened", "attached"], self.events())
        self.sender.post("comm://d/1")
        self.assertEqual(1, len(client.got))


class DeadlineTests(SessionTests):
    """
    A connection says who it is, or goes.
    """

    def test_no_open(self) -> None:
        """
        Without `open` within ten seconds a connection is closed 4408, whatever else it says.
        """
        client = self.node.client()
        self.node.clock.advance(9.9)
        client.ask(type="ping", to="x")
        self.assertIsNone(client.lost)

        self.node.clock.advance(0.1)

        self.assertEqual((4408, "no open; retry_after=1"), (client.lost.code, client.lost.reason))

    def test_deadline_can_be_set(self) -> None:
        """
        The deadline can be set.
        """
        self.restart(session={"open_deadline_seconds": 3})
        client = self.node.client()

        self.node.clock.advance(3)

        self.assertEqual(OPEN_TIMEOUT, client.lost)

    def test_opened_connection_is_left_in_peace(self) -> None:
        """
        A connection that opened, or that is gone, is left in peace.
        """
        opened, gone = self.node.client(RUNTIME), self.node.client()
        gone.drop()

        self.node.clock.advance(11)

        self.assertEqual((None, None), (opened.lost, gone.lost))
        self.assertEqual({self.sender, opened}, set(self.node.sessions.connections))


class ExpiryTests(SessionTests):
    """
    A session without a connection lives for a while.
    """

    def lives(self, seconds: float, runtime: str = RUNTIME) -> None:
        """
        The session is there until then and not longer.
        """
        self.node.clock.advance(seconds - 0.1)
        self.assertIsNotNone(self.node.sessions.get(runtime))
        self.node.clock.advance(0.1)
        self.assertIsNone(self.node.sessions.get(runtime))
        self.assertEqual("expired", self.events(runtime)[-1])
        self.assertEqual(1, self.node.counts.sessions["expired"])

    def test_used_session_lives_a_day(self) -> None:
        """
        A session that bound something lives a day after its connection, with all that is bound to it.
        """
        client = self.node.client(RUNTIME)
        client.subscribe("comm://d/1")

        client.drop()
        self.lives(86400)

        self.assertEqual(0, len(self.node.routes))
        self.assertEqual((), self.node.routes.resolve(f"{RUNTIME}/x"))

    def test_unused_session_lives_a_minute(self) -> None:
        """
        A session that never bound anything lives a minute.
        """
        self.node.client(RUNTIME).drop()

        self.lives(60)

    def test_used_once(self) -> None:
        """
        A session that once bound something lives a day, though it let go of it.
        """
        client = self.node.client(RUNTIME)
        client.subscribe("comm://d/1")
        client.ask(
            type="unsubscribe", to="domain://msg-node.example.org/sm", body={"resources": ["comm://d/1"]}
        )

        client.drop()

        self.lives(86400)

    def test_anonymous_session_lives_a_minute(self) -> None:
        """
        A session whose name the node made up lives a minute, whatever it bound.
        """
        client = self.node.client()
        client.tell({"id": 1, "type": "open", "to": "mn:/session"})
        runtime = client.take()[0]["to"]
        client.subscribe("comm://d/1")

        client.drop()

        self.lives(60, runtime)

    def test_each_of_the_three_times_can_be_set(self) -> None:
        """
        Each of the three times can be set; what is unused lives no longer than the rest.
        """
        times = {"expiry_seconds": 5, "anonymous_expiry_seconds": 7, "unused_expiry_seconds": 6}
        self.restart(session=times)
        client = self.node.client(RUNTIME)

        client.drop()

        self.lives(5)

    def test_attached_session_never_expires(self) -> None:
        """
        A session with a connection never expires, and each loss starts the time anew.
        """
        client = self.node.client(RUNTIME)
        self.node.clock.advance(1_000_000)
        for _ in range(3):
            client.drop()
            self.node.clock.advance(59)
            client = self.node.client(RUNTIME)

        self.assertNotIn("expired", self.events())
        client.drop()
        self.lives(60)

    def test_close_ends_the_session_at_once_and_its_timers(self) -> None:
        """
        `close` ends the session at once, and its timers with it.
        """
        client = self.node.client(RUNTIME)
        client.subscribe("comm://d/1")
        token = client.token

        client.close()
        client.drop()

        self.assertEqual(["opened", "attached", "closed"], self.events())
        self.assertEqual((None, None), (self.node.sessions.get(RUNTIME), self.node.sessions.by_token(token)))
        self.assertEqual(0, len(self.node.routes))
        self.assertEqual([], self.node.clock.getDelayedCalls())


class TokenTests(SessionTests):
    """
    The session token.
    """

    def test_unguessable(self) -> None:
        """
        Every token is new: `mns_` and 43 base64url characters of 256 random bits.
        """
        client = self.node.client()
        tokens = {client.open(f"runtime://example.org/{n % 3}") for n in range(300)}

        self.assertEqual(300, len(tokens))
        for token in tokens:
            self.assertRegex(token, "^mns_[A-Za-z0-9_-]{43}$")
        for place in range(4, 47):
            self.assertGreater(len({token[place] for token in tokens}), 10)

    def test_new_token_voids_the_old_one(self) -> None:
        """
        A new token voids the old one, and the session's end voids the last.
        """
        client = self.node.client()
        first, second = client.open(RUNTIME), client.open(RUNTIME)

        session = self.node.sessions.get(RUNTIME)
        self.assertIsNone(self.node.sessions.by_token(first))
        self.assertIs(session, self.node.sessions.by_token(second))
        self.assertEqual((False, True), (session.has_token(first), session.has_token(second)))
        client.close()
        self.assertIsNone(self.node.sessions.by_token(second))
        self.assertFalse(session.has_token(second))
        self.assertFalse(session.has_token(""))

    def test_only_hash(self) -> None:
        """
        The node keeps a hash of the token: on disk and in the traffic log the token is nowhere.
        """
        node = DurableNode(directory(self))
        self.addCleanup(lambda: (node.spool.close(), node.store.shut()))
        client, other = node.client(RUNTIME), node.client(OTHER)
        body = {"resources": ["comm://example.org/1"]}
        client.tell({"id": 1, "type": "subscribe", "from": RUNTIME, "to": SM, "body": body})
        client.drop()
        other.tell(update(1))
        node.store.committed()
        node.clock.advance(60)

        self.assertEqual(hashed(client.token), node.sessions.get(RUNTIME).token_hash)
        files = [path for path in node.directory.rglob("*") if path.is_file()]
        written = b"".join(path.read_bytes() for path in files)
        self.assertIn(hashed(client.token), written)
        self.assertIn(json.dumps(update(1)).encode(), written)
        self.assertNotIn(client.token.encode(), written)
        self.assertNotIn(client.token, f"{node.traffic_recorder.messages}{node.traffic_recorder.events}")
