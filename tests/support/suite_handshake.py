"""
How sessions are opened at mn:/session, on every connector that speaks it.
"""

from typing import Any
from uuid import uuid4

from tests.support.fakes import refused_codes
from tests.support.runtimes import WebSocketRuntime
from tests.support.suite import SM, Suite

TOKEN = r"^mns_[A-Za-z0-9_-]{43}$"
OTHER_TOKEN = "mns_" + "x" * 43


class Opening(Suite):
    """
    `open`, and `re-open` in its four forms.
    """

    def test_open_is_answered_200_with_a_token_and_nothing_else(self: Any) -> None:
        """
        `open` is answered 200 with a token, and nothing else.
        """
        runtime = self.arrive()

        reply = runtime.session("open", **{"from": runtime.url})

        token = reply["body"]["runtimeToken"]
        self.assertRegex(token, TOKEN)
        body = {"code": 200, "runtimeToken": token}
        expected = {"id": 1, "type": "response", "from": "mn:/session", "to": runtime.url, "body": body}
        self.assertEqual(expected, reply)
        self.assertEqual([], runtime.take())

    def test_id_is_answered_as_the_same_json_value_whatever(self: Any) -> None:
        """
        The id is answered as the same JSON value, whatever its type and size.
        """
        for id in (0, 1, "1", "", 2**53 + 1, 10**30, -1):
            reply = self.arrive().session("open", id, **{"from": "runtime://example.org/a"})

            self.assertEqual((id, type(id)), (reply["id"], type(reply["id"])))

    def test_types_of_the_handshake_are_understood_in_any_case(self: Any) -> None:
        """
        The types of the handshake are understood in any case.
        """
        runtime = self.arrive()

        self.assertEqual(200, runtime.session("OPEN", **{"from": runtime.url})["body"]["code"])

    def test_new_token(self: Any) -> None:
        """
        `open` always issues a new token, and the old one is worth nothing any more.
        """
        first = self.client()
        second = self.client()

        self.assertNotEqual(first.token, second.token)
        reply = self.arrive().session("re-open", **{"from": f"{first.url}/{first.token}"})
        token = reply["body"]["runtimeToken"]
        self.assertRegex(token, TOKEN)
        reply = self.arrive().session("open", **{"from": f"{first.url}/{token}"})
        self.assertNotEqual(token, reply["body"]["runtimeToken"])

    def test_re_open_is_a_bare_200_and_keeps_all(self: Any) -> None:
        """
        `re-open` with the token is answered a bare 200; the token stays and so does all that was bound.
        """
        runtime, other = self.client(), self.client("b")
        self.subscribe(runtime, "comm://example.org/1")
        runtime.drop()
        runtime.connect()
        name = f"{runtime.url}/{runtime.token}"

        for _ in range(2):
            reply = runtime.session("re-open", 2, **{"from": name})
            expected = {"id": 2, "type": "response", "from": "mn:/session", "to": name}
            self.assertEqual({**expected, "body": {"code": 200}}, reply)
            runtime.drop()
            runtime.connect()
        runtime.reopen()

        other.send({"id": 1, "type": "update", "from": "x", "to": "comm://example.org/1"})
        self.assertEqual(1, len(runtime.take()))

    def test_reopen_unknown_token(self: Any) -> None:
        """
        `re-open` with a token that is not known, of today's nodes or ours, opens the session of that name.
        """
        sender = self.client("b")
        for number, token in enumerate((OTHER_TOKEN, str(uuid4()), str(uuid4()).upper())):
            runtime = self.arrive(f"r{number}")
            name = f"{runtime.url}/{token}"

            reply = runtime.session("re-open", **{"from": name})

            self.assertEqual((200, name), (reply["body"]["code"], reply["to"]))
            self.assertRegex(reply["body"]["runtimeToken"], TOKEN)
            self.assertReaches(sender, runtime)

    def test_reopen_bare(self: Any) -> None:
        """
        `re-open` with a bare runtimeURL opens, and takes up what there is of that session.
        """
        runtime, sender = self.client(), self.client("b")
        self.subscribe(runtime, "comm://example.org/1")
        runtime.drop()
        runtime.connect()

        reply = runtime.session("re-open", **{"from": runtime.url})

        self.assertRegex(reply["body"]["runtimeToken"], TOKEN)
        sender.send({"id": 1, "type": "update", "from": "x", "to": "comm://example.org/1"})
        self.assertEqual(1, len(runtime.take()))

    def test_open_and_re_open_without_from_are_given_a_name(self: Any) -> None:
        """
        `open` and `re-open` without `from` are given a name of their own, and a token.
        """
        for kind in ("open", "re-open"):
            runtime = self.arrive()

            reply = runtime.session(kind, 4)

            self.assertEqual((4, 200), (reply["id"], reply["body"]["code"]))
            self.assertRegex(reply["body"]["runtimeToken"], TOKEN)
            self.assertRegex(reply["to"], "^runtime://example.org/.+")
            runtime.url = reply["to"]
            self.assertReaches(runtime, runtime)

    def test_anonymous_expire(self: Any) -> None:
        """
        A session whose name the node made up goes a minute after its connection.
        """
        runtime = self.arrive()
        runtime.session("open")
        self.subscribe(runtime, "comm://example.org/1")

        runtime.drop()
        self.net.advance(61 + 60)  # a poller lingers for a minute

        self.assertEqual(0, len(self.net.node.sessions))

    def test_name_that_ends_like_a_token(self: Any) -> None:
        """
        A runtimeURL whose last segment is a UUID is itself once it is open, and not its parent.
        """
        name = f"runtime://example.org/{uuid4()}"
        runtime, sender = self.connect(self.net, name).open(), self.client("b")

        reply = self.connect(self.net, name).session("re-open", **{"from": f"{name}/{runtime.token}"})

        self.assertEqual({"code": 200}, reply["body"])
        self.assertEqual({name, sender.url}, {session.runtime for session in self.net.node.sessions})

    def test_moves_from_another_connector(self: Any) -> None:
        """
        A session may be opened on a WebSocket and taken up here, with what waits and what is bound.
        """
        elsewhere, sender = WebSocketRuntime(self.net).open(), self.client("b")
        self.subscribe(elsewhere, "comm://example.org/1")
        elsewhere.drop()
        sender.send({"id": 1, "type": "update", "from": "x", "to": "comm://example.org/1"})

        here = self.connect(self.net)
        here.token = elsewhere.token
        here.reopen()
        sender.send({"id": 2, "type": "update", "from": "x", "to": "comm://example.org/1"})

        self.assertEqual([1, 2], [message["id"] for message in here.take()])

    def test_token_is_not_logged(self: Any) -> None:
        """
        `re-open` and `close` stand in the traffic log without the token.
        """
        runtime = self.client()
        runtime.drop()
        runtime.come_back()
        runtime.close()

        self.assertNotIn(runtime.token, repr(vars(self.net.traffic_recorder)))
        self.assertEqual(
            [("open", "answered", 200), ("re-open", "answered", 200), ("close", "answered", 200)],
            [(line["type"], line["outcome"], line["code"]) for line in self.net.traffic_recorder.messages],
        )
        self.assertEqual({runtime.url}, {line["from"] for line in self.net.traffic_recorder.messages})


class OneConnection(Suite):
    """
    What is said at mn:/session on one connection, again and again; no connector but polling differs.
    """

    def test_superseded_stays_open(self: Any) -> None:
        """
        A connection that was replaced stays open; what it sends still counts and is answered on it.
        """
        older, newer, other = self.client(), self.client(), self.client("b")

        reply = older.ask(type="subscribe", to=SM, body={"resources": ["comm://example.org/1"]})

        self.assertEqual({"code": 200}, reply["body"])
        self.assertTrue(older.is_connected)
        self.assertEqual([], newer.take())
        self.assertReaches(older, other)
        other.send({"id": 1, "type": "update", "from": "x", "to": "comm://example.org/1"})
        self.assertEqual([1], [message["id"] for message in newer.take()])
        self.assertEqual([], older.take())

    def test_older_takes_over_again(self: Any) -> None:
        """
        The older connection may open once more, and is the newest then.
        """
        older, newer, other = self.client(), self.client(), self.client("b")

        older.open()

        self.assertReaches(other, older)
        self.assertEqual([], newer.take())

    def test_older_outlives_the_session(self: Any) -> None:
        """
        When the newer connection closes the session, the older one is a stranger that may open again.
        """
        older, newer, other = self.client(), self.client(), self.client("b")

        newer.close()

        reply = older.attempt({"id": 2, "type": "create", "from": older.url, "to": other.url})
        self.assertRefused(reply, 401)
        self.assertEqual([], other.take())
        older.open()
        self.assertReaches(other, older)

    def test_older_does_not_open_again(self: Any) -> None:
        """
        Unless it does so in time it is closed 4408.
        """
        older, newer = self.client(), self.client()

        newer.close()
        self.net.advance(11)

        self.assertClosed(older, 4408)

    def test_open_again(self: Any) -> None:
        """
        `open` once more on the same connection is answered 200 with another token.
        """
        runtime, other = self.client(), self.client("b")
        token = runtime.token

        reply = runtime.session("open", **{"from": runtime.url})

        self.assertEqual(200, reply["body"]["code"])
        self.assertNotEqual(token, reply["body"]["runtimeToken"])
        self.assertReaches(other, runtime)

    def test_open_another(self: Any) -> None:
        """
        `open` of another name moves the connection there; the first session is away.
        """
        runtime, other = self.client(), self.client("b")
        name = runtime.url
        runtime.url = "runtime://example.org/second"

        runtime.open()

        self.assertReaches(other, runtime)
        other.send({"id": 1, "type": "update", "from": "x", "to": name})
        self.assertEqual([], runtime.take())
        self.assertIn(("detached", name), self.net.traffic_recorder.events)
        self.assertEqual(("waiting", 0), self.logged())

    def test_reopen_without_from(self: Any) -> None:
        """
        `re-open` without `from` on a connection that has a session keeps that session.
        """
        runtime, other = self.client(), self.client("b")

        reply = runtime.session("re-open", 5)

        self.assertEqual(200, reply["body"]["code"])
        self.assertEqual(2, len(self.net.node.sessions))
        self.assertReaches(other, runtime)

    def test_behind_open(self: Any) -> None:
        """
        What follows `open` in the same read belongs to the session already, and is answered after it.
        """
        runtime, other = self.arrive(), self.client("b")
        message = {"id": 2, "type": "ping", "from": f"{runtime.url}/x", "to": f"{other.url}/x"}
        subscribe = {"id": 3, "type": "subscribe", "from": f"{runtime.url}/sm", "to": SM}

        runtime.send(
            {"id": 1, "type": "open", "from": runtime.url, "to": "mn:/session"},
            message,
            {**subscribe, "body": {"resources": ["comm://example.org/1"]}},
            {"id": 4, "type": "update", "from": "comm://example.org/1", "to": "comm://example.org/1"},
        )

        self.assertEqual([1, 3, 4], [reply["id"] for reply in runtime.take()])
        self.assertEqual([message], other.take())

    def test_behind_close(self: Any) -> None:
        """
        What follows `close` in the same read is not carried.
        """
        runtime, other = self.client(), self.client("b")
        message = {"id": 2, "type": "ping", "from": f"{runtime.url}/x", "to": f"{other.url}/x"}

        runtime.send({"id": 1, "type": "close", "from": runtime.url, "to": "mn:/session"}, message)

        self.assertClosed(runtime, 1000)
        self.assertEqual([], other.take())

    def test_message_before_open_is_answered_401_by_mn_validator(self: Any) -> None:
        """
        A message before `open` is answered 401 by mn:/validator and not carried; the connection lives.
        """
        runtime, other = self.arrive(), self.client("b")
        message = {"id": 8, "type": "create", "from": f"{runtime.url}/x", "to": f"{other.url}/x"}

        reply = runtime.attempt(message)

        self.assertRefused(reply, 401)
        self.assertEqual((8, "mn:/validator", message["from"]), (reply["id"], reply["from"], reply["to"]))
        self.assertEqual([], other.take())
        self.assertEqual(("refused", 401), self.logged())
        self.assertEqual({401: 1}, refused_codes(self.net.node.counts))
        runtime.open()
        self.assertReaches(runtime, other)

    def test_never_opens(self: Any) -> None:
        """
        Who does not open a session in time is sent away with 4408.
        """
        runtime = self.arrive()

        self.net.advance(9)
        self.assertTrue(runtime.is_connected)
        self.net.advance(2)

        self.assertClosed(runtime, 4408)
        self.assertEqual(1, runtime.retry_after)

    def test_session_understands_three_words(self: Any) -> None:
        """
        Any other request to mn:/session is answered 400; responses and updates to it are ignored.
        """
        runtime, other = self.client(), self.client("b")

        reply = runtime.ask(type="create", to="mn:/session")

        self.assertRefused(reply, 400)
        self.assertEqual("mn:/session", reply["from"])
        for type in ("response", "update"):
            runtime.send({"id": 1, "type": type, "from": runtime.url, "to": "mn:/session"})
        self.assertEqual([], runtime.take())
        self.assertReaches(other, runtime)
