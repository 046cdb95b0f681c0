"""
The Python client at a whole node in memory: what its program asks, sends, hears and answers.
"""

import gc
from typing import Any

from msgspec import Raw
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from msgnode.client import NOT_HANDLED, Closed, Message, Refused, TimedOut
from tests.support.network import Network
from tests.support.programs import Program

LAMP = "hyperty://example.org/lamp"


class ClientSuite:
    """
    A program `a` and a program `b`, by one wire.
    """

    wire = "line"

    def setUp(self: Any) -> None:
        self.net = Network()
        self.a, self.b = self.program("a"), self.program("b")

    def program(self: Any, name: str, **options: Any) -> Program:
        return Program(self.net, name, self.wire, **options).opened()

    def serve(self: Any, handler: Any) -> None:
        """
        `b` answers at LAMP.
        """
        self.b.result(self.b.subscribe(LAMP, handler))

    def ask(self: Any, body: Any = None, **how: Any) -> Message:
        return self.a.result(self.a.request(LAMP, body, **how))

    def refusal(self: Any, deferred: Any) -> tuple[int, str]:
        """
        The code and the text a request was refused with.
        """
        with self.assertRaises(Refused) as caught:
            self.a.result(deferred)
        return caught.exception.code, caught.exception.text

    # -- answering -------------------------------------------------------------

    def test_answers_by_returning(self: Any) -> None:
        """
        What a handler returns is the answer: a body, or a value, or plain success.
        """
        answers: list[Any] = [{"value": "on", "since": 3}, 21.5, None]
        self.serve(lambda request: answers.pop(0))

        bodies = [self.ask().body for _ in range(3)]

        self.assertEqual(
            [{"code": 200, "value": "on", "since": 3}, {"code": 200, "value": 21.5}, {"code": 200}], bodies
        )

    def test_sees_the_request(self: Any) -> None:
        """
        A handler is given the message: who asks for what, and the body.
        """
        seen: list[Message] = []
        self.serve(seen.append)

        self.ask({"method": "on"}, type="execute", priority=8)

        (request,) = seen
        self.assertEqual((self.a.runtime, LAMP, "execute"), (request.from_, request.to, request.type))
        self.assertEqual({"method": "on"}, request.body)
        self.assertEqual(8, request.fields["priority"])

    def test_ping_is_answered_by_the_node(self: Any) -> None:
        """
        A ping fires with the node's answer, does not count for resume, and fails without a connection.
        """
        answer = self.a.result(self.a.ping())

        self.assertEqual(("mn:/session", 200), (answer.from_, answer.body["code"]))
        self.assertEqual(21.5, (self.serve(lambda request: 21.5), self.ask().body["value"])[1])
        self.a.result(self.a.close())
        with self.assertRaises((TimedOut, Closed)):
            self.a.result(self.a.ping())

    def test_each_request_has_a_transaction_of_its_own(self: Any) -> None:
        """
        Each request has a transaction of its own, or the one that it is given, and its answer has the same.
        """
        seen: list[Any] = []
        self.serve(lambda request: seen.append(request.fields["transaction"]))

        answers = [self.ask(), self.ask(), self.ask(transaction=7)]

        self.assertEqual(seen, [answer.fields["transaction"] for answer in answers])
        self.assertEqual((3, 7, 22), (len(set(seen)), seen[2], len(seen[0])))

    def test_forwards_transaction(self: Any) -> None:
        """
        A request that is forwarded goes on in its transaction, and so does the answer.
        """
        seen: list[Any] = []
        self.b.result(
            self.b.subscribe(f"{LAMP}/2", lambda request: seen.append(request.fields["transaction"]))
        )
        self.serve(lambda request: request.forward(f"{LAMP}/2"))

        answer = self.ask(transaction="T")

        self.assertEqual((["T"], "T"), (seen, answer.fields["transaction"]))

    def test_a_request_that_is_forwarded_is_treated_as_its_sender_asked(self: Any) -> None:
        """
        What must not be logged, or only travel encrypted, is not logged either when it goes on in the name
        of the client that forwards it, and its time to live runs on; so it is with the answer.
        """
        treated = {"priority": 8, "bulk": True, "log": False, "compress": False, "encrypt": True}
        seen: list[Message] = []

        def second(request: Message) -> None:
            seen.append(request.keep())
            send = {"id": request.id, "type": "response", "from": request.to, "to": request.from_}
            self.b.send({**send, **treated, "body": {"code": 200}})

        self.b.result(self.b.subscribe(f"{LAMP}/2", second))
        held: list[Message] = []
        self.serve(lambda request: held.append(request.hold()))
        asked = self.a.request(LAMP, {"n": 1}, ttl=30, **treated)
        self.net.pump()
        self.net.advance(4)
        held[0].forward(f"{LAMP}/2")

        answer = self.a.result(asked)

        request = seen[0].fields
        self.assertEqual(treated, {name: request.get(name) for name in treated})
        self.assertEqual(treated, {name: answer.fields.get(name) for name in treated})
        self.assertTrue(25 < request["ttl"] <= 26, request["ttl"])

    def test_receipt_transaction(self: Any) -> None:
        """
        A receipt belongs to its message's transaction.
        """
        receipt = self.a.result(self.a.deliver("comm://example.org/nobody", transaction="T"))

        self.assertEqual("T", receipt.fields["transaction"])

    def test_answers_later(self: Any) -> None:
        """
        A coroutine or a Deferred is an answer when it is done.
        """
        later: Deferred[None] = Deferred()

        async def slowly(request: Message) -> str:
            await later
            return "at last"

        self.serve(slowly)
        asked = self.a.request(LAMP)
        self.net.pump()

        self.assertNoResult(asked)
        later.callback(None)
        self.assertEqual("at last", self.a.result(asked).body["value"])

    def test_held_request_is_answered_when_its_holder_does(self: Any) -> None:
        """
        A request that is held is answered when its holder does.
        """
        held: list[Message] = []
        self.serve(lambda request: held.append(request.hold()))
        asked = self.a.request(LAMP)
        self.net.advance(5)

        self.assertNoResult(asked)
        held[0].answer({"value": 1})
        self.assertEqual({"code": 200, "value": 1}, self.a.result(asked).body)

    def test_held_too_long(self: Any) -> None:
        """
        A request that is held longer than was said goes back to its sender with 504.
        """
        held: list[Message] = []
        self.serve(lambda request: held.append(request.hold(5)))
        asked = self.a.request(LAMP)

        self.net.advance(6)

        self.assertEqual((504, "not answered within 5 s"), self.refusal(asked))

    def test_held_and_dropped(self: Any) -> None:
        """
        A request that is held and forgotten goes back to its sender with 503.
        """

        def forget(request: Message) -> None:
            request.hold()

        self.serve(forget)
        gc.freeze()  # what is collected below is what is made from here on
        asked = self.a.request(LAMP)
        self.net.pump()
        gc.collect()

        self.assertEqual((503, "dropped without an answer"), self.refusal(asked))

    def test_forwards(self: Any) -> None:
        """
        A request that is forwarded is answered from where it was sent to, by the other address.
        """
        other = "hyperty://example.org/other"
        self.serve(lambda request: request.forward(other))
        c = self.program("c")
        c.result(c.subscribe(other, lambda request: {"value": request.body["n"] + 1}))

        reply = self.ask({"n": 1})

        self.assertEqual((LAMP, {"code": 200, "value": 2}), (reply.from_, reply.body))

    def test_a_request_that_may_be_passed_on_is_answered_by_the_third(self: Any) -> None:
        """
        The second passes it on as it is; its answer comes straight from the third, and from nobody else.
        """
        other, asked = "hyperty://example.org/other", []
        self.serve(lambda request: request.forward(other))
        third = self.program("c")
        third.result(third.subscribe(other, lambda request: asked.append(request) or {"on": True}))

        answer = self.ask({"a": 1}, forward=True)

        self.assertEqual((other, {"code": 200, "on": True}), (answer.from_, answer.body))
        self.assertEqual([(self.a.runtime, {"a": 1})], [(each.from_, each.body) for each in asked])

    def test_what_the_node_says_of_a_request_passed_on_is_told_to_its_sender(self: Any) -> None:
        """
        Who passes it on has a request of the same id, and is told nothing of either in the other's place.
        """
        self.net.node.config.routing.reply_unknown = True
        self.serve(lambda request: request.forward("hyperty://example.org/nobody"))
        mine = [self.b.request(f"{self.a.runtime}/later") for _ in range(9)]
        self.net.pump()
        told = [self.refusal(self.a.request(LAMP, forward=True))[0] for _ in range(9)]

        self.assertEqual([404] * 9, told)
        self.assertFalse(any(each.called for each in mine))

    def test_the_node_is_asked_by_who_forwards_to_it(self: Any) -> None:
        """
        It takes nothing that is passed on, so that the request is made from here, and its answer passed on.
        """
        self.net.node.config.session.from_check = "refuse"
        manager = "domain://msg-node.example.org/sm"
        self.serve(lambda request: request.forward(manager))

        told = self.ask({"resources": ["comm://example.org/room"]}, type="subscribe", forward=True)

        self.assertEqual((LAMP, {"code": 200}), (told.from_, told.body))
        self.assertEqual(
            (self.net.node.sessions.get(self.b.runtime),),
            self.net.node.routes.resolve("comm://example.org/room"),
        )

    def test_an_answer_of_a_stranger_to_a_request_that_may_be_passed_on_is_none(self: Any) -> None:
        """
        Who does not know the transaction was not given the request.
        """
        self.serve(lambda request: request.keep())
        eve = self.program("eve")
        waiting = self.a.request(LAMP, forward=True, timeout=3)
        self.net.pump()
        for id in range(50):
            eve.send(
                {
                    "id": id,
                    "type": "response",
                    "from": eve.runtime,
                    "to": self.a.runtime,
                    "body": {"code": 200},
                }
            )

        self.net.advance(4)

        with self.assertRaises(TimedOut):
            self.a.result(waiting)

    def test_what_a_handler_does_not_handle_is_answered_501(self: Any) -> None:
        """
        Not handled is a value of its own, and neither None nor an error.
        """
        self.serve(lambda request: NOT_HANDLED if request.type == "read" else None)

        with self.assertRaises(Refused) as caught:
            self.a.result(self.a.request(LAMP))
        told = caught.exception
        self.assertEqual((501, "not processed", "not-handled"), (told.code, told.text, told.body["reason"]))
        self.assertEqual({"code": 200}, self.ask(type="execute").body)

    def test_a_request_that_is_kept_is_never_answered(self: Any) -> None:
        """
        Neither by what the handler returns nor when the message is gone.
        """
        self.serve(lambda request: request.keep() and {"not": "sent"})
        gc.freeze()
        waiting = self.a.request(LAMP, timeout=3)
        self.net.pump()
        gc.collect()

        self.net.advance(4)

        with self.assertRaises(TimedOut):
            self.a.result(waiting)

    def test_a_handler_may_answer_with_the_body_it_changed(self: Any) -> None:
        """
        The body it got, changed, and returned.
        """

        def double(request: Message) -> dict[str, Any]:
            request.body["value"] *= 2
            return request.body

        self.serve(double)

        self.assertEqual({"code": 200, "value": 42, "x": 1}, self.ask({"value": 21, "x": 1}).body)

    def test_forwarded_and_refused(self: Any) -> None:
        """
        The refusal of a forwarded request is passed on.
        """
        other = "hyperty://example.org/other"
        self.serve(lambda request: request.forward(other))
        c = self.program("c")

        def refuse(request: Message) -> None:
            raise Refused(404, "no such lamp")

        c.result(c.subscribe(other, refuse))

        self.assertEqual((404, "no such lamp"), self.refusal(self.a.request(LAMP)))

    def test_forwarded_to_nobody(self: Any) -> None:
        """
        A request that is forwarded to nobody goes back with 504.
        """
        self.serve(lambda request: request.forward("hyperty://example.org/nobody", 3))
        asked = self.a.request(LAMP)

        self.net.advance(4)

        self.assertEqual(504, self.refusal(asked)[0])

    def test_handler_fails(self: Any) -> None:
        """
        A handler that raises is answered for: 500, and its own log has the traceback.
        """

        def fail(request: Message) -> None:
            raise ZeroDivisionError("oh")

        self.serve(fail)

        self.assertEqual((500, "the recipient failed over this message"), self.refusal(self.a.request(LAMP)))
        self.assertEqual(1, len(self.flushLoggedErrors(ZeroDivisionError)))

    def test_an_answer_that_is_no_json_fails_alone(self: Any) -> None:
        """
        A handler that returns what JSON does not have has failed; the connection and the next request go on.
        """
        self.serve(lambda request: request.body.get("n") or object())

        self.assertEqual((500, "the recipient failed over this message"), self.refusal(self.a.request(LAMP)))
        self.assertEqual(1, len(self.flushLoggedErrors(TypeError)))
        self.assertEqual({"code": 200, "value": 5}, self.ask({"n": 5}).body)
        self.assertTrue(self.b.is_open)

    def test_a_refusal_whose_body_is_no_json_is_answered_without_it(self: Any) -> None:
        """
        The sender gets the code and the text; the mistake is in the log, and the connection stays.
        """

        def refusing(request: Message) -> None:
            raise Refused(403, "not yours", {"why": object()})

        self.serve(refusing)

        self.assertEqual((403, "not yours"), self.refusal(self.a.request(LAMP)))
        self.assertEqual(1, len(self.flushLoggedErrors(TypeError)))
        self.assertTrue(self.b.is_open)

    def test_a_text_with_a_lone_surrogate_is_returned_as_it_came(self: Any) -> None:
        """
        Half of a character is no UTF-8, but JSON may have it as an escape.
        """
        self.serve(lambda request: request.body)

        self.assertEqual("\ud800", self.ask({"a": "\ud800"}).body["a"])

    def test_a_number_of_thousands_of_digits_is_a_message_too(self: Any) -> None:
        """
        It is read as an approximation, so its sender gets an answer.
        """
        self.serve(lambda request: {"is_number": isinstance(request.body["n"], float)})

        answer = self.a.result(self.a.request(LAMP, {"n": Raw(b"9" * 5000)}))

        self.assertEqual({"code": 200, "is_number": True}, answer.body)

    def test_nobody_handles(self: Any) -> None:
        """
        A request for which a runtime has no handler goes back with 404.
        """
        c = self.program("c", heard=None)

        code, text = self.refusal(self.a.request(f"{c.runtime}/x"))

        self.assertEqual((404, f"nobody answers at {c.runtime}/x in this runtime"), (code, text))

    def test_news_is_not_answered(self: Any) -> None:
        """
        What a handler returns for an update, or for what went to many, goes nowhere.
        """
        self.b.result(self.b.subscribe([f"{LAMP}/children/", LAMP], lambda message: "thank you"))

        self.a.publish(LAMP, {"value": 1})
        self.a.publish(f"{LAMP}/children/", {"value": 1}, type="create")
        self.net.pump()

        self.assertEqual([], self.a.came)

    def test_nearest_handler(self: Any) -> None:
        """
        A handler serves the addresses below its own too, unless one is nearer.
        """
        self.b.handle(self.b.runtime, lambda request: "all")
        self.b.handle(f"{self.b.runtime}/lamp", lambda request: "lamp")

        values = [
            self.a.result(self.a.request(f"{self.b.runtime}/{path}")).body["value"]
            for path in ("door", "lamp", "lamp/1")
        ]

        self.assertEqual(["all", "lamp", "lamp"], values)

    # -- asking ------------------------------------------------------------------

    def test_request_the_node_refuses_fails_with_its_code(self: Any) -> None:
        """
        A request the node refuses fails with its code, its words and the body.
        """
        self.assertEqual(
            (501, "this node has no service at domain://registry.example.org"),
            self.refusal(self.a.find("user://example.org/ann")),
        )

    def test_node_complains(self: Any) -> None:
        """
        What mn:/validator says about a request is its answer.
        """
        asked = self.a.request("hyperty://example.org/x", from_="mn:/session")

        # The complaint goes to the `from` of the message, on this connection.
        self.assertEqual(403, self.refusal(asked)[0])

    def test_times_out(self: Any) -> None:
        """
        A request nobody answers fails, and a late answer is like any message.
        """
        held: list[Message] = []
        self.serve(lambda request: held.append(request.hold()))
        asked = self.a.request(LAMP, timeout=3)
        self.net.advance(4)

        with self.assertRaisesRegex(TimedOut, f"no answer from {LAMP} within 3 s"):
            self.a.result(asked)
        held[0].answer(1)
        self.net.pump()
        self.assertEqual(["response"], [message.type for message in self.a.came])

    def test_no_answer_of_others(self: Any) -> None:
        """
        A response from an address that was not asked is none.
        """
        asked = self.a.request(LAMP)
        self.b.send({"id": 1, "type": "response", "from": "hyperty://evil", "to": self.a.runtime})
        self.net.pump()

        self.assertNoResult(asked)
        asked.addErrback(lambda _: None)

    def test_code_below_200_is_not_the_answer_yet(self: Any) -> None:
        """
        A code below 200 is not the answer yet.
        """

        def twice(request: Message) -> None:
            body = {"code": 100}
            self.b.send(
                {"id": request.id, "type": "response", "from": LAMP, "to": request.from_, "body": body}
            )

        self.serve(twice)

        self.assertEqual(200, self.ask().body["code"])

    def test_odd_answers(self: Any) -> None:
        """
        An answer in capitals, with its code as a text or with none at all, is an answer.
        """
        for code, known in (("200", True), ("404", False), (None, True), ({}, True)):

            def answer(request: Message, code: Any = code) -> None:
                request.hold()
                message = {"id": request.id, "type": "RESPONSE", "from": LAMP, "to": request.from_}
                self.b.send({**message, "body": {"code": code, "value": 1}})

            self.b.handle(LAMP, answer)
            self.b.result(self.b.subscribe(LAMP))
            if known:
                self.assertEqual(1, self.ask().body["value"])
            else:
                self.assertEqual(404, self.refusal(self.a.request(LAMP))[0])

    def test_delivery_fires_with_what_became(self: Any) -> None:
        """
        A delivery fires with what became of it; the recipient acknowledges by itself.
        """
        delivered = self.a.deliver(f"{self.b.runtime}/x", {"value": 1})
        self.net.advance(1)

        self.assertEqual(200, self.a.result(delivered).body["code"])
        self.assertEqual([{"value": 1}], [message.body for message in self.b.came])

    def test_publishes_in_order(self: Any) -> None:
        """
        A thousand updates arrive, each once and in order, and are acknowledged.
        """
        self.b.result(self.b.subscribe("comm://example.org/o/changes"))

        for number in range(1000):
            self.a.publish("comm://example.org/o/changes", number)
        flushed = self.a.flushed()
        self.net.advance(1)

        self.successResultOf(flushed)
        self.assertEqual(list(range(1000)), [message.body["value"] for message in self.b.came])

    # -- addresses ---------------------------------------------------------------

    def test_allocates(self: Any) -> None:
        """
        Allocated addresses are bound, until they are freed.
        """
        made = self.b.result(self.b.allocate(2, scheme="comm", handler=lambda request: "here"))
        reply = self.a.result(self.a.request(made[1]))

        self.b.result(self.b.free(made))
        self.a.publish(made[0])
        self.net.pump()

        self.assertEqual("here", reply.body["value"])
        self.assertTrue(all(address.startswith("comm://example.org/") for address in made))
        self.assertEqual([], self.b.came)

    def test_unsubscribes(self: Any) -> None:
        """
        An address that was unsubscribed is not heard any more.
        """
        self.b.result(self.b.subscribe(LAMP))
        self.b.result(self.b.unsubscribe(LAMP))

        self.a.publish(LAMP)
        self.net.pump()

        self.assertEqual([], self.b.came)

    def test_client_without_runtime_url_gets_one(self: Any) -> None:
        """
        Without a runtimeURL the node makes one up, and the client learns the domain by it.
        """
        c = self.program("")

        self.assertRegex(c.runtime, "^runtime://example.org/anonymous-")
        self.assertEqual("example.org", c.domain)
        c.result(c.subscribe(LAMP, lambda request: 1))
        self.assertEqual(1, self.ask().body["value"])

    # -- the end -------------------------------------------------------------------

    def test_close_ends_session_and_waiting_requests(self: Any) -> None:
        """
        Closing ends the session and its addresses, after all that was sent; who waits for an answer is told.
        """
        self.a.result(self.a.subscribe(LAMP))
        asked = self.a.request("hyperty://example.org/nobody")
        self.a.publish(f"{self.b.runtime}/x", 1)

        closed = self.a.close()

        self.net.pump()
        self.successResultOf(closed)
        self.failureResultOf(asked, Closed)
        self.assertEqual([1], [message.body["value"] for message in self.b.came])
        self.assertIsNone(self.net.node.sessions.get(self.a.runtime))
        self.net.advance(60)
        self.assertEqual(1, self.a.endpoint.attempts)

    def test_closes_after_an_acknowledgement(self: Any) -> None:
        """
        A client that closes says first what it has received, so that its sender's receipt is true.
        """
        self.b.heard = lambda message: self.b.close() and None
        delivered = self.a.deliver(f"{self.b.runtime}/x")

        self.assertEqual(200, self.a.result(delivered).body["code"])

    def test_client_may_leave_its_session_for_another(self: Any) -> None:
        """
        A client may leave and its session stay, for another one that has the token.
        """
        self.b.result(self.b.subscribe(LAMP))
        self.successful(self.b.close(end=False))
        self.a.publish(LAMP, 1)
        self.net.pump()

        again = self.program("b", token=self.b.token)

        self.net.pump()
        self.assertEqual([1], [message.body["value"] for message in again.came])
        self.assertEqual(self.b.token, again.token)

    def successful(self: Any, deferred: Any) -> None:
        self.net.pump()
        self.successResultOf(deferred)

    def test_no_timers_left(self: Any) -> None:
        """
        A client that is closed leaves no timer behind.
        """
        self.serve(lambda request: request.hold())
        self.a.request(LAMP).addErrback(lambda _: None)
        self.net.pump()
        for program in (self.a, self.b):
            program.close()
        self.net.pump()
        del program
        gc.collect()

        mine = [call for call in self.net.clock.getDelayedCalls() if "client" in repr(call.func)]
        self.assertEqual([], mine)


class LineClientTests(ClientSuite, SynchronousTestCase):
    """
    By lines.
    """


class WebSocketClientTests(ClientSuite, SynchronousTestCase):
    """
    By WebSocket.
    """

    wire = "web"


class PollingClientTests(ClientSuite, SynchronousTestCase):
    """
    By long-polling.
    """

    wire = "poll"
