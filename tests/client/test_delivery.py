"""
Receipts of the Python client: what became of a message, the path it took, and receipts that are not final.
"""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.bus.receipts import RECEIPT
from msgnode.client import Delivery, Hop, TimedOut
from msgnode.protocol.message import compose
from tests.support.network import Network
from tests.support.programs import Program

PATH = [{"node": "mn://a.example/n1", "micros": 40}, {"node": "mn://b.example/n1", "micros": 95}]
WAITING = {"code": 202, "description": "waiting for a route", "final": False}
DELIVERED = {"code": 200, "description": "acknowledged", "path": PATH, "final": True}


class DeliveryTests(SynchronousTestCase):
    """
    A program `a`, whose messages wait for `b`, which is away: the receipts are those of the test.
    """

    def setUp(self) -> None:
        self.net = Network()
        self.a, self.b = Program(self.net, "a").opened(), Program(self.net, "b").opened()
        self.b.close(end=False)
        self.net.pump()
        self.provisional: list[Delivery] = []

    def deliver(self, **how: Any) -> Any:
        found = self.a.deliver(self.b.runtime, waiting=self.provisional.append, **how)
        self.net.pump()
        return found

    def receive(self, **body: Any) -> None:
        """
        Let `a` get a receipt for its first message.
        """
        session = self.net.node.sessions.get(self.a.runtime)
        session.deliver(compose(1, "receipt", RECEIPT, self.a.runtime, {"to": self.b.runtime, **body}))
        self.net.pump()

    def test_a_receipt_has_the_nodes_that_the_message_passed(self) -> None:
        """
        With their names and the microseconds at each, the sender's first.
        """
        delivered = self.deliver()

        self.receive(**DELIVERED)

        receipt = self.successResultOf(delivered)
        self.assertEqual((200, "acknowledged", "", True), _summary(receipt))
        self.assertEqual((Hop("mn://a.example/n1", 40), Hop("mn://b.example/n1", 95)), receipt.path)

    def test_a_receipt_within_one_domain_has_no_path(self) -> None:
        """
        It is final, and has the reason of a refusal.
        """
        receipt = self.a.result(self.a.deliver("comm://example.org/nobody"))

        self.assertEqual((404, "no session is bound to this address", "no-route", True), _summary(receipt))
        self.assertEqual((), receipt.path)

    def test_a_message_that_waits_for_a_route_is_reported_before_it_is_delivered(self) -> None:
        """
        The receipt that is not final goes to `waiting`, the final one is the result.
        """
        delivered = self.deliver()

        self.receive(**WAITING)
        self.assertNoResult(delivered)
        self.receive(**DELIVERED)

        self.assertEqual([(202, "waiting for a route", "", False)], list(map(_summary, self.provisional)))
        self.assertEqual(200, self.successResultOf(delivered).code)

    def test_a_message_that_still_waits_at_the_timeout_has_the_receipt_that_says_so(self) -> None:
        """
        Without any receipt it is TimedOut.
        """
        waiting = self.deliver(timeout=5)
        self.receive(**WAITING)
        silent = self.a.deliver(self.b.runtime, timeout=5)

        self.net.advance(5)

        self.assertEqual((202, "waiting for a route", "", False), _summary(self.successResultOf(waiting)))
        self.failureResultOf(silent, TimedOut)

    def test_a_function_for_waiting_messages_that_fails_costs_no_receipt(self) -> None:
        """
        Its error is logged.
        """
        delivered = self.a.deliver(self.b.runtime, waiting=lambda receipt: 1 // 0)
        self.net.pump()

        self.receive(**WAITING)
        self.receive(**DELIVERED)

        self.assertEqual(200, self.successResultOf(delivered).code)
        self.assertEqual(1, len(self.flushLoggedErrors(ZeroDivisionError)))

    def test_a_path_of_another_form_is_read_as_far_as_it_goes(self) -> None:
        """
        A receipt may come from a node that this client does not know.
        """
        for path, hops in (
            ("by sea", ()),
            (None, ()),
            ([{"node": "mn://a.example/n1"}, 7], (Hop("mn://a.example/n1", 0),)),
            ([{"node": 3, "micros": "many"}], (Hop("3", 0),)),
        ):
            receipt = Delivery({"id": 1, "type": "receipt", "body": {"path": path}}, self.a)
            self.assertEqual((200, hops), (receipt.code, receipt.path))


def _summary(receipt: Delivery) -> tuple[int, str, str, bool]:
    return receipt.code, receipt.text, receipt.reason, receipt.is_final
