"""
The node's own addresses: who answers there, and what happens when that fails.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from msgnode.bus.components import Reply
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message
from msgnode.sessions.session import Session
from tests.support.fakes import MemoryNode, refused_codes

RUNTIME = "runtime://example.org/a"
SM = "domain://msg-node.example.org/sm"
SORRY = "the node failed over this message; its log says why"


class Answering:
    """
    A responder that answers as it is told.
    """

    def __init__(self, answer: Callable[[Message], Reply]) -> None:
        self.respond = lambda message, session: answer(message)


class ResponderTests(SynchronousTestCase):
    """
    A node where further responders answer at further addresses.
    """

    def setUp(self) -> None:
        self.node = MemoryNode()
        self.a = self.node.client(RUNTIME)
        self.events = EventLoggingObserver.createWithCleanup(self, globalLogPublisher)

    def answer(self, address: str, answer: Callable[[Message], Reply]) -> None:
        """
        Let `answer` respond at this address.
        """
        self.node.responders[address] = Answering(answer)

    def lines(self) -> list[tuple[Any, ...]]:
        messages = self.node.traffic_recorder.messages[1:]  # behind the open
        return [(m["type"], m["session"], m["outcome"], m["code"]) for m in messages]

    def assertFailed(self, error: type[Exception]) -> None:
        """
        The failure is in the log with the address, once, and no body or token is.
        """
        (failed,) = self.flushLoggedErrors(error)
        self.assertIsInstance(failed.value, error)
        *_, event = [event for event in self.events if event.get("log_failure")]
        self.assertIs(failed, event["log_failure"])
        self.assertTrue(event["to"].startswith("domain://"))
        self.assertNotIn("secret", str({key: value for key, value in event.items() if key != "log_failure"}))


class ReplyTests(ResponderTests):
    """
    Answers now and later.
    """

    def test_reply_comes_on_the_connection_that_asked(self) -> None:
        """
        The reply comes on the connection that asked, from the address asked, to whoever `from` says.
        """
        self.answer("domain://x.example.org", lambda message: message.reply({"code": 200}))

        reply = self.a.ask(type="read", to="domain://x.example.org", **{"from": "hyper-1"})

        expected = {"id": 7, "type": "response", "from": "domain://x.example.org", "to": "hyper-1"}
        self.assertEqual({**expected, "body": {"code": 200}}, reply)
        self.assertEqual([("read", RUNTIME, "answered", 200)], self.lines())

    def test_responder_may_have_nothing_to_say(self) -> None:
        """
        A responder may have nothing to say.
        """
        self.answer("domain://x.example.org", lambda message: None)

        self.a.post("domain://x.example.org")

        self.assertEqual(([], [("ping", RUNTIME, "answered", 0)]), (self.a.got, self.lines()))

    def test_reply_may_come_later(self) -> None:
        """
        A reply may come later; meanwhile other messages pass, and one line is written when it came.
        """
        self.answer("domain://x.example.org", lambda message: later.addCallback(message.reply))
        later: Deferred[Any] = Deferred()

        self.a.post("domain://x.example.org", "read")
        self.a.post(RUNTIME)
        self.assertEqual(["ping"], [message["type"] for message in self.a.take()])
        later.callback({"code": 200})

        self.assertEqual([{"code": 200}], [message["body"] for message in self.a.take()])
        self.assertEqual(
            [("ping", RUNTIME, "delivered", 0), ("read", RUNTIME, "answered", 200)], self.lines()
        )

    def test_asker_left(self) -> None:
        """
        When the connection that asked is gone the reply waits for its session.
        """
        for fail in (False, True):
            later: Deferred[Any] = Deferred()
            self.answer(
                "domain://x.example.org", lambda message, later=later: later.addCallback(message.reply)
            )
            self.a.post("domain://x.example.org", "read")
            self.a.drop()

            later.errback(Rejected("silent", 504)) if fail else later.callback({"code": 200})

            self.assertEqual(1, self.node.sessions.get(RUNTIME).mailbox.queued)
            self.a = self.node.client()
            self.a.tell({"id": 1, "type": "open", "from": RUNTIME, "to": "mn:/session"})
            self.assertEqual(
                [200, 504 if fail else 200], [message["body"]["code"] for message in self.a.take()]
            )

    def test_asker_superseded(self) -> None:
        """
        A reply comes on the connection that asked, also when that has been superseded meanwhile.
        """
        later: Deferred[Any] = Deferred()
        self.answer("domain://x.example.org", lambda message: later.addCallback(message.reply))
        self.a.post("domain://x.example.org", "read")
        newer = self.node.client(RUNTIME)

        later.callback({"code": 200})

        self.assertEqual((1, 0), (len(self.a.got), len(newer.got)))

    def test_asker_moved(self) -> None:
        """
        When the connection that asked is another session's by now, the reply waits for who asked.
        """
        later: Deferred[Any] = Deferred()
        self.answer("domain://x.example.org", lambda message: later.addCallback(message.reply))
        self.a.post("domain://x.example.org", "read")
        self.a.open("runtime://example.org/b")

        later.callback({"code": 200})

        self.assertEqual(([], 1), (self.a.got, self.node.sessions.get(RUNTIME).mailbox.queued))

    def test_asker_closed(self) -> None:
        """
        When the session that asked is closed the reply goes nowhere, and harms nobody.
        """
        later: Deferred[Any] = Deferred()
        self.answer("domain://x.example.org", lambda message: later.addCallback(message.reply))
        self.a.post("domain://x.example.org", "read")
        self.a.close()
        fresh = self.node.client(RUNTIME)

        later.callback({"code": 200})

        self.assertEqual(([], []), (self.a.got, fresh.got))


class RefusalTests(ResponderTests):
    """
    What the node does not offer, and what it never answers.
    """

    def test_at_an_address_of_the_node_where_nobody_answers(self) -> None:
        """
        At an address of the node where nobody answers, a request is answered 501.
        """
        for to in (
            "domain://registry.example.org",
            "domain://registry.example.org/",
            "global://registry",
            "global://registry/",
            "domain://example.org",
            "domain://msg-node.example.org/x",
            "domain://msg-node.example.org/sm/",
            "mn:/x",
        ):
            reply = self.a.ask(type="READ", to=to)

            text = f"this node has no service at {to}"
            self.assertEqual({"code": 501, "desc": text, "description": text}, reply["body"])
            self.assertEqual((to, f"{RUNTIME}/x", 7), (reply["from"], reply["to"], reply["id"]))
            self.assertEqual(("READ", RUNTIME, "refused", 501), self.lines()[-1])
        self.assertEqual({501: 8}, refused_codes(self.node.counts))

    def test_other_domain(self) -> None:
        """
        The services of another domain are addresses like any other.
        """
        self.a.post("domain://registry.example.com", "read")

        self.assertEqual(("read", RUNTIME, "no-route", 0), self.lines()[-1])

    def test_response_update_and_publication_get_no_error(self) -> None:
        """
        A response, an update and what is published are never answered with an error, only written down.
        """
        for to, type in (
            (SM, "response"),
            (SM, "RESPONSE"),
            (SM, "update"),
            ("domain://registry.example.org", "response"),
            ("domain://x.example.org/changes", "create"),
            ("domain://x.example.org/children/a", "create"),
            ("domain://x.example.org/registration", "delete"),
        ):
            self.a.post(to, type)

            self.assertEqual([], self.a.take())
            self.assertEqual("refused", self.lines()[-1][2])
        self.assertEqual(7, sum(refused_codes(self.node.counts).values()))

    def test_rejected(self) -> None:
        """
        What a responder refuses is answered with its code and words, now or later.
        """
        for later in (False, True):
            waits: Deferred[Any] = Deferred()

            def refuse(message: Message, later: bool = later, waits: Deferred[Any] = waits) -> Reply:
                if later:
                    return waits
                raise Rejected("not today", 503)

            self.answer("domain://x.example.org", refuse)
            self.a.post("domain://x.example.org", "read")
            waits.errback(Rejected("not today", 503)) if later else None

            (reply,) = self.a.take()
            self.assertEqual({"code": 503, "desc": "not today", "description": "not today"}, reply["body"])
            self.assertEqual("domain://x.example.org", reply["from"])
            self.assertEqual(("read", RUNTIME, "refused", 503), self.lines()[-1])
        self.assertEqual((2, {503: 2}), (len(self.lines()), refused_codes(self.node.counts)))
        self.assertEqual([], self.flushLoggedErrors())


class FailureTests(ResponderTests):
    """
    A responder with a bug.
    """

    def fail(self, message: Message) -> Reply:
        raise KeyError("bug")

    def fail_later(self, message: Message) -> Reply:
        self.later: Deferred[Any] = Deferred()
        return self.later

    def test_responder_bug_is_500_or_503(self) -> None:
        """
        The sender is told 500, and 503 where clients repeat a 500 ten times at once.
        """
        node = "domain://msg-node.example.org"
        for to, code in (
            ("domain://x.example.org", 500),
            (f"{node}/sm", 503),
            (f"{node}/address-allocation", 503),
            (f"{node}/hyperty-address-allocation", 503),
            (f"{node}/object-address-allocation", 503),
            ("domain://registry.example.org", 503),
            ("domain://registry.example.org/", 503),
        ):
            self.answer(to, self.fail)

            reply = self.a.ask(type="read", to=to, body={"x": "secret"})

            self.assertEqual({"code": code, "desc": SORRY, "description": SORRY}, reply["body"])
            self.assertEqual((to, f"{RUNTIME}/x"), (reply["from"], reply["to"]))
            self.assertEqual(("read", RUNTIME, "refused", code), self.lines()[-1])
        self.assertFailed(KeyError)
        self.assertEqual({500: 1, 503: 6}, refused_codes(self.node.counts))

    def test_session_survives_a_responder_bug(self) -> None:
        """
        Session and connection survive it.
        """
        self.answer("domain://x.example.org", self.fail)
        self.a.post("domain://x.example.org", "read")
        self.a.take()

        self.a.post(RUNTIME)

        self.assertEqual((1, None), (len(self.a.got), self.a.lost))
        self.assertFailed(KeyError)

    def test_later_failure_is_told_as_one_at_once(self) -> None:
        """
        A failure that comes later is told and written down as one that came at once.
        """
        self.answer("domain://x.example.org", self.fail_later)
        self.a.post("domain://x.example.org", "read", body={"x": "secret"})

        self.later.errback(KeyError("bug"))

        self.assertEqual([500], [message["body"]["code"] for message in self.a.got])
        self.assertEqual([("read", RUNTIME, "refused", 500)], self.lines())
        self.assertFailed(KeyError)

    def test_responder_bug_is_not_told_for_responses_and_updates(self) -> None:
        """
        Who sent a response or an update is told nothing of it either; the log has the first of a kind.
        """
        self.answer("domain://x.example.org", self.fail)
        for type in ("response", "update"):
            self.a.post("domain://x.example.org", type)

        self.assertEqual([], self.a.got)
        self.assertEqual(1, len(self.flushLoggedErrors(KeyError)))

    def test_deferred_that_gives_no_message_is_a_failure_too(self) -> None:
        """
        A Deferred that gives no message is a failure too.
        """
        self.answer("domain://x.example.org", self.fail_later)
        self.a.post("domain://x.example.org", "read")

        self.later.callback(None)

        self.assertEqual([500], [message["body"]["code"] for message in self.a.got])
        self.assertFailed(AttributeError)


class SessionArgumentTests(ResponderTests):
    """
    What a responder is given.
    """

    def test_session_that_asks_whatever_from_claims(self) -> None:
        """
        The session that asks, whatever `from` claims.
        """
        given: list[Session] = []
        responder = Answering(lambda message: message.reply({"code": 200}))
        responder.respond = lambda message, session: given.append(session)
        self.node.responders["mn:/x"] = responder

        self.a.post("mn:/x", **{"from": "runtime://example.org/somebody"})

        self.assertEqual([RUNTIME], [session.runtime for session in given])
