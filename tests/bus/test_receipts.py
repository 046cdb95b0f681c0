"""
Receipts: what the sender is told of a message, and when.
"""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.support.durable import Counting
from tests.support.fakes import Client, MemoryNode

ANN, BOB = "runtime://example.org/ann", "runtime://example.org/bob"


class ReceiptCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.start()

    def start(self, **session: Any) -> None:
        self.node = MemoryNode(session=session)
        self.ann = self.node.client(ANN)
        self.bob = self.node.client(BOB)
        self.bob.subscribe("comm://x")

    def send(self, to: Any = f"{BOB}/x", **fields: Any) -> None:
        self.ann.tell({"id": 7, "type": "event", "from": f"{ANN}/y", "to": to, "receipt": True, **fields})

    def codes(self, client: Client | None = None) -> list[int]:
        """
        The receipts since the last look.
        """
        found = [message for message in (client or self.ann).take() if message["type"] == "receipt"]
        for receipt in found:
            self.assertEqual((7, "mn:/receipt", f"{ANN}/y"), (receipt["id"], receipt["from"], receipt["to"]))
        return [receipt["body"]["code"] for receipt in found]


class CodeTests(ReceiptCase):
    """
    One for each thing that may become of it.
    """

    def test_handed_over(self) -> None:
        """
        202 at once, when the client does not acknowledge.
        """
        self.send()

        self.assertEqual([202], self.codes())

    def test_acknowledged(self) -> None:
        """
        200 when the recipient's client has acknowledged it, and nothing before.
        """
        cleo = Counting(self.node, "runtime://example.org/cleo")
        cleo.connect()

        self.send("runtime://example.org/cleo")
        cleo.arrive()
        self.assertEqual([], self.codes())

        cleo.acknowledge()
        self.assertEqual([200], self.codes())

    def test_receipt_says_what_became_of_a_waiting_message(self) -> None:
        """
        Nothing while it waits; then what became of it.
        """
        self.bob.drop()
        self.send()
        self.assertEqual([], self.codes())

        self.node.client(BOB)

        self.assertEqual([202], self.codes())

    def test_404_when_nobody_is_bound_to_the_address(self) -> None:
        """
        404 when nobody is bound to the address.
        """
        self.send("comm://nobody")

        self.assertEqual([404], self.codes())

    def test_403_beside_the_answer_when_it_was_refused(self) -> None:
        """
        403 beside the answer, when it was refused.
        """
        self.start(from_check="refuse")
        self.ann.tell({"id": 7, "type": "x", "from": BOB, "to": ANN, "receipt": True})

        kinds = [(message["type"], message["body"]["code"]) for message in self.ann.take()]

        self.assertEqual([("receipt", 403), ("response", 403)], kinds)

    def test_time_ran_out(self) -> None:
        """
        408 when its ttl ran out, without waiting for the recipient; and the recipient never gets it.
        """
        self.bob.drop()
        self.send(ttl=5)
        self.node.clock.advance(4.9)
        self.assertEqual([], self.codes())
        self.node.clock.advance(0.2)

        self.assertEqual([408], self.codes())
        self.assertEqual(0, self.node.sessions.get(BOB).mailbox.queued)

    def test_session_ended(self) -> None:
        """
        410 when the recipient's session ends while it waits.
        """
        self.bob.drop()
        self.send()
        self.node.clock.advance(86_400)

        self.assertEqual([410], self.codes())

    def test_too_much_waited(self) -> None:
        """
        503 for the one that had to go.
        """
        self.start(queue_messages=2)
        self.bob.drop()
        for _ in range(3):
            self.send()

        self.assertEqual([503], self.codes())


class OnceTests(ReceiptCase):
    """
    How many, and for what.
    """

    def test_fan_out(self) -> None:
        """
        One for all who hear an address, with their number, whoever of them is away.
        """
        for name in "cd":
            client = self.node.client(f"runtime://example.org/{name}")
            client.subscribe("comm://x")
        client.drop()

        self.send("comm://x")

        (receipt,) = self.ann.take()
        self.assertEqual((202, 3), (receipt["body"]["code"], receipt["body"]["recipients"]))
        self.node.client("runtime://example.org/d")
        self.assertEqual([], self.codes())

    def test_several_addresses(self) -> None:
        """
        One for each address.
        """
        self.send([f"{BOB}/x", "comm://nobody"])

        self.assertEqual([202, 404], self.codes())

    def test_none_for_a_node_address(self) -> None:
        """
        None for a node address: it answers.
        """
        self.send("domain://msg-node.example.org/sm", type="subscribe", body={"resources": ["comm://z"]})
        self.send("mn:/nothing", type="read")

        self.assertEqual([], self.codes())

    def test_receipt_for_a_receipt(self) -> None:
        """
        Never.
        """
        self.send(type="receipt")
        self.send("comm://nobody", type="RECEIPT")

        self.assertEqual([], self.codes())
        self.assertEqual(1, len(self.bob.take()))

    def test_no_receipt_unless_asked_for(self) -> None:
        """
        None for who does not ask.
        """
        self.send(receipt=False)

        self.assertEqual([], self.codes())

    def test_asker_is_away(self) -> None:
        """
        A receipt waits for its asker.
        """
        self.bob.drop()
        self.send(ttl=5)
        self.ann.subscribe("comm://y")
        self.ann.drop()
        self.node.clock.advance(6)

        back = self.node.client()
        back.reopen(ANN)

        self.assertEqual([408], self.codes(back))

    def test_own_messages(self) -> None:
        """
        A session that ends hears nothing of what it had sent to itself, and leaves nothing behind.
        """
        self.ann.drop()
        older = self.node.client()
        older.reopen(ANN)
        older.drop()
        self.ann = self.node.client(f"{ANN}/late")
        self.node.sessions.connections.write_paused(self.ann)
        before = self.node.sessions.journal.bytes_in_memory
        self.ann.tell({"id": 7, "type": "event", "from": f"{ANN}/late", "to": f"{ANN}/late", "receipt": True})
        self.assertGreater(self.node.sessions.journal.bytes_in_memory, before)

        self.node.sessions.end(self.ann.session, "closed")

        self.assertEqual(before, self.node.sessions.journal.bytes_in_memory)

    def test_one_pushes_out_another(self) -> None:
        """
        Two whose queues are full of each other's messages: each receipt pushes out one that has a receipt.
        """
        self.start(queue_messages=600)
        for client in (self.ann, self.bob):
            self.node.sessions.connections.write_paused(client)
        for _ in range(600):
            self.send(BOB)
            self.bob.tell({"id": 8, "type": "event", "from": BOB, "to": ANN, "receipt": True})

        self.send(BOB)

        waiting = [client.session.mailbox.queued for client in (self.ann, self.bob)]
        self.assertEqual([600, 600], waiting)

    def test_ends_while_others_overflow(self) -> None:
        """
        What a session's end pushes out elsewhere does not come back to it.
        """
        self.start(queue_messages=50)
        before = self.node.sessions.journal.bytes_in_memory
        for client in (self.ann, self.bob):
            self.node.sessions.connections.write_paused(client)
        for _ in range(50):
            self.send(BOB)
            self.bob.tell({"id": 8, "type": "event", "from": BOB, "to": ANN, "receipt": True})

        for client in (self.ann, self.bob):
            self.node.sessions.end(client.session, "closed")

        self.assertEqual(before, self.node.sessions.journal.bytes_in_memory)

    def test_one_fails(self) -> None:
        """
        A receipt that cannot be given is logged, and holds up no other.
        """
        give_late = self.node.sessions.receipt
        message = b'{"id":7,"type":"event","from":"%s/y","to":"x","receipt":true}' % ANN.encode()

        give_late(b"nonsense", 200, self.ann.session.sid)
        give_late(message, 200, self.ann.session.sid)

        self.assertEqual([200], self.codes())
        self.assertEqual(1, len(self.flushLoggedErrors()))
