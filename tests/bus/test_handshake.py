"""
mn:/session: how a runtime opens its session, comes back to it and closes it.
"""

from typing import Any
from uuid import uuid4

from twisted.trial.unittest import SynchronousTestCase

from tests.support.fakes import Client, MemoryNode

RUNTIME = "runtime://example.org/1"
OTHER_TOKEN = "mns_" + "x" * 43
TOKEN = "^mns_[A-Za-z0-9_-]{43}$"


class HandshakeTests(SynchronousTestCase):
    """
    A node and a client that has said nothing.
    """

    def setUp(self) -> None:
        self.restart()

    def restart(self, **sections: Any) -> None:
        self.node = MemoryNode(**sections)
        self.client = self.node.client()

    def greet(self, type: str, from_: str | None = None, client: Client | None = None, id: Any = 1) -> dict:
        """
        Say it; the one answer.
        """
        client = client or self.client
        message = {"id": id, "type": type, "to": "mn:/session"}
        client.tell(message if from_ is None else {**message, "from": from_})
        (answer,) = client.take()
        return answer

    def reaches(self, address: str, client: Client) -> bool:
        """
        Does this client, and nobody else, hear what is sent to the address?
        """
        sender = self.node.client("runtime://example.org/sender")
        message = sender.post(address)
        sender.close()
        return client.take() == [message]

    def logged(self) -> tuple[Any, ...]:
        line = self.node.traffic_recorder.messages[-1]
        return line["type"], line["session"], line["from"], line["outcome"], line["code"]

    def tearDown(self) -> None:
        """
        Whatever was said, no token is written down.
        """
        self.assertNotIn(
            "mns_", str(self.node.traffic_recorder.messages) + str(self.node.traffic_recorder.events)
        )


class OpenTests(HandshakeTests):
    """
    `open`
    """

    def test_open_is_answered_200_with_a_token(self) -> None:
        """
        The answer is 200 with a token, exactly as the stubs compare it.
        """
        answer = self.greet("open", RUNTIME)

        body = answer.pop("body")
        self.assertEqual({"id": 1, "type": "response", "from": "mn:/session", "to": RUNTIME}, answer)
        self.assertEqual(["code", "runtimeToken"], list(body))
        self.assertEqual(200, body["code"])
        self.assertRegex(body["runtimeToken"], TOKEN)
        self.assertEqual(("open", RUNTIME, RUNTIME, "answered", 200), self.logged())

    def test_id_comes_back_with_its_json_type(self) -> None:
        """
        The id comes back with its JSON type.
        """
        for id in (0, 1, "1", "", -1, 2**53 + 1, 2**70):
            answered = self.greet("open", RUNTIME, id=id)["id"]

            self.assertEqual((type(id), id), (type(answered), answered))

    def test_open_type_may_be_in_upper_case(self) -> None:
        """
        The type may be in upper case; the answer's is in lower case.
        """
        for type in ("OPEN", "Re-Open"):
            answer = self.greet(type, RUNTIME)

            self.assertEqual((200, "response"), (answer["body"]["code"], answer["type"]))

    def test_open_always_issues_a_new_token_from_whatever(self) -> None:
        """
        `open` always issues a new token, from whatever connection, and names the same session.
        """
        tokens = [self.greet("open", RUNTIME)["body"]["runtimeToken"] for _ in range(2)]
        tokens.append(self.greet("open", RUNTIME, self.node.client())["body"]["runtimeToken"])
        tokens.append(self.greet("open", f"{RUNTIME}/{tokens[-1]}")["body"]["runtimeToken"])

        self.assertEqual(4, len(set(tokens)))
        self.assertEqual(1, len(self.node.sessions))

    def test_pipelined(self) -> None:
        """
        What comes right behind `open` already belongs to the session.
        """
        self.client.tell({"id": 1, "type": "open", "from": RUNTIME, "to": "mn:/session"})
        self.client.tell({"id": 2, "type": "ping", "from": "a", "to": f"{RUNTIME}/x"})

        self.assertEqual([1, 2], [message["id"] for message in self.client.take()])

    def test_session_manager_address_is_routable_from_open_on(self) -> None:
        """
        `<runtimeURL>/sm` is routable from `open` on, for runtimes of any domain.
        """
        for runtime in (RUNTIME, "hyperty-runtime://other.net/a/b", "runtime:/alice1", "hyper-1"):
            self.greet("open", runtime)

            self.assertTrue(self.reaches(f"{runtime}/sm", self.client))

    def test_body_with_whatever_in_it_does_no_harm(self) -> None:
        """
        A body, with whatever in it, does no harm.
        """
        self.client.tell(
            {
                "id": 1,
                "type": "open",
                "from": RUNTIME,
                "to": "mn:/session",
                "body": {"resume": True, "x": [1]},
            }
        )

        self.assertEqual(200, self.client.take()[0]["body"]["code"])

    def test_sent_in_turn(self) -> None:
        """
        The answer leaves before anything that waits, also when messages wait.
        """
        self.client.open(RUNTIME)
        self.client.drop()
        sender = self.node.client("runtime://example.org/2")
        message = sender.post(f"{RUNTIME}/x", "update")
        back = self.node.client()

        back.tell({"id": 5, "type": "open", "from": RUNTIME, "to": "mn:/session"})

        answer, waited = back.take()
        self.assertEqual((5, message), (answer["id"], waited))


class ReopenTests(HandshakeTests):
    """
    `re-open`, in its four forms.
    """

    def setUp(self) -> None:
        super().setUp()
        self.token = self.client.open(RUNTIME)
        self.client.subscribe("comm://d/1")
        self.client.drop()
        self.client = self.node.client()

    def test_known_token(self) -> None:
        """
        With the session's token the answer is a bare 200; token and bindings stay, as often as it is said.
        """
        from_ = f"{RUNTIME}/{self.token}"
        for id in (2, 3):
            answer = self.greet("re-open", from_, id=id)

            expected = {
                "id": id,
                "type": "response",
                "from": "mn:/session",
                "to": from_,
                "body": {"code": 200},
            }
            self.assertEqual(expected, answer)
            self.assertEqual(("re-open", RUNTIME, RUNTIME, "answered", 200), self.logged())
        self.assertTrue(self.reaches("comm://d/1", self.client))

    def test_with_a_token_that_is_not_the_session_ours(self) -> None:
        """
        With a token that is not the session's, ours or a UUID4, it is the same session and a new token.
        """
        for token in (OTHER_TOKEN, OTHER_TOKEN.replace("mns_", "mnd_"), str(uuid4()), str(uuid4()).upper()):
            answer = self.greet("re-open", f"{RUNTIME}/{token}")

            self.assertEqual((200, f"{RUNTIME}/{token}"), (answer["body"]["code"], answer["to"]))
            self.assertRegex(answer["body"]["runtimeToken"], TOKEN)
            self.assertEqual("re-open", self.logged()[0])
        self.assertTrue(self.reaches("comm://d/1", self.client))
        self.assertIsNone(self.node.sessions.by_token(self.token))

    def test_unknown_runtime(self) -> None:
        """
        A session that is not there any more is opened anew, with a token.
        """
        answer = self.greet("re-open", f"runtime://example.org/9/{self.token}")

        self.assertRegex(answer["body"]["runtimeToken"], TOKEN)
        self.assertNotEqual(self.token, answer["body"]["runtimeToken"])
        self.assertTrue(self.reaches("runtime://example.org/9/sm", self.client))
        self.assertIsNotNone(self.node.sessions.by_token(self.token))

    def test_re_open_with_bare_runtime_url_is_an_open(self) -> None:
        """
        A bare runtimeURL is an `open`: the session of that name, with a new token.
        """
        answer = self.greet("re-open", RUNTIME)

        self.assertEqual(RUNTIME, answer["to"])
        self.assertRegex(answer["body"]["runtimeToken"], TOKEN)
        self.assertTrue(self.reaches("comm://d/1", self.client))
        self.assertTrue(self.reaches(f"{RUNTIME}/sm", self.client))

    def test_without_from_or_with_an_empty_one_open_and_re_open(self) -> None:
        """
        Without `from`, or with an empty one, `open` and `re-open` name a session that nobody can guess.
        """
        names = set()
        for type in ("open", "re-open"):
            for from_ in (None, ""):
                client = self.node.client()

                answer = self.greet(type, from_, client, id=4)

                self.assertEqual((4, 200), (answer["id"], answer["body"]["code"]))
                self.assertRegex(answer["body"]["runtimeToken"], TOKEN)
                self.assertRegex(answer["to"], "^runtime://example.org/anonymous-[0-9a-f]{32}$")
                self.assertTrue(self.reaches(f"{answer['to']}/sm", client))
                names.add(answer["to"])
        self.assertEqual(4, len(names))

    def test_without_from_again(self) -> None:
        """
        On a connection that has a session it means that session.
        """
        self.greet("re-open", RUNTIME)

        self.assertEqual(RUNTIME, self.greet("re-open")["to"])
        self.assertEqual(1, len(self.node.sessions))

    def test_runtime_url_that_ends_like_a_token_is_itself_once_open(self) -> None:
        """
        A runtimeURL that ends like a token is itself once it is open, and its parent otherwise.
        """
        name = f"{RUNTIME}/{uuid4()}"
        self.greet("open", name)
        self.assertIsNone(self.node.sessions.get(name))
        session = self.node.sessions.create(name)

        self.greet("re-open", name)

        self.assertIs(self.client, session.connection)

    def test_uuid_path_with_a_token_behind_is_the_name(self) -> None:
        """
        A UUID that is the whole path is the name, also with a token behind it.
        """
        name = f"runtime://example.org/{uuid4()}"
        token = self.greet("open", name)["body"]["runtimeToken"]

        self.assertEqual({"code": 200}, self.greet("re-open", f"{name}/{token}")["body"])
        self.assertIsNotNone(self.node.sessions.get(name))


class CloseTests(HandshakeTests):
    """
    `close`
    """

    def test_session_ends_and_the_connection_is_closed_1000(self) -> None:
        """
        The session ends and the connection is closed 1000, without an answer.
        """
        token = self.client.open(RUNTIME)
        self.client.subscribe("comm://d/1")

        self.client.tell({"id": 3, "type": "close", "from": f"{RUNTIME}/{token}", "to": "mn:/session"})

        self.assertEqual(([], 1000), (self.client.got, self.client.lost.code))
        self.assertEqual((0, 0), (len(self.node.sessions), len(self.node.routes)))
        self.assertEqual(("close", RUNTIME, RUNTIME, "answered", 200), self.logged())

    def test_opens_after_close(self) -> None:
        """
        Who opens again after `close` finds nothing of what was.
        """
        self.client.open(RUNTIME)
        self.client.subscribe("comm://d/1")
        self.client.close()
        client = self.node.client(RUNTIME)

        self.client.drop()

        self.assertFalse(self.reaches("comm://d/1", client))
        self.assertTrue(self.reaches(f"{RUNTIME}/sm", client))

    def test_connection_that_has_no_session_is_just_closed(self) -> None:
        """
        A connection that has no session is just closed; a session of the name it gives is not touched.
        """
        other = self.node.client(RUNTIME)

        self.client.tell({"id": 1, "type": "close", "from": f"{RUNTIME}/{OTHER_TOKEN}", "to": "mn:/session"})

        self.assertEqual(([], 1000), (self.client.got, self.client.lost.code))
        self.assertEqual(("close", "", RUNTIME, "answered", 200), self.logged())
        self.assertTrue(self.reaches(f"{RUNTIME}/sm", other))

    def test_somebody_else(self) -> None:
        """
        `close` in another's name ends one's own session, not the other's.
        """
        other = self.node.client("runtime://example.org/2")
        self.client.open(RUNTIME)

        self.client.tell({"id": 1, "type": "close", "from": other.runtime, "to": "mn:/session"})

        self.assertIsNone(self.node.sessions.get(RUNTIME))
        self.assertTrue(self.reaches(other.runtime, other))
