"""
A real session leaves one node and enters another: its client resumes there as if nothing had happened.
"""

import json

import msgspec
import pytest
from twisted.trial.unittest import SynchronousTestCase

from msgnode.cluster.moves.session_transfer import (
    State,
    export_messages,
    export_state,
    import_late,
    import_message,
    import_messages,
    import_state,
    merge_messages,
    read_message,
    read_state,
)
from tests.support.durable import SM, Counting, DurableNode
from tests.support.fakes import directory

ALLOCATION = "domain://msg-node.example.org/object-address-allocation"
ANN, BOB = "runtime://example.org/ann", "runtime://example.org/bob"


def numbers(client):
    return [message["body"]["n"] for message in client.got if "n" in message["body"]]


class TransferTests(SynchronousTestCase):
    """
    Bob's session moves from one durable node to another.
    """

    def setUp(self):
        self.first = DurableNode(directory(self))
        self.second = DurableNode(directory(self))
        self.bob = Counting(self.first, BOB)
        self.bob.connect()
        self.ann = self.first.client(ANN)

    def tell(self, *counts, **header):
        for n in counts:
            self.ann.tell({"id": n, "type": "update", "to": BOB, "from": ANN, "body": {"n": n}, **header})
        self.first.settle()

    def move(self, part=10**6):
        """
        Move the session as handovers do; what is queued comes in parts.
        """
        session = self.first.sessions.get(BOB)
        state = export_state(session, self.first.sessions)
        moved = import_state(BOB, state, self.second)
        key = 0
        while found := export_messages(session, self.first.sessions, key, part):
            import_messages([data for _, data in found], moved, self.second.sessions)
            key = found[-1][0]
            self.second.settle()
            session.mailbox.hand_over(key)
        self.first.settle()
        self.bob.node = self.second
        return session

    def test_client_resumes_at_the_other_node(self):
        """
        The client gets what it had not acknowledged and what waited, once and in order, and keeps its token.
        """
        self.tell(1, 2, 3)
        self.bob.arrive(2)
        self.bob.acknowledge()
        self.bob.lose(1)
        self.tell(4, 5, 6)

        session = self.move(part=1)
        self.bob.connect()
        self.bob.arrive()

        self.assertEqual([1, 2, 3, 4, 5, 6], numbers(self.bob))
        self.assertTrue(self.bob.told["recovered"])
        self.assertEqual([], session.mailbox.queued_messages())

    def test_other_node_may_be_killed(self):
        """
        What was imported is on the disk of the other node.
        """
        self.tell(1, 2, 3)
        self.bob.lose()
        self.tell(4, 5)

        self.move()
        self.second.clock.advance(1)  # the database commits
        self.bob.node = self.second = self.second.killed()
        self.bob.connect()
        self.bob.arrive()

        self.assertEqual([1, 2, 3, 4, 5], numbers(self.bob))
        self.assertTrue(self.bob.told["recovered"])

    def test_sent_messages_are_counted_on(self):
        """
        The other node knows how many messages of the client the first had, and the client sends none again.
        """
        for n in (1, 2, 3):
            self.bob.send(id=n, type="update", to=ANN, body={"n": n})
        self.bob.lose()

        self.move()
        self.bob.connect()

        self.assertEqual(3, self.bob.told["received"])
        self.assertEqual([], self.bob.kept)

    def test_bindings_and_allocation_keys_move(self):
        """
        The session is bound at the other node to what it was bound to at the first, by the same keys.
        """
        body = {"scheme": "comm", "value": {"number": 2, "allocationKey": "k"}}
        self.bob.send(id=7, type="create", to=ALLOCATION, body=body)
        self.bob.send(id=8, type="subscribe", to=SM, body={"resources": ["comm://example.org/x"]})
        self.first.clock.advance(1)
        self.bob.arrive()
        before = self.first.sessions.get(BOB)

        self.move()

        after = self.second.sessions.get(BOB)
        self.assertEqual(before.bindings, after.bindings)
        self.assertEqual(3, len(after.bindings))
        for address in after.bindings:
            self.assertEqual((after,), self.second.routes.resolve(address))
            self.assertEqual(before.keys.of(address), after.keys.of(address))

    def test_time_to_live_goes_on(self):
        """
        A message that waited does not live longer because its session moved.
        """
        self.bob.lose()
        self.tell(1, ttl=10)
        self.tell(2)

        self.move()
        self.second.clock.advance(11)
        self.bob.connect()
        self.bob.arrive()

        self.assertEqual([2], numbers(self.bob))

    def ask(self, **header):
        """
        Ann asks bob, and the answer of her node's receipts is to be had.
        """
        self.first.config.routing.reply_unknown = True
        self.ann.tell({"id": 7, "type": "read", "to": BOB, "from": ANN, "body": {}, **header})
        self.first.settle()
        self.answers = []
        self.second.router.receipts.send_elsewhere = self.answers.append

    def test_request_that_moved_and_expires_is_answered(self):
        """
        A request whose session has moved, and that expires there, is answered wherever its sender is.
        """
        self.bob.lose()
        self.ask(ttl=10)

        self.move()
        self.second.clock.advance(11)

        found = [(each.to, each.id, json.loads(each.data)["body"]["reason"]) for each in self.answers]
        self.assertEqual([(ANN, 7, "stale")], found)

    def test_request_that_moved_is_answered_by_its_recipient_only(self):
        """
        A request that moved and reaches its recipient gets no answer of the node, and no second receipt.
        """
        self.bob.lose()
        self.ask(ttl=10, receipt=True)

        self.move()
        self.bob.connect()
        self.bob.arrive()
        self.bob.acknowledge()
        self.second.clock.advance(11)

        self.assertEqual([7], [message["id"] for message in self.bob.got if message["type"] == "read"])
        self.assertEqual([], self.answers)

    def test_request_that_moved_late_is_answered_when_it_expires(self):
        """
        So is one that came to the first node when it had released the session, and expires behind others.
        """
        self.bob.lose()
        self.ask(ttl=10)
        ((_, data),) = export_messages(self.first.sessions.get(BOB), self.first.sessions, 0, 10**6)
        session = import_state(
            BOB, export_state(self.first.sessions.get(BOB), self.first.sessions), self.second
        )
        session.mailbox.begin_arrival()

        import_late(read_message(data), session, self.second.sessions)
        self.second.clock.advance(11)
        session.mailbox.end_arrival()
        self.second.clock.advance(0)

        self.assertEqual(["stale"], [json.loads(each.data)["body"]["reason"] for each in self.answers])

    def test_request_that_moved_is_answered_after_a_kill(self):
        """
        That its sender waits for an answer is on the disk of the new holder.
        """
        self.bob.lose()
        self.ask(ttl=10)

        self.move()
        self.second.clock.advance(1)
        self.second = self.second.killed()
        self.second.router.receipts.send_elsewhere = self.answers.append
        self.second.clock.advance(11)

        self.assertEqual(["stale"], [json.loads(each.data)["body"]["reason"] for each in self.answers])

    def test_malformed_states_are_refused(self):
        """
        A state that does not decode makes no session.
        """
        state = json.loads(
            msgspec.json.encode(
                msgspec.msgpack.decode(
                    export_state(self.first.sessions.get(BOB), self.first.sessions), type=State
                )
            )
        )
        for broken in (
            b"",
            b"\xc1",
            msgspec.msgpack.encode({**state, "last": -1, "bindings": [["x" * 3000, 1]]}),
            msgspec.msgpack.encode({**state, "record": {**state["record"], "token": "no hash"}}),
            msgspec.msgpack.encode({**state, "record": {**state["record"], "outbox": {"epoch": 7}}}),
        ):
            with pytest.raises(ValueError):
                import_state(BOB, broken, self.second)

        self.assertIsNone(self.second.sessions.get(BOB))

    def test_messages_behind_a_late_one_stay_behind_it(self):
        """
        What a client at the first node sent after a message of which both nodes have copies is not delivered
        before that message.
        """
        self.bob.lose()
        self.tell(1, 2, 3, 4)
        queued = export_messages(self.first.sessions.get(BOB), self.first.sessions, 0, 10**6)
        messages = [read_message(data) for _, data in queued]
        session = import_state(
            BOB, export_state(self.first.sessions.get(BOB), self.first.sessions), self.second
        )
        session.mailbox.begin_arrival()

        import_message(messages[0], session, self.second.sessions)
        import_late(messages[1], session, self.second.sessions)
        import_message(messages[2], session, self.second.sessions)
        import_late(messages[3], session, self.second.sessions)
        session.mailbox.end_arrival()
        self.second.settle()
        self.bob.node = self.second
        self.bob.connect()
        self.bob.arrive()

        self.assertEqual([1, 2, 3, 4], numbers(self.bob))

    def test_claim_of_a_session_that_is_merged_counts(self):
        """
        What a client has by its own word, given where its session had begun again, is not sent once more.
        """
        self.tell(1, 2)
        state = msgspec.msgpack.decode(export_state(self.first.sessions.get(BOB), self.first.sessions))
        epoch = state["record"]["outbox"]["epoch"]
        moved = import_state(BOB, msgspec.msgpack.encode(state), self.second)
        other = {**state, "sent": [], "claims": {epoch: 2}}

        merge_messages(read_state(msgspec.msgpack.encode(other)), moved, self.second.sessions)

        assert moved.mailbox.outbox is not None
        self.assertEqual([], list(moved.mailbox.outbox.sent))
