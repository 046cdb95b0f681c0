"""
How a message finds who hears it.
"""

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.support.fakes import MemoryNode

SM = "domain://msg-node.example.org/sm"
TOKEN = "mns_" + "x" * 43


class RouterTests(SynchronousTestCase):
    """
    A node and three runtimes.
    """

    def setUp(self) -> None:
        self.restart()

    def restart(self, **sections: Any) -> None:
        self.node = MemoryNode(**sections)
        self.a, self.b, self.c = (self.node.client(f"runtime://example.org/{name}") for name in "abc")

    def line(self, *keys: str) -> tuple[Any, ...]:
        line = self.node.traffic_recorder.messages[-1]
        return tuple(line[key] for key in keys)

    def outcome(self) -> tuple[Any, ...]:
        return self.line("outcome", "recipients", "waiting", "code")


class DeliveryTests(RouterTests):
    """
    Exact addresses, then the runtime above; the bytes as they came.
    """

    def test_message_reaches_its_recipient_byte_for_byte(self) -> None:
        """
        A message reaches its recipient byte for byte, whatever its spelling, type and id.
        """
        to = "runtime://example.org/b/x"
        for data in (
            f'{{"id":9007199254740993,"type":"PING","from":"a","to":"{to}"}}',
            f'{{ "to" : "{to}" , "from":"a","body":{{"n":1.50,"u":"\\ud7ff"}}, "type":"Forward","id":"x"}}',
            f'{{"id":0,"type":"","from":"a","to":"{to}","body":null}}',
        ):
            self.a.tell(data.encode())

            self.assertEqual([data.encode()], self.b.raw)
            self.assertEqual(("delivered", 1, 0, 0), self.outcome())
            self.b.take()

    def test_everybody(self) -> None:
        """
        What is published reaches every session bound to exactly that address, once each, and nobody else.
        """
        for client in (self.a, self.b):
            client.subscribe("comm://d/1/changes", "comm://d/1/changes")
        self.c.subscribe("comm://d/1", "comm://d/1/children/")

        self.c.post("comm://d/1/changes", "update")

        self.assertEqual([1, 1, 0], [len(client.got) for client in (self.a, self.b, self.c)])
        self.assertEqual(("delivered", 2, 0, 0), self.outcome())

    def test_router_delivers_to_owner_and_subscribers(self) -> None:
        """
        An allocated address is heard by its owner and by who subscribed it.
        """
        body = self.a.ask(type="create", to="domain://msg-node.example.org/address-allocation")["body"]
        (address,) = body["value"]["allocated"]
        self.b.subscribe(address)

        self.c.post(address)

        self.assertEqual([1, 1], [len(client.got) for client in (self.a, self.b)])

    def test_exact_then_prefix(self) -> None:
        """
        What nobody bound exactly is heard by the runtime above it, at a `/` boundary.
        """
        for to, heard in (
            ("runtime://example.org/b", 1),
            ("runtime://example.org/b/registry/x", 1),
            ("runtime://example.org/bb", 0),
            ("runtime://example.org", 0),
        ):
            self.a.post(to)

            self.assertEqual(heard, len(self.b.take()), to)

    def test_token_as_recipient(self) -> None:
        """
        What is sent to a session URL, with the token in it, is refused.
        """
        self.a.post(f"runtime://example.org/b/{self.b.token}", "create")

        self.assertEqual(400, self.a.take()[0]["body"]["code"])
        self.assertEqual([], self.b.take())

    def test_one_sender_to_one_receiver_is_in_order(self) -> None:
        """
        What one sender sends one receiver comes in order, by whatever address.
        """
        self.b.subscribe("comm://d/1", "hyperty://d/b")
        for n in range(30):
            self.a.post(("comm://d/1", "hyperty://d/b", "runtime://example.org/b/x")[n % 3], id=n)

        self.assertEqual(list(range(30)), [message["id"] for message in self.b.got])

    def test_several_and_late_responses_all_pass(self) -> None:
        """
        Several and late responses to one request all pass; the node keeps no account of requests.
        """
        for code in (100, 100, 200, 404):
            self.b.post("runtime://example.org/a/x", "response", id=5, body={"code": code})

        self.assertEqual([100, 100, 200, 404], [message["body"]["code"] for message in self.a.got])

    def test_what_came_in_and_what_went_out_is_counted(self) -> None:
        """
        What came in and what went out is counted, in messages and bytes.
        """
        for client in (self.a, self.b):
            client.subscribe("x")
        counts = self.node.counts
        before = counts.received, counts.received_bytes, counts.sent, counts.sent_bytes

        message = json.dumps(self.c.post("x")).encode()

        size = len(message)
        after = counts.received, counts.received_bytes, counts.sent, counts.sent_bytes
        self.assertEqual((1, size, 2, 2 * size), tuple(b - a for a, b in zip(before, after, strict=True)))


class EchoTests(RouterTests):
    """
    A sender that is also a recipient.
    """

    def test_without_via(self) -> None:
        """
        Who publishes where it listens hears itself.
        """
        self.a.subscribe("x")

        self.a.post("x")

        self.assertEqual(1, len(self.a.got))
        self.assertEqual(("delivered", 1, 0, 0), self.outcome())

    def test_with_via(self) -> None:
        """
        Unless the message carries `body.via`: its own stub would drop it.  Others still get it.
        """
        for client in (self.a, self.b):
            client.subscribe("x")

        message = self.a.post("x", body={"via": "runtime://example.org/a"})

        self.assertEqual(([], [message]), (self.a.got, self.b.got))
        self.assertEqual((("delivered", 1, 0, 0), 1), (self.outcome(), self.node.counts.echoes))

    def test_message_for_its_sender_alone_is_dropped(self) -> None:
        """
        A message for nobody but its sender is dropped.
        """
        self.a.subscribe("x")

        self.a.post("x", body={"via": None})

        self.assertEqual([], self.a.got)
        self.assertEqual(("dropped", 0, 0, 0), self.outcome())

    def test_word_via_elsewhere_is_of_no_concern(self) -> None:
        """
        The word `via` elsewhere in a message is of no concern.
        """
        self.a.subscribe("x")

        for fields in (
            {"via": "x"},
            {"body": {"x": {"via": 1}}},
            {"body": {"via ": 1}},
            {"body": {"x": "via"}},
        ):
            self.a.post("x", **fields)

        self.assertEqual(4, len(self.a.got))


class TokenTests(RouterTests):
    """
    The session token reaches no other client.
    """

    def test_in_body_via_asterisks_stand_in_its_place(self) -> None:
        """
        In `body.via` asterisks stand in its place; everything else stays.
        """
        url = f"runtime://example.org/a/{self.a.token}"

        self.a.post("runtime://example.org/b/x", body={"via": url, "value": 1})

        expected = {"via": f"runtime://example.org/a/{'*' * 47}", "value": 1}
        self.assertEqual(expected, self.b.take()[0]["body"])


class ListTests(RouterTests):
    """
    `to` may be a list.
    """

    def test_each_of_several_recipients_gets_its_own_copy(self) -> None:
        """
        Each recipient gets a copy with its own `to`, in order, and each copy is written down.
        """
        self.b.subscribe("x")
        self.c.subscribe("x")
        to = ["x", "runtime://example.org/b/y", "nobody"]
        message = self.a.post(to, body={"value": 1})

        self.assertEqual([{**message, "to": "x"}, {**message, "to": to[1]}], self.b.got)
        self.assertEqual([{**message, "to": "x"}], self.c.got)
        lines = [(m["to"], m["outcome"], m["recipients"]) for m in self.node.traffic_recorder.messages[-3:]]
        self.assertEqual([("x", "delivered", 2), (to[1], "delivered", 1), ("nobody", "no-route", 0)], lines)

    def test_recipient_named_twice_gets_one_copy(self) -> None:
        """
        A recipient named twice gets one copy.
        """
        self.a.post(["runtime://example.org/b", "runtime://example.org/b"])

        self.assertEqual(1, len(self.b.got))

    def test_list_of_one_is_as_that_one_also_for_the_node(self) -> None:
        """
        A list of one is as that one, also for the node's addresses, granted or refused.
        """
        self.a.post(["runtime://example.org/b"])
        self.assertEqual("runtime://example.org/b", self.b.take()[0]["to"])

        good = self.a.ask(type="subscribe", to=[SM], body={"resources": ["x"]})
        self.assertEqual((SM, {"code": 200}), (good["from"], good["body"]))
        bad = self.a.ask(type="subscribe", to=[SM])
        self.assertEqual((SM, 400), (bad["from"], bad["body"]["code"]))
        self.assertEqual((SM, "refused", 400), self.line("to", "outcome", "code"))

    def test_node_among_others(self) -> None:
        """
        A node address among others is refused, and none of them gets anything.
        """
        reply = self.a.ask(type="subscribe", to=["runtime://example.org/b", SM], body={"resources": ["x"]})

        self.assertEqual(("mn:/validator", 400), (reply["from"], reply["body"]["code"]))
        self.assertIn(SM, reply["body"]["desc"])
        self.assertEqual([], self.b.got)
        self.assertEqual(("refused", 400), self.line("outcome", "code"))

    def test_session_address_takes_no_lists(self) -> None:
        """
        mn:/session takes no lists: nobody opens a session in passing.
        """
        stranger = self.node.client()

        stranger.tell({"id": 1, "type": "open", "from": "runtime://example.org/d", "to": ["mn:/session"]})

        self.assertEqual(401, stranger.take()[0]["body"]["code"])
        self.assertEqual(3, len(self.node.sessions))


class ReceiptTests(SynchronousTestCase):
    """
    Receipts go to who asked, and to nobody else.
    """

    def setUp(self) -> None:
        self.node = MemoryNode()
        self.victim = self.node.client("runtime://example.org/victim")
        self.stranger = self.node.client()

    def test_without_a_session(self) -> None:
        """
        Who has no session cannot have receipts sent to others.
        """
        message = {"id": 1, "type": "event", "from": "runtime://example.org/victim", "to": "comm://x"}

        self.stranger.tell({**message, "receipt": True})

        self.assertEqual([], self.victim.take())

    def test_in_the_name_of_another(self) -> None:
        """
        A receipt for a message in another's name comes back to its sender.
        """
        self.stranger.open("runtime://example.org/stranger")
        message = {"id": 1, "type": "event", "from": "runtime://example.org/victim", "to": "comm://x"}

        self.stranger.tell({**message, "receipt": True})

        self.assertEqual([], self.victim.take())
        self.assertEqual([404], [receipt["body"]["code"] for receipt in self.stranger.take()])

    def test_one_timer_for_all_waiting_messages(self) -> None:
        """
        However many messages wait for whom with a ttl and a receipt, there is one timer.
        """
        self.stranger.open("runtime://example.org/stranger")
        self.victim.subscribe("comm://y")  # else it expires in a minute
        self.victim.drop()
        before = len(self.node.clock.getDelayedCalls())

        for n in range(2000):
            self.stranger.post("runtime://example.org/victim", receipt=True, ttl=1000 + n)

        self.assertEqual(before + 1, len(self.node.clock.getDelayedCalls()))
        self.node.clock.advance(3000)
        self.assertEqual({503: 1000, 408: 1000}, self.codes())

    def codes(self) -> dict[int, int]:
        codes = [receipt["body"]["code"] for receipt in self.stranger.take()]
        return {code: codes.count(code) for code in codes}
