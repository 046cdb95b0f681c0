"""
What waited and will not be delivered: its sender hears so, if it asked or waits for a response.
"""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.support.durable import SM, DurableNode
from tests.support.fakes import Client, MemoryNode, directory

ANN, BOB = "runtime://example.org/ann", "runtime://example.org/bob"


class AnsweredTests(SynchronousTestCase):
    """
    `reply_unknown` is on, and bob is away.
    """

    def setUp(self) -> None:
        self.start()

    def start(self, reply_unknown: bool = True, **session: Any) -> None:
        self.node = MemoryNode(routing={"reply_unknown": reply_unknown}, session=session)
        self.ann = self.node.client(ANN)
        self.bob = self.node.client(BOB)
        self.bob.subscribe("comm://x")
        self.bob.drop()

    def ask(self, to: str = f"{BOB}/x", type: str = "read", **fields: Any) -> None:
        self.ann.tell({"id": 7, "type": type, "from": f"{ANN}/y", "to": to, **fields})

    def assertTold(self, reason: str) -> None:
        """
        Ann has one response, and no other code than today's clients take.
        """
        (response,) = self.ann.take()
        self.assertEqual(
            ("response", 7, f"{BOB}/x", f"{ANN}/y"),
            (response["type"], response["id"], response["from"], response["to"]),
        )
        self.assertEqual((404, reason), (response["body"]["code"], response["body"]["reason"]))
        self.assertEqual(response["body"]["desc"], response["body"]["description"])

    def test_request_that_waited_15_seconds_is_answered_404(self) -> None:
        """
        A request that waited 15 seconds is answered 404, when its time is over.
        """
        self.ask()
        self.node.clock.advance(14)
        self.assertEqual([], self.ann.take())

        self.node.clock.advance(1.1)

        self.assertTold("stale")

    def test_so_is_one_whose_recipient_session_ends(self) -> None:
        """
        So is one whose recipient's session ends.
        """
        self.ask(type="execute", ttl=10)
        self.node.sessions.end(self.node.sessions.get(BOB), "expired")  # type: ignore[arg-type]

        self.assertTold("ended")

    def test_so_is_one_that_is_dropped_because_too_much_waits(self) -> None:
        """
        So is one that is dropped because too much waits.
        """
        self.start(queue_messages=1)
        self.ask()
        self.ask(type="update")

        self.assertTold("overflow")

    def test_one_that_is_delivered_in_time_is_answered(self) -> None:
        """
        One that is delivered in time is answered by its recipient only.
        """
        self.ask()
        self.node.clock.advance(14)
        bob = self.node.client(BOB)
        self.node.clock.advance(60)

        self.assertEqual([], self.ann.take())
        self.assertEqual([], [message for message in bob.take() if message["type"] == "read"])

    def test_what_nobody_waits_for_a_response_to_is_not_answered(self) -> None:
        """
        What nobody waits for a response to is not answered, nor what several are bound to.
        """
        for type in ("update", "event", "response", "ping"):
            self.ask(type=type, ttl=1)
        cleo = self.node.client("runtime://example.org/cleo")
        cleo.subscribe("comm://x")
        cleo.drop()
        self.ask("comm://x")
        self.node.clock.advance(61)

        self.assertEqual([], self.ann.take())

    def test_without_reply_unknown_there_is_silence_as_ever(self) -> None:
        """
        Without `reply_unknown` there is silence, as ever.
        """
        self.start(reply_unknown=False)
        self.ask()
        self.node.clock.advance(60)

        self.assertEqual([], self.ann.take())

    def test_receipt_as_well(self) -> None:
        """
        Who asked for a receipt, too, gets both: 408 in the receipt.
        """
        self.ask(receipt=True)
        self.node.clock.advance(16)

        receipt, response = self.ann.take()
        self.assertEqual((408, "stale"), (receipt["body"]["code"], receipt["body"]["reason"]))
        self.assertEqual((404, "stale"), (response["body"]["code"], response["body"]["reason"]))


class RestartTests(SynchronousTestCase):
    """
    The node was killed while it waited.
    """

    def test_told_afterwards(self) -> None:
        """
        The sender hears of it when it is back.
        """
        node: Any = DurableNode(
            directory(self), routing={"reply_unknown": True}, session={"unused_expiry_seconds": 3600}
        )
        ann, bob = node.client(ANN), node.client(BOB)
        bob.drop()
        ann.tell({"id": 7, "type": "read", "from": f"{ANN}/y", "to": f"{BOB}/x"})
        node = node.killed()
        self.addCleanup(lambda: (node.spool.close(), node.store.shut()))
        node.clock.advance(16)

        ann = Client(node)
        ann.tell({"id": 1, "type": "open", "from": ANN, "to": "mn:/session"})

        response = ann.take()[-1]
        self.assertEqual((7, 404, "stale"), (response["id"], *map(response["body"].get, ("code", "reason"))))


class WrittenTests(SynchronousTestCase):
    """
    A receipt for several, of whom one is away.
    """

    def test_receipt_does_not_leave_before_the_disk(self) -> None:
        """
        Its sender may forget the message then; so it does not leave before that is written down.
        """
        node: Any = DurableNode(directory(self), session={"unused_expiry_seconds": 3600})
        self.addCleanup(lambda: (node.spool.close(), node.store.shut()))
        ann, bob, cleo = (node.client(f"runtime://example.org/{name}") for name in ("ann", "bob", "cleo"))
        subscribe = {"id": 1, "type": "subscribe", "to": SM, "body": {"resources": ["comm://x"]}}
        for client in (bob, cleo):
            client.tell({**subscribe, "from": client.runtime})
        node.clock.advance(0)
        bob.drop()
        disk = node.disk
        disk.full = True
        event = {"id": 7, "type": "event", "from": f"{ANN}/y", "to": "comm://x", "receipt": True}

        ann.tell(event)
        self.assertEqual([], ann.take())
        disk.full = False
        node.clock.advance(2)
        node.settle()

        (receipt,) = ann.take()
        self.assertEqual((202, 2), (receipt["body"]["code"], receipt["body"]["recipients"]))
