"""
Forwarding with `from` unchanged: only what was delivered so, only by who got it, and only for a while.
"""

import json
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.bus.forwarding import MAX_DELIVERIES, Forwards
from msgnode.protocol.message import decode
from msgnode.sessions.session import Session
from tests.support.durable import SM
from tests.support.fakes import Client, MemoryNode, peak
from tests.support.http_client import HTTPClient
from tests.support.made_policies import rule, use
from tests.support.network import Network
from tests.support.runtimes import TCPRuntime

FIRST, SECOND, THIRD = (f"hyperty://example.org/{name}" for name in ("first", "second", "third"))
ASKED = {"id": 7, "type": "read", "from": FIRST, "to": SECOND, "forward": True, "body": {}}


class ForwardTests(SynchronousTestCase):
    """
    A node that checks senders, and three runtimes with an address each.
    """

    def setUp(self) -> None:
        self.node = MemoryNode(session={"from_check": "refuse"})
        self.first, self.second, self.third = (self.runtime(name) for name in ("first", "second", "third"))

    def runtime(self, name: str) -> Client:
        client = self.node.client(f"runtime://example.org/{name}")
        client.subscribe(f"hyperty://example.org/{name}")
        client.take()
        return client

    def pass_on(self, client: Client | None = None, **changed: Any) -> list[int]:
        """
        Pass the message on to the third; the codes of the refusals.
        """
        client = client or self.second
        client.tell({**ASKED, "to": THIRD, **changed})
        return [message["body"]["code"] for message in client.take() if message["type"] == "response"]

    def test_a_message_may_be_passed_on_and_is_answered_directly(self) -> None:
        """
        The third sees the first as its sender, and answers it; the second is not asked again.
        """
        self.first.tell(ASKED)
        self.assertEqual([ASKED], self.second.take())

        self.assertEqual([], self.pass_on())
        self.assertEqual([{**ASKED, "to": THIRD}], self.third.take())
        answer = {"id": 7, "type": "response", "from": THIRD, "to": FIRST, "body": {"code": 200}}
        self.third.tell(answer)

        self.assertEqual([answer], self.first.take())
        self.assertEqual([], self.second.take())

    def test_passing_it_on_to_oneself_gains_no_time(self) -> None:
        """
        Whoever gets it from one who passes it on has what is left of that one's time.
        """
        self.first.tell(ASKED)
        for _ in range(2):
            self.node.clock.advance(25)
            self.assertEqual([], self.pass_on(to=SECOND))
        self.assertEqual([], self.pass_on())
        self.node.clock.advance(11)

        self.assertEqual([403], self.pass_on())
        self.assertEqual([403], self.pass_on(self.third, to=SECOND))

    def test_a_session_that_becomes_one_with_another_may_still_pass_it_on(self) -> None:
        """
        What an anonymous session was given is its successor's to pass on.
        """
        anonymous = self.node.client()
        anonymous.tell({"id": 1, "type": "open", "to": "mn:/session"})
        token = anonymous.take()[0]["body"]["runtimeToken"]
        name = "hyperty://example.org/nameless"
        body = {"resources": [name]}
        anonymous.tell({"id": 2, "type": "subscribe", "from": name, "to": SM, "body": body})
        self.first.tell({**ASKED, "to": name})
        self.assertEqual(name, anonymous.take()[-1]["to"])
        again = self.node.client()
        again.reopen(f"runtime://example.org/second/{token}")

        self.assertEqual([], self.pass_on(again))

        self.assertEqual([{**ASKED, "to": THIRD}], self.third.take())

    def test_what_was_not_delivered_so_is_forged(self) -> None:
        """
        Another id, another sender, another session, or a message whose sender did not allow it.
        """
        self.first.tell({**ASKED, "id": 8, "forward": False})
        self.first.tell(ASKED)
        self.second.take()

        self.assertEqual([403], self.pass_on(id=8))
        self.assertEqual([403], self.pass_on(id=9))
        self.assertEqual([403], self.pass_on(**{"from": "hyperty://example.org/third"}))
        self.assertEqual([403], self.pass_on(self.third, to=SECOND))
        self.assertEqual([], self.third.take())

    def test_it_keeps_its_type_and_its_header(self) -> None:
        """
        In the first's name no other request is made, and nothing is answered.
        """
        self.first.tell(ASKED)
        self.second.take()

        for type in ("execute", "update", "response", "READ"):
            self.pass_on(type=type)
        self.pass_on(forward=False)

        self.assertEqual([], self.third.take())
        self.first.tell({**ASKED, "id": 8, "type": "response"})
        self.second.take()
        self.pass_on(id=8, type="response")
        self.assertEqual([], self.third.take())

    def test_the_body_may_be_another(self) -> None:
        """
        What stands there by then is the word of who passes it on.
        """
        self.first.tell(ASKED)
        self.second.take()

        self.assertEqual([], self.pass_on(body={"n": 1}))

        self.assertEqual([{**ASKED, "to": THIRD, "body": {"n": 1}}], self.third.take())

    def test_it_goes_to_one_address_of_a_client(self) -> None:
        """
        Neither to a list nor to the node: nobody subscribes, registers or asks there in another's name.
        """
        lists = ([THIRD], [THIRD, FIRST])
        node = ("domain://msg-node.example.org/sm", "domain://registry.example.org", "global://registry")
        for id, type in enumerate(("read", "subscribe", "create")):
            self.first.tell({**ASKED, "id": id, "type": type})
            self.second.take()
            for to in (*lists, *node, "mn:/validator", "domain://weather.example.org"):
                self.assertEqual(
                    403, self.second.ask(**{**ASKED, "id": id, "type": type, "to": to})["body"]["code"]
                )

        self.assertEqual([], self.third.take() + self.first.take())

    def test_a_message_may_be_passed_on_for_a_minute(self) -> None:
        """
        And not later, though it be the same message.
        """
        self.first.tell(ASKED)
        self.second.take()

        self.node.clock.advance(59)
        self.assertEqual([], self.pass_on())
        self.node.clock.advance(2)

        self.assertEqual([403], self.pass_on())

    def test_who_gets_it_passed_on_may_pass_it_on(self) -> None:
        """
        The header says so still.
        """
        fourth = self.runtime("fourth")
        self.first.tell(ASKED)
        self.pass_on()
        self.third.take()

        self.assertEqual([], self.pass_on(self.third, to="hyperty://example.org/fourth"))

        self.assertEqual([7], [message["id"] for message in fourth.take()])

    def test_what_waited_may_be_passed_on_when_it_comes(self) -> None:
        """
        The minute begins when the recipient gets it.
        """
        token = self.second.token
        self.second.drop()
        self.first.tell({**ASKED, "type": "update"})
        self.node.clock.advance(3600)
        back = self.node.client()
        back.reopen(f"runtime://example.org/second/{token}")
        back.take()

        self.assertEqual([], self.pass_on(back, type="update"))

        self.assertEqual(1, len(self.third.take()))

    def test_passing_on_does_not_make_the_address_ones_own(self) -> None:
        """
        Policies see a `from` that is another's, and nothing is learnt of who passes it on.
        """
        use(self.node, rule("deny", {"fromOwned": {"equals": False}}))
        self.first.tell(ASKED)
        self.second.take()

        self.assertEqual([403], self.pass_on())
        self.assertFalse(self.node.owners.owns(FIRST, self.second.session))

    def test_a_receipt_and_forward_go_together(self) -> None:
        """
        A message that asks for a receipt may be passed on as well.
        """
        self.first.tell({**ASKED, "receipt": True})
        self.second.take()

        self.assertEqual([], self.pass_on())

    def test_forward_must_be_true_or_false(self) -> None:
        """
        Anything else is 400, with the field's name.
        """
        self.first.tell({**ASKED, "forward": "yes"})

        refusal = self.first.take()[0]["body"]
        self.assertEqual((400, True), (refusal["code"], "'forward'" in refusal["desc"]))


class RestTests(SynchronousTestCase):
    """
    By POST, with a session's token.
    """

    def test_a_session_may_pass_on_by_rest_what_it_got(self) -> None:
        """
        As on its connection: that message, and no other.
        """
        net = Network()
        first, second, third = (
            TCPRuntime(net, f"runtime://example.org/{name}").open() for name in ("a", "b", "c")
        )
        asked = {**ASKED, "type": "update", "from": f"{first.url}/x", "to": f"{second.url}/x"}
        first.send(asked)
        codes = []
        for id in (7, 8):
            client = HTTPClient(net)
            passed = json.dumps({**asked, "id": id, "to": f"{third.url}/x"}).encode()
            codes.append(
                client.request("POST", "/message", passed, Authorization=f"Bearer {second.token}").status
            )

        self.assertEqual([202, 403], codes)
        self.assertEqual([7], [message["id"] for message in third.take()])


class BoundTests(SynchronousTestCase):
    """
    The table alone: an attacker with very many sessions, and a victim.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.node = MemoryNode()
        self.forwards = Forwards(self.clock.seconds, lambda address: False)
        self.victim, self.recipient = self.session("victim", "192.0.2.1"), self.session("bob", "192.0.2.2")

    def session(self, name: str, host: str) -> Session:
        client = Client(self.node)
        client.peer = f"{host}:1"
        client.open(f"runtime://example.org/{name}")
        assert client.session is not None
        return client.session

    def message(self, number: int, **changed: Any) -> Any:
        return decode(json.dumps({**ASKED, "id": number, **changed}).encode())

    def pass_on(self, id: int, **changed: Any) -> bool:
        return self.forwards.allows(self.message(id, **changed), self.recipient)

    def flood(
        self, sender: Session | None, recipients: list[Session], number: int = MAX_DELIVERIES + 100
    ) -> None:
        for id in range(number):
            message = self.message(id, **{"from": "hyperty://example.org/flood"})
            self.forwards.delivered(message, [recipients[id % len(recipients)]], sender)

    def test_all_together_have_so_many(self) -> None:
        """
        Of one sender the oldest goes first.
        """
        self.flood(self.victim, [self.recipient])

        self.assertEqual(MAX_DELIVERIES, len(self.forwards))
        flood = {"from": "hyperty://example.org/flood"}
        self.assertEqual([False, True], [self.pass_on(id, **flood) for id in (99, 100)])

    def test_a_flood_pushes_out_its_own(self) -> None:
        """
        To others, or to the victim's recipient, and by very many sessions of one host.
        """
        for id in range(20):
            self.forwards.delivered(self.message(id), [self.recipient], self.victim)
        others = [self.session(f"mallory/{n}", "198.51.100.1") for n in range(200)]

        for sender in others:
            self.flood(sender, others, MAX_DELIVERIES // 100)
        self.flood(others[0], [self.recipient])
        self.flood(None, others)

        self.assertTrue(all(self.pass_on(id) for id in range(20)))
        self.assertEqual(MAX_DELIVERIES, len(self.forwards))

    def test_a_flood_from_the_same_host_pushes_out_its_own(self) -> None:
        """
        Also where victim and attacker come by one address, each session has its share.
        """
        for id in range(20):
            self.forwards.delivered(self.message(id), [self.recipient], self.victim)

        self.flood(self.session("mallory", "192.0.2.1"), [self.recipient])

        self.assertTrue(all(self.pass_on(id) for id in range(20)))

    def test_who_comes_while_it_is_full_is_remembered(self) -> None:
        """
        A newcomer gets its place from who has most.
        """
        self.flood(self.session("mallory", "198.51.100.1"), [self.recipient])

        self.forwards.delivered(self.message(1), [self.recipient], self.victim)

        self.assertTrue(self.pass_on(1))
        self.assertEqual(MAX_DELIVERIES, len(self.forwards))

    def test_what_is_over_is_forgotten(self) -> None:
        """
        Nothing is kept for longer than it is good for.
        """
        for id in range(3):
            self.forwards.delivered(self.message(id), [self.recipient], self.victim)
        self.clock.advance(61)
        self.forwards.delivered(self.message(5), [self.recipient], self.victim)

        self.assertEqual(1, len(self.forwards))

    def test_long_names_take_no_more_than_short_ones(self) -> None:
        """
        What is remembered of a message has the same size, whatever its id is.
        """

        def keep() -> None:
            for id in range(100):
                self.forwards.delivered(self.message(0, id=f"{id}{'x' * 100_000}"), [self.recipient], None)

        self.assertLess(peak(keep), 2_000_000)
