"""
Messages that name a record: what fits passes, and what does not is refused with the name of the slot.
"""

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.bus.records.known_records import read_records
from msgnode.bus.records.record_check import MAX_VALUES
from tests.support.examples import TOP
from tests.support.fakes import Client, MemoryNode, directory

THERMOMETER = str(TOP / "tests/records/thermometer.records.json")
GET_TEMPERATURE = "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a12"
UNKNOWN = "00000000-0000-4000-8000-000000000001"
PAGE, LAMP = "runtime://example.org/page", "runtime://example.org/lamp"


class RecordsCase(SynchronousTestCase):
    """
    A node that knows GET_TEMPERATURE, a page that asks and a lamp that answers.
    """

    check = "known"

    def setUp(self) -> None:
        self.node = MemoryNode(records={"check": self.check, "max_body_bytes": 300_000})
        self.node.known_records.use(read_records(THERMOMETER, ()))
        self.page, self.lamp = self.node.client(PAGE), self.node.client(LAMP)
        self.node.traffic_recorder.messages.clear()

    def send(self, body: Any, record: Any = GET_TEMPERATURE, type: str = "read", **fields: Any) -> Any:
        """
        What the page is told when it sends this to the lamp; None: it is told nothing.
        """
        message = {"id": 1, "type": type, "from": f"{PAGE}/x", "to": LAMP, "record": record, "body": body}
        self.page.tell({**message, **fields})
        return self.page.take()[0] if self.page.raw else None

    def answer(self, body: Any, **fields: Any) -> Client:
        """
        The lamp answers the page; the page.
        """
        message = {"id": 1, "type": "response", "from": LAMP, "to": PAGE, "record": GET_TEMPERATURE}
        self.lamp.tell({**message, "body": body, **fields})
        return self.page


class KnownRecordTests(RecordsCase):
    """
    `check = "known"`, which is the default.
    """

    def test_a_body_that_fits_is_delivered_as_it_was_sent(self) -> None:
        """
        Slots that the definition does not have are passed on.
        """
        self.assertIsNone(self.send({"ROOM": "hall", "NEWER": 1}))

        [got] = self.lamp.take()
        self.assertEqual((GET_TEMPERATURE, {"ROOM": "hall", "NEWER": 1}), (got["record"], got["body"]))
        self.assertEqual(1, self.node.known_records.checked)

    def test_a_slot_of_the_wrong_type_is_answered_400_with_its_name_and_what_was_expected(self) -> None:
        """
        Nothing is delivered; the refusal is counted by the reason `record`.
        """
        body = self.send({"ROOM": 5}, transaction="t")["body"]

        self.assertEqual(
            (400, "record", "ROOM", "STRING"),
            tuple(body[key] for key in ("code", "reason", "slot", "expected")),
        )
        self.assertEqual("this is no GET_TEMPERATURE: ROOM: expected STRING, found 5", body["description"])
        self.assertEqual([], self.lamp.got)
        self.assertEqual(1, self.node.counts.refused[400, "record"])

    def test_a_publication_that_does_not_fit_is_answered_too(self) -> None:
        """
        Its sender would never learn otherwise that nobody gets it.
        """
        self.assertEqual("ROOM", self.send({"ROOM": 5}, type="update")["body"]["slot"])

    def test_a_mandatory_slot_that_is_missing_is_refused(self) -> None:
        for body in ({}, None, {"ROOM": None}):
            self.assertEqual("ROOM", self.send(body)["body"]["slot"])

    def test_slots_by_key_are_checked_and_both_forms_together_are_refused(self) -> None:
        self.assertIsNone(self.send({"1": "hall"}))
        self.assertEqual("ROOM", self.send({"1": 5})["body"]["slot"])
        self.assertEqual("1", self.send({"1": "hall", "UNIT": "KELVIN"})["body"]["slot"])

    def test_the_id_is_found_in_upper_case(self) -> None:
        self.assertEqual("ROOM", self.send({}, record=GET_TEMPERATURE.upper())["body"]["slot"])

    def test_numbers_out_of_range_and_lone_surrogates_are_refused(self) -> None:
        """
        2^63 is one too many for a LONG; a lone surrogate is seen although messages may have some.
        """
        for slot, value in (("BIG", b"9223372036854775808"), ("BIG", b"1e400"), ("NAME", rb'"\ud800"')):
            self.page.tell(
                b'{"id":1,"type":"read","from":"%s/x","to":"%s","record":"%s","body":{"ROOM":"a","%s":%s}}'
                % (PAGE.encode(), LAMP.encode(), GET_TEMPERATURE.encode(), slot.encode(), value)
            )
            [refused] = self.page.take()
            self.assertEqual((400, slot), (refused["body"]["code"], refused["body"]["slot"]))

    def test_a_body_of_any_depth_is_answered_in_the_words_of_its_sender(self) -> None:
        """
        Also where one decoder can read it and another cannot; a body with an escaped surrogate needs both.
        """
        message = {"id": 1, "type": "read", "from": f"{PAGE}/x", "to": LAMP, "record": GET_TEMPERATURE}
        head = json.dumps(message)[:-1]
        for text in (r"\ud83d\ude00", r"\ud800", "hall"):
            for depth in (40, 100, 500, *range(850, 1050), 5000):
                deep = "[" * depth + "]" * depth
                self.page.tell(f'{head},"body":{{"ROOM":"{text}","ANYTHING":{deep}}}}}'.encode())

        codes = {reply["body"]["code"] for reply in self.page.take()}
        self.assertEqual({400}, codes)
        self.assertEqual(2, len(self.lamp.take()))

    def test_a_record_that_is_not_known_passes(self) -> None:
        self.assertIsNone(self.send({"ROOM": 5}, record=UNKNOWN))
        self.assertEqual(1, len(self.lamp.take()))

    def test_a_message_without_a_record_is_not_looked_into(self) -> None:
        self.assertIsNone(self.send({"ROOM": 5}, record=None))
        self.assertEqual(0, self.node.known_records.checked)

    def test_a_record_that_is_no_uuid_is_answered_400_with_the_name_of_the_field(self) -> None:
        long = f"'{'x' * 78}…"
        for wrong, found in (
            (5, "the number 5"),
            ("GET_TEMPERATURE", "'GET_TEMPERATURE'"),
            (f"{GET_TEMPERATURE}\n", f"'{GET_TEMPERATURE}\\n'"),
            ("x" * 100_000, long),
            ({}, "an object"),
        ):
            body = self.send({"ROOM": "hall"}, record=wrong)["body"]
            self.assertEqual(400, body["code"])
            self.assertEqual(f"'record' must be the UUID of a record, not {found}", body["desc"])

    def test_a_transaction_that_is_too_long_is_answered_400_with_its_length(self) -> None:
        body = self.send({"ROOM": "hall"}, transaction="x" * 65)["body"]

        self.assertIn(
            "a text of at most 64 characters, or an integer of at most 64 bits, not a text of 65",
            body["desc"],
        )

    def test_each_copy_of_a_message_to_a_list_has_the_record(self) -> None:
        self.assertIsNone(self.send({"ROOM": "hall"}, to=[LAMP, "runtime://example.org/away"]))
        self.assertEqual(GET_TEMPERATURE, self.lamp.take()[0]["record"])
        self.assertEqual(1, self.node.known_records.checked)

    def test_a_body_that_takes_long_to_check_is_refused(self) -> None:
        """
        By its bytes, and by its values.
        """
        for body in (
            {"ROOM": "h" * 300_000},
            {"ROOM": "hall", "STATES": [1] * (MAX_VALUES + 2)},
            {"ROOM": "hall", "STATES": [[[]]] * (MAX_VALUES // 2)},
        ):
            refused = self.send(body)["body"]
            self.assertEqual((413, True), (refused["code"], "the node checks no 'body'" in refused["desc"]))

    def test_definitions_that_are_replaced_hold_from_the_next_message_on(self) -> None:
        path = directory(self) / "thermometer.records.json"
        slots = [{"key": 1, "name": "ROOM", "type": "LONG"}]
        path.write_text(json.dumps({"records": [{"id": GET_TEMPERATURE, "name": "ANY", "slots": slots}]}))
        self.node.known_records.use(read_records(str(path), ()))

        self.assertIsNone(self.send({"ROOM": 5}))
        self.assertIn("LONG", self.send({"ROOM": "hall"})["body"]["expected"])


class AnswerTests(RecordsCase):
    """
    Answers carry the slots of direction ANSWER.
    """

    def test_an_answer_that_fits_reaches_the_one_who_asked(self) -> None:
        body = {"code": 200, "TEMPERATURE": 21.5}
        self.assertEqual([body], [each["body"] for each in self.answer(body).take()])

    def test_an_ill_typed_answer_is_not_delivered_and_the_asker_gets_502(self) -> None:
        """
        With the id and the transaction of the answer, from where the answer was to come.
        """
        [got] = self.answer({"code": 200, "TEMPERATURE": "warm"}, transaction="t").take()

        self.assertEqual((1, LAMP, "t"), (got["id"], got["from"], got["transaction"]))
        body = got["body"]
        self.assertEqual((502, "record", "TEMPERATURE"), (body["code"], body["reason"], body["slot"]))
        self.assertNotIn("warm", got.get("record", ""))
        self.assertEqual(1, self.node.counts.refused[502, "record"])
        self.assertEqual(502, self.node.traffic_recorder.messages[-1]["code"])

    def test_the_one_who_answers_wrongly_learns_it_by_a_receipt(self) -> None:
        self.answer({"code": 200}, receipt=True)

        [receipt] = self.lamp.take()
        self.assertEqual((400, "record"), (receipt["body"]["code"], receipt["body"]["reason"]))

    def test_a_refusal_and_a_provisional_answer_need_no_slots(self) -> None:
        for code in (100, 300, 404, 500):
            [got] = self.answer({"code": code}).take()
            self.assertEqual(code, got["body"]["code"])


class AllRecordsTests(RecordsCase):
    """
    `check = "all"`.
    """

    check = "all"

    def test_a_record_that_is_not_known_is_refused(self) -> None:
        body = self.send({}, record=UNKNOWN)["body"]
        self.assertEqual((400, f"this node knows no record {UNKNOWN}"), (body["code"], body["desc"]))
        self.assertIsNone(self.send({}, record=None))


class UncheckedTests(RecordsCase):
    """
    `check = "off"`.
    """

    check = "off"

    def test_nothing_is_checked(self) -> None:
        self.assertIsNone(self.send({"ROOM": 5}))
        self.assertEqual(1, len(self.lamp.take()))

    def test_the_check_begins_when_it_is_configured(self) -> None:
        self.node.config.records.check = "known"
        self.node.apply()
        self.assertEqual("ROOM", self.send({"ROOM": 5})["body"]["slot"])
