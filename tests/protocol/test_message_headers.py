"""
The header fields `transaction` and `log`: what stands in every answer, and what nobody writes down.
"""

import json
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.storage.traffic_log import TrafficLog
from tests.support.fakes import Client, MemoryNode, directory, refused_codes
from tests.support.made_policies import rule, use
from tests.support.registry import GLOBAL, REGISTRY, RegistryNode

ANN, BOB = "runtime://example.org/ann", "runtime://example.org/bob"
SM = "domain://msg-node.example.org/sm"
TOKEN = "mns_" + "a" * 43


class TransactionTests(SynchronousTestCase):
    """
    What the node answers says which transaction it belongs to.
    """

    def setUp(self) -> None:
        self.node = MemoryNode()
        self.ann = self.node.client(ANN)

    def told(self, **fields: Any) -> dict[str, Any]:
        """
        What the node says to a message.
        """
        self.ann.tell({"id": 5, "type": "read", "from": f"{ANN}/x", "transaction": "T1", **fields})
        (answer,) = self.ann.take()
        return answer

    def test_who_asks_the_node_for_something_finds(self) -> None:
        """
        Who asks the node for something finds the transaction in the answer.
        """
        answer = self.told(type="subscribe", to=SM, body={"resources": ["comm://example.org/1"]})

        self.assertEqual(("T1", 200), (answer["transaction"], answer["body"]["code"]))

    def test_integers(self) -> None:
        """
        An integer stays one, and 0 is one like any other.
        """
        found = [
            self.told(type="subscribe", to=SM, body={"resources": ["x"]}, transaction=number)["transaction"]
            for number in (0, -7, 2**63 - 1)
        ]

        self.assertEqual([0, -7, 2**63 - 1], found)

    def test_mn_session_copies_it_too(self) -> None:
        """
        mn:/session copies it, too.
        """
        bob = Client(self.node)
        bob.tell({"id": 1, "type": "open", "from": BOB, "to": "mn:/session", "transaction": "T2"})
        bob.tell({"id": 2, "type": "ping", "from": BOB, "to": "mn:/session", "transaction": "T3"})

        self.assertEqual(["T2", "T3"], [answer["transaction"] for answer in bob.take()])

    def test_refusal_has_it_whoever_refuses(self) -> None:
        """
        A refusal has it, whoever refuses: a responder, the validator, a policy.
        """
        found = [
            self.told(to=SM),
            self.told(to="domain://weather.example.org"),
            self.told(to=BOB, **{"from": "mn:/session"}),
            self.told(to=[]),
            self.told(to=BOB, body=[]),
            self.told(to=BOB, priority=10),
        ]
        use(self.node, rule("deny"))
        found.append(self.told(to=BOB))

        self.assertEqual([400, 501, 403, 400, 400, 400, 403], [each["body"]["code"] for each in found])
        self.assertEqual(["T1"] * 7, [each["transaction"] for each in found])

    def test_receipts(self) -> None:
        """
        A receipt has it, also one that comes long after the message.
        """
        bob = self.node.client(BOB)
        first = self.told(to=BOB, type="event", receipt=True)
        bob.drop()
        self.ann.post(BOB, "event", receipt=True, ttl=1, transaction="T4")
        self.node.clock.advance(2)
        (late,) = self.ann.take()

        self.assertEqual(("T1", 202), (first["transaction"], first["body"]["code"]))
        self.assertEqual(("T4", 408), (late["transaction"], late["body"]["code"]))

    def test_each_answer_to_a_message_for_several_has(self) -> None:
        """
        Each answer to a message for several has it, and so has each copy.
        """
        bob = self.node.client(BOB)

        self.ann.post([BOB, f"{BOB}/y", "comm://example.org/nobody"], receipt=True, transaction="T5")

        self.assertEqual(["T5", "T5"], [copy["transaction"] for copy in bob.take()])
        self.assertEqual(["T5", "T5", "T5"], [receipt["transaction"] for receipt in self.ann.take()])

    def test_without_one_or_with_null_nothing_is_added(self) -> None:
        """
        Without one, or with null, nothing is added to an answer.
        """
        self.ann.tell({"id": 5, "type": "read", "from": f"{ANN}/x", "to": SM})
        plain = self.ann.take()[0]

        null = self.told(to=SM, transaction=None)

        self.assertEqual({"id", "type", "from", "to", "body"}, set(plain))
        self.assertEqual(plain, null)

    def test_of_the_wrong_type_or_too_long_it_is_refused(self) -> None:
        """
        Of the wrong type, or too long, it is refused by its name; the session goes on.
        """
        for wrong in (True, 1.5, {}, [], "x" * 65, 2**63, -(2**63) - 1):
            answer = self.told(to=BOB, transaction=wrong)

            self.assertEqual(400, answer["body"]["code"])
            self.assertIn("'transaction' must be a text of at most 64", answer["body"]["desc"])
            self.assertNotIn("transaction", answer)

        self.assertEqual("é" * 64, self.told(to=SM, transaction="é" * 64)["transaction"])

    def test_wrong_flags(self) -> None:
        """
        `bulk` and `log` are true or false.
        """
        for name in ("bulk", "log"):
            for wrong in (1, "true", None):
                answer = self.told(to=BOB, **{name: wrong})

                self.assertIn(f"'{name}' must be true or false", answer["body"]["desc"])

    def test_none_of_these_fields_may_stand_twice_however(self) -> None:
        """
        None of these fields may stand twice, however the two are written.
        """
        start = f'{{"id":5,"type":"read","from":"{ANN}/x","to":"{BOB}"'
        for name, values in (
            ("transaction", ('"a"', '"b"', "1", "null", '"\\""')),
            ("log", ("true", "false")),
            ("bulk", ("true", "false")),
        ):
            for one in values:
                for other in values:
                    self.ann.tell(f'{start},"{name}":{one},"{name}":{other},"body":{{}}}}'.encode())

                    self.assertIn(f"'{name}' occurs twice", self.ann.take()[0]["body"]["desc"])

    def test_token_in_a_transaction_is_refused(self) -> None:
        """
        A token in it is refused, and stands neither in the answer nor in the log.
        """
        answer = self.told(to=BOB, transaction=TOKEN)

        self.assertEqual((400, "*" * 47), (answer["body"]["code"], answer["transaction"]))
        self.assertNotIn("mns_", repr(self.node.traffic_recorder.messages))


class QuietTests(SynchronousTestCase):
    """
    A sender may ask for nothing to be written down.
    """

    def start(self, always: bool = False) -> None:
        self.place = directory(self)
        log = self.log = TrafficLog(str(self.place), "test", Clock(), always=lambda: always)
        self.node = MemoryNode(
            traffic_recorder=log, traffic_log_always=always, policy={"permit_sample_rate": 1.0}
        )
        log.counts = self.node.counts
        log.startService()
        self.ann, self.bob = self.node.client(ANN), self.node.client(BOB)

    def written(self) -> list[dict[str, Any]]:
        self.log.stopService()
        lines = [json.loads(line) for path in self.place.iterdir() for line in path.read_bytes().splitlines()]
        return [line for line in lines if line["kind"] == "message" and line.get("type") != "open"]

    def test_unlogged_message_is_delivered_and_counted(self) -> None:
        """
        It is delivered as it came, and the traffic log has no line of it; it is counted.
        """
        self.start()

        quiet = self.ann.post(BOB, log=False)
        loud = self.ann.post(BOB, log=True, transaction=0)

        self.assertEqual([quiet, loud], self.bob.got)
        (line,) = self.written()
        self.assertEqual((0, 1), (line["transaction"], self.node.counts.unlogged))

    def test_no_copy_of_a_message_to_a_list_is_written_down(self) -> None:
        """
        No copy of a message to a list is written down either.
        """
        self.start()

        self.ann.post([BOB, f"{BOB}/y", "comm://example.org/nobody"], log=False)

        self.assertEqual([], self.written())
        self.assertEqual(3, self.node.counts.unlogged)

    def test_nor_is_one_that_is_refused_though_the_refusal(self) -> None:
        """
        Nor is one that is refused, though the refusal is counted by its code.
        """
        self.start()

        self.ann.ask(type="read", to=SM, log=False)

        self.assertEqual([], self.written())
        self.assertEqual({400: 1}, refused_codes(self.node.counts))

    def test_nor_one_in_which_something_else_is_wrong_wherever(self) -> None:
        """
        Nor one in which something else is wrong, wherever that stands and however long it is.
        """
        self.start()
        wrong: tuple[dict[str, Any], ...] = (
            {"ttl": "soon", "log": False},
            {"log": False, "ttl": "soon"},
            {"log": False, "body": []},
            {"log": False, "body": [0] * 50_000},
            {"log": False, "to": []},
            {"log": False, "from": 3},
            {"log": False, "id": None},
            {"log": False, "type": "x" * 3000},
        )
        for fields in wrong:
            self.ann.tell({"id": 5, "type": "ping", "from": ANN, "to": BOB, **fields})
        self.ann.tell({"id": 5, "type": "ping", "from": ANN, "to": BOB, "log": "no"})

        (line,) = self.written()
        self.assertEqual("malformed", line["reason"])
        self.assertEqual(
            (8, {(400, "malformed"): 8, (400, "limit"): 1}),
            (self.node.counts.unlogged, self.node.counts.refused),
        )

    def test_what_the_policies_decide_about_it_is_counted(self) -> None:
        """
        What the policies decide about it is counted, and nowhere to be read.
        """
        self.start()
        use(self.node, rule("deny", {"actionType": {"equals": "create"}}), rule("permit"))

        self.ann.post(BOB, "create", log=False)
        self.ann.post(BOB, log=False)

        decisions = self.node.enforcement.decisions
        self.assertEqual(([], 2), (list(decisions.recent), decisions.unlogged))
        self.assertEqual({"deny": 1, "permit": 1}, {tally.effect: tally.hits for tally in decisions})

    def test_operator_may_log_against_the_senders_wish(self) -> None:
        """
        Where the operator writes down everything, a sender's wish does not count.
        """
        self.start(always=True)
        use(self.node, rule("deny", {"actionType": {"equals": "create"}}), rule("permit"))

        self.ann.post(BOB, "create", log=False)
        self.ann.post(BOB, log=False)

        self.assertEqual(["refused", "delivered"], [line["outcome"] for line in self.written()])
        decisions = self.node.enforcement.decisions
        self.assertEqual((1, 0, 0), (len(decisions.recent), decisions.unlogged, self.node.counts.unlogged))


class BehindTests(SynchronousTestCase):
    """
    What a server behind the node answers comes back in the transaction, too.
    """

    def test_what_the_registries_say_of_a_name_and_what_they(self) -> None:
        """
        What the registries say of a name, and what they refuse.
        """
        ann = RegistryNode().client(ANN)

        answers = [
            ann.request(kind, body, to=to, transaction="T6")
            for kind, body, to in (
                ("read", {"resource": "hyperty://example.org/1"}, REGISTRY),
                ("read", {"resource": "x" * 3000}, REGISTRY),
                ("read", {"resource": "a guid"}, GLOBAL),
            )
        ]

        self.assertEqual([404, 413], [answer["body"]["code"] for answer in answers[:2]])
        self.assertEqual(["T6"] * 3, [answer["transaction"] for answer in answers])
