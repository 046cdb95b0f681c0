"""
Forwarding with `from` unchanged: only what was delivered so, only by who got it, and only for a while.
"""

import json
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.bus.forwarding import MOST, MOST_FOR_ONE, Forwards
from msgnode.protocol.message import decode
from tests.support.fakes import Client, MemoryNode
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
        asked = {**ASKED, "from": f"{first.url}/x", "to": f"{second.url}/x"}
        first.send(asked)
        codes = []
        for id in (7, 8):
            client = HTTPClient(net)
            passed = json.dumps({**asked, "id": id, "to": f"{third.url}/x", "type": "update"}).encode()
            codes.append(
                client.request("POST", "/message", passed, Authorization=f"Bearer {second.token}").status
            )

        self.assertEqual([202, 403], codes)
        self.assertEqual([7], [message["id"] for message in third.take()])


class BoundTests(SynchronousTestCase):
    """
    The table alone.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.forwards = Forwards(self.clock.seconds)
        node = MemoryNode()
        self.sessions = [
            node.client(f"runtime://example.org/{n}").session for n in range(MOST // MOST_FOR_ONE + 2)
        ]

    def message(self, id: int) -> Any:
        return decode(json.dumps({**ASKED, "id": id}).encode())

    def test_one_recipient_has_so_many_and_keeps_them(self) -> None:
        """
        A flood to one recipient pushes out nothing, its own nor others'.
        """
        for id in range(3 * MOST_FOR_ONE):
            self.forwards.delivered(self.message(id), self.sessions[:1])

        self.assertEqual(MOST_FOR_ONE, len(self.forwards))
        self.assertTrue(self.forwards.allows(self.message(0), self.sessions[0]))

    def test_all_together_have_so_many(self) -> None:
        """
        The oldest goes first.
        """
        for session in self.sessions:
            for id in range(MOST_FOR_ONE):
                self.forwards.delivered(self.message(id), [session])

        self.assertEqual(MOST, len(self.forwards))
        self.assertFalse(self.forwards.allows(self.message(0), self.sessions[0]))

    def test_what_is_over_is_forgotten(self) -> None:
        """
        Nothing is kept for longer than it is good for.
        """
        self.forwards.delivered(self.message(1), self.sessions[:3])
        self.clock.advance(61)
        self.forwards.delivered(self.message(2), self.sessions[:1])

        self.assertEqual(1, len(self.forwards))
