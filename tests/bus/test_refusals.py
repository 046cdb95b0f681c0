"""
Bad input: what the sender is told, what is counted and written down, and that nobody is harmed.
"""

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.support.fakes import MemoryNode, refused_codes

RUNTIME = "runtime://example.org/a"
SM = "domain://msg-node.example.org/sm"
ALLOCATION = "domain://msg-node.example.org/address-allocation"
PLAIN = {"id": 1, "type": "create", "from": f"{RUNTIME}/x", "to": "runtime://example.org/b"}


def encoded(**fields: Any) -> bytes:
    return json.dumps({**PLAIN, **fields}, separators=(",", ":")).encode()


class RefusalTests(SynchronousTestCase):
    """
    A node with two runtimes, one of which misbehaves.
    """

    def setUp(self) -> None:
        self.node = MemoryNode()
        self.a = self.node.client(RUNTIME)
        self.b = self.node.client("runtime://example.org/b")
        self.node.traffic_recorder.messages.clear()

    def tearDown(self) -> None:
        """
        The session and the connection are as before, and so is everybody else.
        """
        self.assertEqual((None, RUNTIME), (self.a.lost, self.a.session.runtime))
        self.assertEqual((None, []), (self.b.lost, self.b.got))
        message = self.a.post(self.b.runtime)
        self.assertEqual([message], self.b.got)
        self.assertEqual((2, 0), (len(self.node.sessions), len(self.node.routes)))
        self.assertEqual([], self.flushLoggedErrors())

    def refuse(self, data: bytes, code: int, from_: str, to: str, id: Any = 1) -> str:
        """
        What is sent is answered with that code; the words of the answer.
        """
        self.a.tell(data)
        (answer,) = self.a.take()
        text = answer["body"]["desc"]
        expected = {"id": id, "type": "response", "from": from_, "to": to}
        self.assertEqual({**expected, "body": {"code": code, "desc": text, "description": text}}, answer)
        self.assertTrue(text)
        self.assertRefused(code)
        return text

    def assertRefused(self, code: int) -> None:
        """
        One message was refused: counted by its code, and written down with it.
        """
        self.assertEqual({code: 1}, refused_codes(self.node.counts))
        (line,) = self.node.traffic_recorder.messages
        self.assertEqual(("refused", code, RUNTIME), (line["outcome"], line["code"], line["session"]))
        self.assertEqual((0, 0), (line["recipients"], line["waiting"]))
        self.node.counts.refused.clear()
        self.node.traffic_recorder.messages.clear()


class UnreadableTests(RefusalTests):
    """
    What names nobody who could be answered.
    """

    def unreadable(self, data: bytes, *texts: str) -> None:
        before = self.node.counts.unreadable

        self.a.tell(data)

        self.assertEqual([], self.a.got)
        ((text, code),) = self.a.errors
        self.assertEqual(400, code)
        for part in texts:
            self.assertIn(part, text)
        self.assertEqual(before + 1, self.node.counts.unreadable)
        self.assertRefused(400)
        self.a.errors.clear()

    def test_not_json_is_counted_and_left_to_the_connector(self) -> None:
        """
        Not JSON is counted, and left to the connector to tell.
        """
        for data in (
            b"",
            b"hello",
            b"{",
            b"{}}",
            encoded() + b"x",
            encoded()[:-1],
            b"\x00",
            b"{'id':1}",
            b"NaN",
        ):
            self.unreadable(data, "not JSON")

    def test_json_that_is_no_object_is_refused_without_answer(self) -> None:
        """
        Nor is JSON that is no object a message.
        """
        for data in (b"[]", b"null", b"3", b'"text"', b"true", b"[" + encoded() + b"]"):
            self.unreadable(data, "a message is an object")

    def test_hundred_thousand_brackets_are_refused(self) -> None:
        """
        A hundred thousand brackets are refused, wherever they stand.
        """
        nest = b"[" * 100_000
        closed = nest + b"]" * 100_000
        for data in (nest, b'{"a":' * 100_000, closed, encoded()[:-1] + b',"x":' + closed + b"}"):
            self.unreadable(data, "nested too deeply")
        self.unreadable(encoded()[:-1] + b',"body":{"x":' + closed + b"}}", "nested too deeply")

    def test_missing_id_or_one_that_is_neither_text(self) -> None:
        """
        A missing id, or one that is neither text nor an integer, cannot be answered.
        """
        for id in (None, True, 1.5, 1e3, [1], {}):
            self.unreadable(encoded(id=id), "'id' must be an integer or a string")
        self.unreadable(b'{"type":"x","from":"a","to":"b"}', "'id' is missing")

    def test_nor_can_a_sender_that_is_no_text(self) -> None:
        """
        Nor can a sender that is no text.
        """
        for from_ in (None, 3, True, [RUNTIME], {}):
            self.unreadable(encoded(**{"from": from_}), "'from' must be a string")

    def test_connectors_complaint_is_the_refusal(self) -> None:
        """
        What a connector finds to be no text, or too long, is refused as it says.
        """
        self.node.reject_undecodable(b"\xff", "not UTF-8 at byte 0", self.a)
        self.assertEqual([("not UTF-8 at byte 0", 400)], self.a.errors)
        self.assertRefused(400)
        self.a.errors.clear()

        self.node.reject_undecodable(b"x" * 9, "a line has at most 8 bytes", self.a, 413)
        self.assertEqual([("a line has at most 8 bytes", 413)], self.a.errors)
        self.assertRefused(413)


class MalformedTests(RefusalTests):
    """
    JSON objects that are no messages, with an id and a sender: mn:/validator answers 400.
    """

    def malformed(self, data: bytes, id: Any = 1) -> str:
        return self.refuse(data, 400, "mn:/validator", f"{RUNTIME}/x", id)

    def test_missing_type_or_one_that_is_no_text(self) -> None:
        """
        A missing type, or one that is no text.
        """
        for type in (None, 3, True, [], {}):
            self.assertIn("'type' must be a string", self.malformed(encoded(type=type)))
        without = {key: value for key, value in PLAIN.items() if key != "type"}
        self.assertEqual("'type' is missing", self.malformed(json.dumps(without).encode()))

    def test_recipients(self) -> None:
        """
        A missing `to`, one that is no text, an empty list, a list that holds no text.
        """
        for to in (None, 3, True, {}, [3], [None], ["b", 3], [["b"]]):
            self.assertIn("'to' must be a string or a list of strings", self.malformed(encoded(to=to)))
        self.assertIn("at least one", self.malformed(encoded(to=[])))
        self.assertIn("at most 1000", self.malformed(encoded(to=["b"] * 1001)))
        without = {key: value for key, value in PLAIN.items() if key != "to"}
        self.assertEqual("'to' is missing", self.malformed(json.dumps(without).encode()))

    def test_empty_list_behind_duplicate(self) -> None:
        """
        An empty list is found behind a key that stands twice, too.
        """
        self.malformed(b'{"id":1,"id":1,"type":"x","from":"' + RUNTIME.encode() + b'/x","to":[],"body":{}}')

    def test_body_that_is_no_object_nor_null_is_400(self) -> None:
        """
        A body that is neither an object nor null.
        """
        for body in ([], [{}], "text", 3, 0, True, False):
            self.assertEqual("'body' must be an object", self.malformed(encoded(body=body)))

    def test_duplicates(self) -> None:
        """
        A header key that stands twice.
        """
        for key, value in {**PLAIN, "body": {}}.items():
            data = encoded(body={})[:-1] + f',"{key}":{json.dumps(value)}}}'.encode()

            self.assertEqual(f"'{key}' occurs twice in the header", self.malformed(data))

    def test_answer_has_the_id_with_its_json_type(self) -> None:
        """
        The answer has the id, with its JSON type.
        """
        for id in (0, "", "1", -5, 2**53 + 1, 2**70):
            self.malformed(encoded(id=id, type=3), id)

    def test_unreadable_body_of_a_request_is_refused(self) -> None:
        """
        A request whose body turns out to be unreadable is refused, not a failure of the node.
        """
        for body in (b'{"value":{"number":' + b"1" * 5000 + b"}}", b'{"value":{"number":1e999}}'):
            self.malformed(encoded(to=ALLOCATION)[:-1] + b',"body":' + body + b"}")

    def test_body_of_any_depth_does_not_fail_the_node(self) -> None:
        """
        However deep a body is nested, the node does not fail over it.
        """
        for depth in [*range(100, 900, 100), *range(900, 1010)]:
            nest = b"[" * depth + b"]" * depth
            for to in (SM, "nobody"):
                for extra in (b',"body":{"resources":' + nest + b"}}", b',"x":' + nest + b',"body":{}}'):
                    self.a.tell(encoded(type="unsubscribe", to=to)[:-1] + extra)
        self.assertEqual({400}, set(refused_codes(self.node.counts)))
        self.a.take()


class MissingFromTests(RefusalTests):
    """
    Only mn:/session may be spoken to without `from`.
    """

    def test_message_without_from_or_with_an_empty_one(self) -> None:
        """
        A message without `from`, or with an empty one, is answered 400 at the session's name.
        """
        without = {key: value for key, value in PLAIN.items() if key != "from"}
        for data in (json.dumps(without).encode(), encoded(**{"from": ""})):
            text = self.refuse(data, 400, "mn:/validator", RUNTIME)

            self.assertEqual("'from' is missing", text)


class ClaimTests(RefusalTests):
    """
    A `from` that says it is the node.
    """

    def test_message_from_a_node_address_is_403(self) -> None:
        """
        It is answered 403, and not routed.
        """
        for from_ in (
            "mn:/session",
            "mn:/validator",
            "mn:",
            "mn:anything",
            "global://registry",
            "domain://msg-node.example.org",
            "domain://msg-node.example.org/sm",
            "domain://idm.example.org/x",
            "domain://qos-broker.example.org",
        ):
            for type in ("create", "read", "ping"):
                text = self.refuse(encoded(type=type, **{"from": from_}), 403, "mn:/validator", from_)

                self.assertIn(repr(from_), text)

    def test_to_node(self) -> None:
        """
        Also when it is sent to the node itself.
        """
        data = encoded(type="subscribe", to=SM, body={"resources": ["x"]}, **{"from": "mn:/session"})

        self.refuse(data, 403, "mn:/validator", "mn:/session")

    def test_message_to_several_from_a_node_address_is_403(self) -> None:
        """
        Also when it is sent to several.
        """
        self.refuse(encoded(to=["p", self.b.runtime], **{"from": "mn:/x"}), 403, "mn:/validator", "mn:/x")

    def test_response_that_claims_it_is_refused_as_well(self) -> None:
        """
        A response that claims it is refused as well, and nobody is told.
        """
        self.a.tell(encoded(type="response", **{"from": "mn:/session"}))

        self.assertEqual([], self.a.got)
        self.assertRefused(403)

    def test_while_the_node_has_no_registry_of_its_own_nobody(self) -> None:
        """
        While the node has no registry of its own, nobody speaks by its name either.
        """
        registry = "domain://registry.example.org"

        self.refuse(encoded(**{"from": registry}), 403, "mn:/validator", registry)


class BeforeOpenTests(SynchronousTestCase):
    """
    A connection that has not said who it is.
    """

    def setUp(self) -> None:
        self.node = MemoryNode()
        self.b = self.node.client("runtime://example.org/b")
        self.client = self.node.client()
        self.node.traffic_recorder.messages.clear()

    def test_whatever_it_sends_is_answered_401_and_not_routed(self) -> None:
        """
        Whatever it sends is answered 401 and not routed; the connection lives, and may open.
        """
        for type, to in (
            ("create", self.b.runtime),
            ("subscribe", SM),
            ("update", "x/changes"),
            ("x", "mn:/x"),
        ):
            self.client.tell(encoded(type=type, to=to))

            (answer,) = self.client.take()
            self.assertEqual(
                ("mn:/validator", f"{RUNTIME}/x", 1), (answer["from"], answer["to"], answer["id"])
            )
            self.assertEqual(401, answer["body"]["code"])
            line = self.node.traffic_recorder.messages[-1]
            self.assertEqual(
                ("refused", 401, "", to), tuple(line[k] for k in ("outcome", "code", "session", "to"))
            )
        self.assertEqual({401: 4}, refused_codes(self.node.counts))
        self.assertEqual(([], None), (self.b.got, self.client.lost))
        self.client.open(RUNTIME)
        self.client.post(self.b.runtime)
        self.assertEqual(1, len(self.b.got))

    def test_without_from_the_answer_names_nobody(self) -> None:
        """
        Without `from` the answer names nobody.
        """
        self.client.tell({"id": 1, "type": "create", "to": "x"})

        (answer,) = self.client.take()
        self.assertEqual((None, 401), (answer["to"], answer["body"]["code"]))

    def test_message_before_open_leaves_nothing(self) -> None:
        """
        Nothing is learnt, bound or kept of what came too early.
        """
        self.client.tell(encoded(**{"from": "hyperty://d/1"}))
        self.client.tell(encoded(type="subscribe", to=SM, body={"resources": ["x"]}))
        self.client.take()

        self.client.open(RUNTIME)
        self.b.post("hyperty://d/1")
        self.b.post("x")

        self.assertEqual([], self.client.got)

    def test_what_is_no_message_is_refused_as_ever(self) -> None:
        """
        What is no message is refused as ever.
        """
        self.client.tell(b"hello")
        self.client.tell(encoded(to=3))

        self.assertEqual([400], [answer["body"]["code"] for answer in self.client.take()])
        self.assertEqual(1, len(self.client.errors))
        self.assertEqual([400, 400], [line["code"] for line in self.node.traffic_recorder.messages])

    def test_token_unlogged(self) -> None:
        """
        No token is written down of what is refused, wherever it stands in `from`.
        """
        token = "mns_" + "x" * 43
        for from_ in (f"{RUNTIME}/{token}", f"{RUNTIME}/{token}/sm", token):
            for fields in ({"body": 3}, {"to": 3}, {}, {"to": "mn:/session"}):
                self.client.tell(encoded(**{"from": from_, **fields}))

        self.assertEqual(12, len(self.node.traffic_recorder.messages))
        self.assertNotIn("mns_", str(self.node.traffic_recorder.messages))
