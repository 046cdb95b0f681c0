"""
Typed messages of the Python client: what is sent, what a handler gets, and what goes back.
"""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from msgnode.client import NOT_HANDLED, Message, Refused
from msgnode.client.handlers import MAX_WAITING, Handlers
from tests.support.generated import python_classes
from tests.support.network import Network
from tests.support.programs import Program

LAMP = "hyperty://example.org/lamp"
with TemporaryDirectory() as _place:
    CLASSES = python_classes(Path(_place))
GetTemperature: Any = CLASSES["GET_TEMPERATURE"]
Answer: Any = GetTemperature.ANSWER
Position: Any = CLASSES["POSITION"]  # answers have the same slots
NodeAdded: Any = CLASSES["NOTIFY_REMOTE_NODE_ADDED"]  # answers have none
ONE_PLACE = {"latitude": 1.5, "longitude": -2.0}


class Sender:
    """
    A client as messages need it, which keeps what is sent.
    """

    reactor: Any = None
    stopped: Exception | None = None
    runtime = "runtime://example.org/b"
    domain = "example.org"

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    def request(self, to: str, body: Any = None, **header: Any) -> Deferred[Message]:
        return Deferred()

    def pass_on(self, request: dict[str, Any], to: str) -> None:
        pass


class RecordTests(SynchronousTestCase):
    """
    A program `a` that asks, and a program `b` at LAMP.
    """

    def setUp(self) -> None:
        self.net = Network()
        self.a, self.b = Program(self.net, "a").opened(), Program(self.net, "b").opened()
        self.b.result(self.b.subscribe(LAMP))

    def ask(self, body: Any, **how: Any) -> Message:
        reply: Message = self.a.result(self.a.request(LAMP, body, **how))
        return reply

    def refusal(self, body: Any, **how: Any) -> tuple[int, str, str]:
        with self.assertRaises(Refused) as caught:
            self.ask(body, **how)
        return caught.exception.code, caught.exception.text, caught.exception.reason

    # -- typed both ways ---------------------------------------------------------

    def test_a_typed_request_gets_a_typed_answer(self) -> None:
        """
        The request names its record, its body has the slots by name, and the answer is an object again.
        """
        seen: list[Message] = []

        @self.b.handle(GetTemperature)
        def temperature(message: Message) -> Any:
            seen.append(message)
            return Answer(temperature=21.5, serial=2**63 - 1, where=Position(**ONE_PLACE))

        reply = self.ask(GetTemperature(room="hall", big=2**60))

        self.assertEqual(GetTemperature(room="hall", big=2**60), seen[0].record)
        self.assertEqual(GetTemperature.ID, seen[0].fields["record"])
        self.assertEqual({"ROOM": "hall", "BIG": str(2**60)}, seen[0].body)
        self.assertEqual(
            Answer(temperature=21.5, serial=2**63 - 1, where=Position(**ONE_PLACE)), reply.record
        )
        self.assertEqual((GetTemperature.ID, 200), (reply.fields["record"], reply.body["code"]))

    def test_publications_and_deliveries_are_typed_too(self) -> None:
        """
        A record that is published reaches the handler of its record; nothing is answered.
        """
        seen: list[Any] = []
        self.b.handle(NodeAdded, lambda message: seen.append(message.record))
        told = NodeAdded(remote_node="mn://b.example/n1", type="SERVER")

        self.a.publish(LAMP, told)
        delivered = self.a.deliver(LAMP, told)
        self.net.advance(1)  # b acknowledges what it has
        receipt = self.a.result(delivered)

        self.assertEqual(([told, told], 200), (seen, receipt.code))
        self.assertEqual([], self.a.came)

    def test_members_that_are_no_slots_are_kept(self) -> None:
        """
        Slots of a newer definition reach the handler and the asker; those of the envelope do not.
        """
        seen: list[Any] = []

        def temperature(message: Message) -> Any:
            seen.append(message.record.extra)
            return Answer(temperature=1.0, extra={"NEWER": [1]})

        self.b.handle(GetTemperature, temperature)

        reply = self.ask(GetTemperature(room="hall", extra={"LATER": {"a": None}}))

        self.assertEqual(([{"LATER": {"a": None}}], {"NEWER": [1]}), (seen, reply.record.extra))

    # -- what goes back --------------------------------------------------------------

    def test_the_record_goes_back_as_the_handler_left_it(self) -> None:
        """
        A handler that returns nothing answers with `reply`, in which slots of both directions have the
        values of the request.
        """

        def temperature(message: Message) -> None:
            message.reply.temperature = 20.0

        self.b.handle(GetTemperature, temperature)

        reply = self.ask(GetTemperature(room="hall", labels={"a": "b"}))

        self.assertEqual(Answer(temperature=20.0, labels={"a": "b"}), reply.record)

    def test_a_record_with_one_set_of_slots_goes_back_itself(self) -> None:
        """
        Where request and answer have the same slots, what the handler changed in the request is the answer.
        """

        def move(message: Message) -> None:
            message.record.latitude += 1

        self.b.handle(Position, move)

        reply = self.ask(Position(**ONE_PLACE, extra={"LATER": 1}))

        self.assertEqual(Position(latitude=2.5, longitude=-2.0, extra={"LATER": 1}), reply.record)

    def test_an_answer_without_slots_is_plain_success(self) -> None:
        """
        A record that has no slots of answers is answered with its code alone, and `record` is None.
        """
        self.b.handle(NodeAdded, lambda message: None)

        reply = self.ask(NodeAdded(remote_node="mn://b.example/n1", type="SERVER"))

        self.assertEqual(({"code": 200}, None), (reply.body, reply.record))

    def test_a_held_request_is_answered_with_a_record_later(self) -> None:
        """
        Hold works as for any message, and `answer` takes a record, or sends `reply`.
        """
        held: list[Message] = []
        self.b.handle(GetTemperature, lambda message: held.append(message.hold()))
        asked = [self.a.request(LAMP, GetTemperature(room="hall")) for _ in range(2)]
        self.net.pump()

        held[0].answer(Answer(temperature=1.0))
        held[1].reply.temperature = 2.0
        held[1].answer()

        self.assertEqual([1.0, 2.0], [self.a.result(each).record.temperature for each in asked])

    def test_a_body_is_an_answer_if_it_fits(self) -> None:
        """
        A handler may return a body with the slots by name.
        """
        self.b.handle(GetTemperature, lambda message: {"TEMPERATURE": 3})

        self.assertEqual(Answer(temperature=3.0), self.ask(GetTemperature(room="hall")).record)

    def test_an_answer_that_does_not_fit_is_the_mistake_of_the_handler(self) -> None:
        """
        A wrong body, another record, and a mandatory slot that was not filled in are 500, and logged.
        """
        answers: list[Any] = [{"TEMPERATURE": "warm"}, Position(**ONE_PLACE), None, 5]
        self.b.handle(GetTemperature, lambda message: answers.pop(0))

        codes = [self.refusal(GetTemperature(room="hall"))[0] for _ in range(4)]

        self.assertEqual([500] * 4, codes)
        self.assertEqual(4, len(self.flushLoggedErrors(TypeError, ValueError)))

    def test_a_handler_refuses_typed_requests_as_others(self) -> None:
        """
        Refused is an answer with its code; it need not have the slots.
        """

        def refuse(message: Message) -> None:
            raise Refused(403, "not yours")

        self.b.handle(GetTemperature, refuse)

        self.assertEqual((403, "not yours"), self.refusal(GetTemperature(room="hall"))[:2])

    # -- wrong bodies ------------------------------------------------------------------

    def test_a_wrong_body_is_refused_before_the_handler(self) -> None:
        """
        The sender gets 400 with the slot, and the handler nothing.
        """
        seen: list[Message] = []
        self.b.handle(GetTemperature, seen.append)

        wrong = self.refusal({"ROOM": 5}, record=GetTemperature.ID)
        missing = self.refusal({}, record=GetTemperature.ID.upper())
        self.a.publish(LAMP, {"ROOM": 5}, record=GetTemperature.ID)
        self.net.pump()

        self.assertEqual((400, "this is no GET_TEMPERATURE: ROOM: expected STRING, found 5", "record"), wrong)
        self.assertEqual(
            (400, "this is no GET_TEMPERATURE: ROOM: expected STRING, found nothing", "record"), missing
        )
        self.assertEqual([], seen + self.a.came)

    def test_a_body_with_names_and_keys_is_refused_before_the_handler(self) -> None:
        """
        The sender gets 400 with the key, as from a node, be it of a slot of the record or a newer one.
        """
        self.b.handle(GetTemperature, lambda message: self.fail("it was handled"))
        for key in ("2", "99"):
            why = f"{key}: expected slots by name, as ROOM, or all by key, found 'x'"

            refused = self.refusal({"ROOM": "hall", key: "x"}, record=GetTemperature.ID)

            self.assertEqual((400, f"this is no GET_TEMPERATURE: {why}", "record"), refused)

    def test_an_ill_typed_answer_is_refused_to_its_asker(self) -> None:
        """
        An answer that does not fit the record of the request is 502 with the reason `record`.
        """
        self.b.handle(LAMP, lambda message: {"TEMPERATURE": "warm"})

        code, text, reason = self.refusal(GetTemperature(room="hall"))

        self.assertEqual((502, "record"), (code, reason))
        self.assertIn("TEMPERATURE: expected DOUBLE, found 'warm'", text)

    def test_an_answer_without_types_is_read(self) -> None:
        """
        A recipient that knows nothing of records answers JSON; the asker has an object nevertheless.
        """
        self.b.handle(LAMP, lambda message: {"TEMPERATURE": 4})

        self.assertEqual(4.0, self.ask(GetTemperature(room="hall")).record.temperature)

    # -- which handler -------------------------------------------------------------------

    def test_handlers_are_asked_by_record_then_by_address_then_the_last(self) -> None:
        """
        NOT_HANDLED, also of a coroutine, lets the next be asked; after the last the sender gets 501.
        """
        asked: list[tuple[str, bool]] = []

        def passing(name: str) -> Callable[[Message], Any]:
            async def handler(message: Message) -> Any:
                asked.append((name, message.record is not None))
                return NOT_HANDLED

            return handler

        self.b.handle("*", passing("last"))
        self.b.handle(LAMP, passing("address"))
        self.b.handle(GetTemperature, passing("record"))

        code, _, reason = self.refusal(GetTemperature(room="hall"))

        self.assertEqual((501, "not-handled"), (code, reason))
        self.assertEqual([("record", True), ("address", False), ("last", False)], asked)

    def test_an_answer_that_comes_late_is_no_request(self) -> None:
        """
        A response with a record that nobody waits for does not reach the handler of requests.
        """
        seen: list[Message] = []
        self.b.handle(GetTemperature, seen.append)
        response = {"id": 9, "type": "response", "from": self.a.runtime, "to": LAMP}

        self.a.send({**response, "record": GetTemperature.ID, "body": {"TEMPERATURE": 1}})
        self.net.pump()

        self.assertEqual(([], ["response"]), (seen, [message.type for message in self.b.came]))

    def test_a_typed_request_is_forwarded_as_it_is(self) -> None:
        """
        Whether the sender allows it or not, the third gets the typed request, and the sender a typed answer.
        """
        third = Program(self.net, "c").opened()
        third.result(third.subscribe(f"{LAMP}/2"))
        third.handle(GetTemperature, lambda message: Answer(temperature=float(len(message.record.room))))
        self.b.handle(GetTemperature, lambda message: message.forward(f"{LAMP}/2"))

        replies = [self.ask(GetTemperature(room="hall"), forward=allowed) for allowed in (True, False)]

        self.assertEqual([f"{LAMP}/2", LAMP], [reply.from_ for reply in replies])
        self.assertEqual([4.0, 4.0], [reply.record.temperature for reply in replies])
        self.assertEqual([GetTemperature.ID] * 2, [reply.fields["record"] for reply in replies])

    def test_what_wants_no_answer_gets_none(self) -> None:
        """
        With `answer=False` a request is handled and not answered.
        """
        seen: list[Any] = []
        self.b.handle(GetTemperature, lambda message: seen.append(message.record.room))

        self.a.publish(LAMP, GetTemperature(room="hall"), type="execute", answer=False)
        self.net.pump()

        self.assertEqual((["hall"], []), (seen, self.a.came))

    def test_handlers_are_for_addresses_and_records_only(self) -> None:
        """
        A record in the place of its class is a mistake that is told at once.
        """
        with self.assertRaisesRegex(TypeError, "a handler is for an address or a class of a record"):
            self.b.handle(GetTemperature(room="hall"), print)


class TurnTests(SynchronousTestCase):
    """
    Handlers that wait for something else, at LAMP in the program `b`.
    """

    def setUp(self) -> None:
        self.net = Network()
        self.a, self.b = Program(self.net, "a").opened(), Program(self.net, "b").opened()
        self.log: list[str] = []
        self.gates: list[Deferred[None]] = []

    async def slowly(self, message: Message) -> Any:
        self.log.append(f"begin {message.body['n']}")
        self.gates.append(Deferred())
        await self.gates[-1]
        self.log.append(f"end {message.body['n']}")
        return message.body["n"]

    def asked(self, number: int) -> list[Deferred[Message]]:
        made = [self.a.request(LAMP, {"n": n}) for n in range(number)]
        self.net.pump()
        return made

    def test_coroutines_interleave_where_they_wait(self) -> None:
        """
        While one waits, the next begins.
        """
        self.b.result(self.b.subscribe(LAMP, self.slowly))
        asked = self.asked(2)
        self.gates[1].callback(None)
        self.gates[0].callback(None)

        self.assertEqual(["begin 0", "begin 1", "end 1", "end 0"], self.log)
        self.assertEqual([0, 1], [self.a.result(each).body["value"] for each in asked])

    def test_a_serial_handler_has_one_message_at_a_time(self) -> None:
        """
        The next message waits until the handler is done with the one before.
        """
        self.b.result(self.b.subscribe(LAMP, self.slowly, serial=True))
        asked = self.asked(2)
        self.gates[0].callback(None)
        self.gates[1].callback(None)

        self.assertEqual(["begin 0", "end 0", "begin 1", "end 1"], self.log)
        self.assertEqual([0, 1], [self.a.result(each).body["value"] for each in asked])

    def test_a_serial_handler_goes_on_after_an_error(self) -> None:
        """
        A message over which the handler fails does not stop the others.
        """

        async def fail(message: Message) -> int:
            return 10 // int(message.body["n"])

        self.b.result(self.b.subscribe(LAMP, fail, serial=True))
        failed, done = self.asked(2)

        self.failureResultOf(failed, Refused)
        self.assertEqual(10, self.a.result(done).body["value"])
        self.assertEqual(1, len(self.flushLoggedErrors(ZeroDivisionError)))

    def test_thousands_that_wait_for_a_serial_handler_are_handled_in_order(self) -> None:
        """
        Once the first is done the others follow, however many they are; the sender of one too many gets 503.
        """
        gate: Deferred[None] = Deferred()
        done: list[int] = []

        async def wait(message: Message) -> None:
            await gate
            done.append(message.body["n"])

        sender = Sender()
        handlers = Handlers(Deferred.fromCoroutine)
        handlers.add([LAMP], wait, serial=True)
        for n in range(MAX_WAITING + 3):
            handlers.offer(
                Message({"id": n, "type": "read", "from": "a", "to": LAMP, "body": {"n": n}}, sender)
            )
        refused, sender.sent = sender.sent, []
        gate.callback(None)

        self.assertEqual([MAX_WAITING + 1, MAX_WAITING + 2], [answer["id"] for answer in refused])
        self.assertEqual([(503, "overflow")] * 2, [(a["body"]["code"], a["body"]["reason"]) for a in refused])
        self.assertEqual(list(range(MAX_WAITING + 1)), done)
        self.assertEqual(done, [answer["id"] for answer in sender.sent])

    def test_answers_do_not_queue_behind_a_handler(self) -> None:
        """
        A serial handler that asks another gets the answer, though messages wait for it.
        """
        other = "hyperty://example.org/other"
        self.a.result(self.a.subscribe(other, lambda message: message.body["n"] + 1))

        async def ask_on(message: Message) -> Any:
            return (await self.b.request(other, message.body)).body["value"]

        self.b.result(self.b.subscribe(LAMP, ask_on, serial=True))

        values = [self.a.result(each).body["value"] for each in self.asked(3)]

        self.assertEqual([1, 2, 3], values)

    def test_synchronous_handlers_never_overlap(self) -> None:
        """
        Messages that a handler causes are handled after it has returned.
        """

        def handler(message: Message) -> None:
            n = message.body["n"]
            self.log.append(f"begin {n}")
            if n:
                self.b.publish(LAMP, {"n": n - 1})
            self.log.append(f"end {n}")

        self.b.result(self.b.subscribe(LAMP, handler))
        self.a.publish(LAMP, {"n": 2})
        self.net.pump()

        self.assertEqual([f"{what} {n}" for n in (2, 1, 0) for what in ("begin", "end")], self.log)
