"""
Bad input, on every connector: the answer, the counters, the traffic log, and that everybody else is unharmed.
"""

import json
from typing import Any

from tests.support.fakes import refused_codes
from tests.support.runtimes import dumps
from tests.support.suite import ALLOCATION, NODE, SM, Suite

DEEP = b"[" * 100_000 + b"]" * 100_000


class Malformed(Suite):
    """
    What is no message.

    How a connector tells who sent what names nobody to answer: WebSocket does
    not, a line is answered with id null, and HTTP has a status.
    """

    tells_unreadable: int | None = 400
    reads_ahead = False  # a POST is looked through, so the answer is HTTP's and nothing is counted

    def setUp(self: Any) -> None:
        super().setUp()
        self.runtime, self.other = self.client(), self.client("b")

    def header(self: Any, **fields: Any) -> dict[str, Any]:
        """
        A request to the other client with these fields; `...` takes one away.
        """
        message = {"id": 3, "type": "create", "from": f"{self.runtime.url}/x", "to": f"{self.other.url}/x"}
        message |= {name.rstrip("_"): value for name, value in fields.items()}
        return {name: value for name, value in message.items() if value is not ...}

    def assertUnharmed(self: Any) -> None:
        self.assertEqual([], self.other.take())
        self.assertReaches(self.runtime, self.other)
        self.assertReaches(self.other, self.runtime)

    def assertUnreadable(self: Any, data: Any, what: str = "") -> None:
        """
        Ignored and counted, or told with nobody's id; not carried.
        """
        counts = self.net.node.counts
        before = counts.unreadable, refused_codes(counts).get(400, 0)

        reply = self.runtime.attempt(data)

        if self.tells_unreadable is None:
            self.assertIsNone(reply, what)
        else:
            self.assertRefused(reply, self.tells_unreadable)
        if not self.reads_ahead:
            self.assertEqual(
                (before[0] + 1, before[1] + 1), (counts.unreadable, refused_codes(counts)[400]), what
            )
            self.assertEqual(("refused", 400), self.logged())
            if reply is not None:
                header = {name: reply[name] for name in ("id", "type", "from", "to")}
                expected = {"id": None, "type": "response", "from": "mn:/validator", "to": self.runtime.url}
                self.assertEqual(expected, header)
        self.assertUnharmed()

    def assertInvalid(self: Any, message: Any, id: Any = 3) -> None:
        """
        Answered 400 by mn:/validator to the `from` it came with; not carried.
        """
        before = refused_codes(self.net.node.counts).get(400, 0)

        reply = self.runtime.attempt(message)

        self.assertIsNotNone(reply, message)
        self.assertRefused(reply, 400)
        if not self.reads_ahead:
            header = {name: reply[name] for name in ("id", "type", "from", "to")}
            expected = {"type": "response", "from": "mn:/validator", "to": f"{self.runtime.url}/x"}
            self.assertEqual({"id": id, **expected}, header)
            self.assertEqual(before + 1, refused_codes(self.net.node.counts)[400])
            self.assertEqual(("refused", 400), self.logged())
        self.assertUnharmed()

    def test_what_is_not_json_is_not_carried_and_the_connection(self: Any) -> None:
        """
        What is not JSON is not carried, and the connection lives.
        """
        whole = dumps(self.header())
        for data in (b"hello", b"{", whole[:-1], whole + b"}", whole.replace(b"3", b"NaN"), b"'x'"):
            self.assertUnreadable(data, data)

    def test_json_that_is_no_object_is_no_message(self: Any) -> None:
        """
        JSON that is not an object is no message.
        """
        for data in (b"3", b'"open"', b"null", b"true", b"[1]", b'["a"]', b"[[]]"):
            self.assertUnreadable(data, data)

    def test_nested_brackets_are_refused_and_shake_nothing(self: Any) -> None:
        """
        A hundred thousand brackets, alone or in a body, are refused and shake nothing.
        """
        self.assertUnreadable(DEEP)
        for to in (self.other.url, SM, ALLOCATION):
            data = dumps(self.header(to=to, body={"resources": "DEEP"})).replace(b'"DEEP"', DEEP)
            reply = self.runtime.attempt(data)

            if reply is not None:
                self.assertRefused(reply, 400)
            self.assertUnharmed()
        self.assertEqual([], self.flushLoggedErrors())

    def test_nested_less(self: Any) -> None:
        """
        There is no depth that is read in one place and not in another.
        """
        for depth in (100, 300, 480, 500, 520, 900, 990, 1000, 1010, 1100, 3000):
            deep = b"[" * depth + b"]" * depth
            data = dumps(self.header(type_="subscribe", to=SM, body={"resources": "DEEP"}))
            reply = self.runtime.attempt(data.replace(b'"DEEP"', deep))

            if reply is not None:
                self.assertIn(reply["body"]["code"], (200, 400), depth)
            data = dumps(self.header(body={"via": "x", "value": "DEEP"})).replace(b'"DEEP"', deep)
            self.runtime.attempt(data)
            self.other.take()
        self.assertEqual([], self.flushLoggedErrors())
        self.assertUnharmed()

    def test_twice_the_same_key(self: Any) -> None:
        """
        A key that stands twice in the header is refused, since two readers would take it for two messages.
        """
        for name in ("id", "type", "from", "to", "body"):
            message = dumps(self.header(body={}))
            twice = json.dumps({name: self.header(body={})[name]}).encode()
            self.assertInvalid(message[:-1] + b"," + twice[1:])

    def test_message_without_type_or_to_is_answered_400(self: Any) -> None:
        """
        A message without `type` or `to` is answered 400.
        """
        for fields in ({"type": ...}, {"to": ...}):
            self.assertInvalid(self.header(**fields))

    def test_wrong_type(self: Any) -> None:
        """
        A `type` or `to` that is no string, and a body that is no object, are answered 400.
        """
        for value in (3, None, True, {}, 1.5):
            self.assertInvalid(self.header(type=value))
            self.assertInvalid(self.header(to=value))
        for value in (3, True, [], "x"):
            self.assertInvalid(self.header(body=value))
        self.assertInvalid(self.header(type=["create"]))

    def test_bad_list(self: Any) -> None:
        """
        An empty list of recipients, or one that holds more than strings, is answered 400.
        """
        for value in ([], [3], [self.other.url, None], [[self.other.url]], [{}]):
            self.assertInvalid(self.header(to=value))

    def test_list_of_more_than_a_thousand_recipients_is_answered(self: Any) -> None:
        """
        A list of more than a thousand recipients is answered 400, and none of them gets anything.
        """
        self.assertInvalid(self.header(to=[f"{self.other.url}/{n}" for n in range(1001)]))

    def test_no_usable_id(self: Any) -> None:
        """
        A message without an id, or with one that is neither integer nor string, cannot be answered.
        """
        for value in (..., None, True, 1.5, {}, []):
            self.assertUnreadable(self.header(id=value), value)

    def test_no_usable_from(self: Any) -> None:
        """
        A `from` that is no string names nobody to answer.
        """
        for value in (None, 3, True, {}, []):
            self.assertUnreadable(self.header(from_=value), value)

    def test_message_without_from_is_answered_400_to_the_runtime(self: Any) -> None:
        """
        A message without `from` is answered 400, to the runtime it came from.
        """
        reply = self.runtime.attempt(self.header(from_=...))

        self.assertRefused(reply, 400)
        self.assertEqual((3, "mn:/validator", self.runtime.url), (reply["id"], reply["from"], reply["to"]))
        self.assertUnharmed()


class NotUTF8(Malformed):
    """
    Where text is not checked by the transport itself.
    """

    def test_what_is_not_utf_8_is_not_carried_wherever_the_bad(self: Any) -> None:
        """
        What is not UTF-8 is not carried, wherever the bad byte stands, and the connection lives.
        """
        for bad in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xe2\x82"):
            self.assertUnreadable(dumps(self.header(odd="BAD")).replace(b"BAD", bad), bad)
            self.assertUnreadable(dumps(self.header(body={"v": "BAD"})).replace(b"BAD", bad), bad)


class Refused(Suite):
    """
    Messages that are well-formed and not allowed.
    """

    def setUp(self: Any) -> None:
        super().setUp()
        self.runtime, self.other = self.client(), self.client("b")

    def refused(self: Any, code: int, sender: str | None = None, **message: Any) -> None:
        """
        The request gets that answer, from who it went to or from `sender`.
        """
        before = refused_codes(self.net.node.counts).get(code, 0)

        reply = self.runtime.ask(**message)

        self.assertRefused(reply, code)
        self.assertEqual(
            (7, "response", sender or message["to"]), (reply["id"], reply["type"], reply["from"])
        )
        self.assertEqual(before + 1, refused_codes(self.net.node.counts)[code])
        self.assertEqual(("refused", code), self.logged())
        self.assertEqual([], self.other.take())

    def test_from_the_node(self: Any) -> None:
        """
        Nobody may send in the name of the node, to whomever and of whatever type; responses are not answered.
        """
        claims = ["mn:/session", "mn:/validator", "mn:anything", "global://registry", "global:x"]
        claims += [f"domain://{name}.example.org" for name in ("msg-node", "idm", "qos-broker")]
        claims += [SM, "domain://idm.example.org/x"]
        for claim in claims:
            for type in ("create", "update"):
                for to in (self.other.url, SM):
                    self.refused(403, "mn:/validator", type=type, **{"from": claim}, to=to)
            self.runtime.send({"id": 1, "type": "response", "from": claim, "to": self.other.url})
            self.assertEqual([], self.runtime.take())
            self.assertEqual([], self.other.take())
            self.assertEqual(("refused", 403), self.logged())
        self.assertReaches(self.runtime, self.other)

    def test_from_the_node_to_a_list(self: Any) -> None:
        """
        Nor to a list.
        """
        self.refused(403, "mn:/validator", **{"from": "mn:/session"}, to=[self.other.url, self.runtime.url])

    def test_from_the_registry(self: Any) -> None:
        """
        Nor as the registry, also while the node has none: only who serves it by a policy speaks for it.
        """
        for claim in ("domain://registry.example.org", "Domain://registry.example.org/x"):
            for type in ("update", "read"):
                self.refused(403, "mn:/validator", type=type, **{"from": claim}, to=self.other.url)
            self.runtime.send({"id": 1, "type": "response", "from": claim, "to": self.other.url})

        self.assertEqual([], self.other.take())

    def test_to_the_node(self: Any) -> None:
        """
        What the node does not offer is answered 501; nobody may answer in its place.
        """
        for to in (
            "domain://registry.example.org",
            "domain://registry.example.org/",
            "global://registry/",
            "global://registry",
            "domain://example.org/x",
            f"{NODE}/nothing",
            NODE,
            "mn:/nothing",
        ):
            self.refused(501, to=to)
        self.runtime.send({"id": 1, "type": "response", "from": "x", "to": f"{NODE}/nothing"})
        self.assertEqual([], self.runtime.take())

    def test_to_the_node_among_others(self: Any) -> None:
        """
        A node address cannot stand beside others in a list of recipients.
        """
        reply = self.runtime.ask(type="subscribe", to=[self.other.url, SM], body={"resources": ["x://y"]})

        self.assertRefused(reply, 400)
        self.assertEqual([], self.other.take())

    def test_another_domain_is_not_the_node(self: Any) -> None:
        """
        Node addresses of another domain are like any other address.
        """
        address = "domain://msg-node.other.example/sm"
        self.subscribe(self.other, address)
        message = {"id": 1, "type": "subscribe", "from": self.runtime.url, "to": address}

        self.runtime.send(message)

        self.assertEqual([message], self.other.take())

    def test_subscribe_the_node(self: Any) -> None:
        """
        A node address cannot be bound; the other addresses of that request are not bound either.
        """
        for address in ("mn:/session", SM, "global://registry", "domain://registry.example.org/x"):
            resources = ["comm://example.org/1", address]
            self.refused(403, type="subscribe", to=SM, body={"resources": resources})
        self.assertEqual(0, len(self.net.node.routes))

    def test_subscribe_a_runtime(self: Any) -> None:
        """
        An address at or below another session's runtimeURL cannot be bound, but one's own can.
        """
        for address in (self.other.url, f"{self.other.url}/sm", f"{self.other.url}/a/b"):
            self.refused(403, type="subscribe", to=SM, body={"resources": [address]})
        self.subscribe(self.runtime, f"{self.runtime.url}/sm", f"{self.other.url}b")
        self.assertReaches(self.runtime, self.other)

    def test_binding_of_a_runtime_to_come(self: Any) -> None:
        """
        Who subscribed below a name before a runtime opened it hears nothing of that runtime.
        """
        self.subscribe(self.runtime, "runtime://example.org/c/sm", "runtime://example.org/c")
        late = self.client("c")

        self.other.send({"id": 1, "type": "ping", "from": "x", "to": f"{late.url}/sm"})
        self.other.send({"id": 2, "type": "ping", "from": "x", "to": late.url})

        self.assertEqual([1, 2], [message["id"] for message in late.take()])
        self.assertEqual([], self.runtime.take())

    def test_subscribe_nothing(self: Any) -> None:
        """
        A subscription that names no list is answered 400.
        """
        for type in ("subscribe", "unsubscribe"):
            for body in ({}, None, {"source": "x"}, {"children": ["a"]}):
                self.refused(400, type=type, to=SM, body=body)
        self.refused(400, type="subscribe", to=SM)

    def test_subscribe_what_is_no_address(self: Any) -> None:
        """
        Addresses are strings of at most 2048 characters.
        """
        for value in ([3], [["a", None]], [{}], 3, [""], ["x" * 2049]):
            self.refused(400, type="subscribe", to=SM, body={"resources": value})
        self.assertEqual(0, len(self.net.node.routes))

    def test_unknown_words(self: Any) -> None:
        """
        Types that subscription and allocation do not know are answered 400.
        """
        self.refused(400, type="create", to=SM, body={"resources": ["x://y"]})
        self.refused(400, type="read", to=ALLOCATION, body={})

    def test_number_of_addresses_out_of_range_is_400(self: Any) -> None:
        """
        A number of addresses that is no integer from 1 to the maximum is answered 400.
        """
        for number in (0, -1, 1e9, "3", 1.0, True, None, [], 1001, 10**30):
            self.refused(400, to=ALLOCATION, body={"value": {"number": number}})
        self.assertEqual(0, len(self.net.node.routes))
        self.assertEqual(1000, len(self.allocate(self.runtime, 1000)))

    def test_allocation_of_nonsense(self: Any) -> None:
        """
        A scheme that is none, a key that is no string and a value that is no object are answered 400.
        """
        for body in (
            {"scheme": "no scheme"},
            {"scheme": 3},
            {"scheme": "comm://"},
            {"value": []},
            {"value": {"allocationKey": 3}},
        ):
            self.refused(400, to=ALLOCATION, body=body)
        self.refused(400, type="delete", to=ALLOCATION, body={})

    def test_too_many_addresses(self: Any) -> None:
        """
        More addresses than a session may hold are answered 429, and none of them is bound.
        """
        self.restart(limits={"bindings_per_session": 5})
        self.runtime, self.other = self.client(), self.client("b")
        self.allocate(self.runtime, 3)

        self.refused(429, to=ALLOCATION, body={"value": {"number": 3}})
        self.refused(429, type="subscribe", to=SM, body={"resources": ["a:1", "a:2", "a:3"]})

        self.allocate(self.runtime, 2)
        self.allocate(self.other, 5)

    def test_release_of_anothers(self: Any) -> None:
        """
        De-allocating somebody else's address is answered 200 and frees nothing.
        """
        (address,) = self.allocate(self.other)
        for body in ({"resource": address}, {"childrenResources": [[address]]}):
            reply = self.runtime.ask(type="delete", to=ALLOCATION, body=body)

            self.assertEqual({"code": 200}, reply["body"])
        message = {"id": 1, "type": "update", "from": "x", "to": address}
        self.runtime.send(message)
        self.assertEqual([message], self.other.take())
