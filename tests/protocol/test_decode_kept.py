"""
What was kept and cannot be read as a message of today costs itself only, neither its session nor others.
"""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.protocol.errors import Malformed
from msgnode.protocol.message import NO_VERSION, recall
from tests.support.durable import Counting, DurableNode
from tests.support.fakes import directory
from tests.support.network import Network
from tests.support.runtimes import TCPRuntime, WebSocketRuntime

ANN, BOB = "runtime://example.org/ann", "runtime://example.org/bob"
SM = "domain://msg-node.example.org/sm"


class GarbageTests(SynchronousTestCase):
    """
    Bob counts, sends what nobody can read, and is gone before he has the answer, whose `id` is null.
    """

    def setUp(self) -> None:
        self.net = Network(session={"unused_expiry_seconds": 3600})
        self.ann = TCPRuntime(self.net, ANN).open()
        bob = TCPRuntime(self.net, BOB)
        bob.session("open", **{"from": BOB}, body={"resume": True})
        bob.send(b"garbage")
        self.assertEqual([None], [message["id"] for message in bob.take()])
        bob.drop()
        self.ann.send(*({"id": n, "type": "update", "from": ANN, "to": BOB} for n in range(8)))

    def test_recipient_opens_again_and_gets_what_waited(self) -> None:
        """
        He opens again, by lines or by WebSocket, with `resume` or without, and gets all that waited.
        """
        ways = (TCPRuntime, {"resume": True}), (WebSocketRuntime, {"resume": True}), (TCPRuntime, {})
        for kind, body in ways:
            bob = kind(self.net, BOB)

            reply = bob.session("open", **{"from": BOB}, body=body)

            self.assertEqual(200, reply["body"]["code"])
            got = [message["id"] for message in bob.take()]
            self.assertEqual([None, *range(8)], got)
            bob.drop()
        self.assertEqual(0, self.net.node.counts.unread)


class UnreadableTests(SynchronousTestCase):
    """
    A file of the spool that holds something else than a message, where one was.
    """

    def setUp(self) -> None:
        self.node: Any = DurableNode(directory(self), session={"unused_expiry_seconds": 3600})
        self.addCleanup(lambda: (self.node.spool.close(), self.node.store.shut()))
        self.ann, self.bob = Counting(self.node, ANN), Counting(self.node, BOB)
        self.ann.connect()
        self.bob.connect()
        for number in range(5):
            self.ann.send(id=number, type="update", to=BOB)
        self.bob.lose()
        self.node = self.node.killed()
        self.ann.node = self.bob.node = self.node
        self.ann.wire = self.bob.wire = None

    def spoil(self, number: int, data: bytes) -> None:
        """
        That one of the messages has become this.
        """
        bad, read = self.node.sessions.get(BOB).mailbox.undelivered()[number].place, self.node.spool.read
        self.node.spool.read = lambda place, size: data if place == bad else read(place, size)

    def open_anew(self) -> list[Any]:
        self.bob.token = ""
        self.bob.connect()
        self.bob.arrive()
        return [message["id"] for message in self.bob.got]

    def test_one_is_lost(self) -> None:
        """
        It is dropped and told as missed, counted and logged; those around it come.
        """
        self.spoil(2, b"\x00not a message")

        self.assertEqual([0, 1, 3, 4], self.open_anew())

        self.assertEqual(1, self.bob.missed)
        self.assertEqual(1, self.node.counts.unread)

    def test_older_rules(self) -> None:
        """
        What an older node took and today's would refuse is delivered as it is.
        """
        self.spoil(2, b'{"id":22,"id":2,"type":"update","type":"update","from":"a","to":"b"}')

        self.assertEqual([0, 1, 2, 3, 4], self.open_anew())


class FailingTests(SynchronousTestCase):
    """
    The node itself fails over an `open`.
    """

    def test_failing_open_closes_with_1013(self) -> None:
        """
        It closes with 1013 and says when to come back: today's clients take no other answer than 200.
        """
        net = Network()

        def fail(session: Any, connection: Any) -> None:
            raise RuntimeError("on purpose")

        net.node.sessions.attach = fail  # type: ignore[method-assign]
        bob = WebSocketRuntime(net, BOB)
        bob.send({"id": 1, "type": "open", "from": BOB, "to": "mn:/session"})
        net.advance(5)

        self.assertEqual((1013, "failed; retry_after=30"), (bob.code, bob.reason))
        self.assertEqual([], bob.take())
        self.assertEqual(1, len(self.flushLoggedErrors(RuntimeError)))


class RecallTests(SynchronousTestCase):
    """
    What is still known of something that was kept.
    """

    def test_kept_header_fields_that_make_sense_are_taken(self) -> None:
        """
        What of the header makes sense is taken, the rest is as if it were not there.
        """
        message = recall(b'{"id":null,"type":"response","to":null,"from":"mn:/v","priority":99,"ttl":7.5}')

        self.assertEqual(("", "response", "", "mn:/v"), (message.id, message.type, message.to, message.from_))
        self.assertEqual((None, 7.5, 7), (message.priority, message.ttl, message.effective_priority))
        self.assertIs(True, message.log)
        self.assertIs(False, recall(b'{"id":null,"type":"response","to":null,"log":false}').log)
        self.assertIsNot(NO_VERSION, recall(b'{"id":null,"type":"update","to":"x","version":[3]}').version)

    def test_what_is_no_json_object_is_nothing(self) -> None:
        """
        What is no JSON object is nothing.
        """
        for data in (b"", b"[]", b"7", b"{", b"[" * 100_000):
            self.assertRaises(Malformed, recall, data)
