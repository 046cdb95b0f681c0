"""
Copies of publications that come to both nodes of a session while it moves.
"""

from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from msgnode.cluster.moves.local_sessions import LocalSessions
from msgnode.cluster.moves.session_holder import Release
from msgnode.protocol.close_codes import STOPPING
from msgnode.protocol.message import Message
from msgnode.sessions.routing import SUBSCRIBED
from tests.support.durable import Counting, DurableNode
from tests.support.fakes import directory

ANN, BOB = "runtime://example.org/ann", "runtime://example.org/bob"
TOPIC = "comm://example.org/chat/changes"
RELEASE = Release(b"released", BOB, 2, "n2")


class Side:
    """
    A node and its part in moves. `ann` publishes there, and the copies of a publication have one id at both.
    """

    def __init__(self, case: SynchronousTestCase) -> None:
        self.node = DurableNode(directory(case))
        self.local = LocalSessions(self.node, self.node.clock, lambda session, claim: None, self.copy_id)
        self.node.sessions.copy_id = self.copy_id
        self.flushed: list[Deferred[bool]] = []
        self.local.own_flushed = lambda: succeed(None)
        self.local.flushed = self.flush
        self.local.arrived = lambda: self.flush("")
        self.ann = self.node.client(ANN)

    def copy_id(self, message: Message) -> tuple[bytes, int]:
        return b"copies", int(message.id)

    def flush(self, node: str) -> Deferred[bool]:
        self.flushed.append(Deferred())
        return self.flushed[-1]

    def publish(self, *numbers: int) -> None:
        for n in numbers:
            self.ann.tell({"id": n, "type": "update", "from": ANN, "to": TOPIC, "body": {"n": n}})
        self.node.settle()


class OverlapCase(SynchronousTestCase):
    """
    Bob's session leaves the first node for the second, where Ann's publications come, too.
    """

    is_stopping = True

    def setUp(self) -> None:
        self.first, self.second = Side(self), Side(self)
        self.bob = Counting(self.first.node, BOB)
        self.bob.connect()
        session = self.first.node.sessions.get(BOB)
        assert session is not None
        self.first.node.routes.bind(TOPIC, session, SUBSCRIBED)
        if self.is_stopping:
            self.first.local.closings[BOB] = STOPPING
        self.first.local.release(RELEASE)
        self.bob.lose()
        state = self.first.local.state(RELEASE, [])
        self.second.local.import_state("n1", RELEASE, state)
        self.second.node.clock.advance(0)
        self.key = 0

    def hand_over(self) -> None:
        found = self.first.local.messages(RELEASE, self.key, 1_000_000)
        self.key = found[-1][0]
        self.second.local.import_messages("n1", RELEASE.id, self.key, [data for _, data in found])

    def finish(self) -> Deferred[None]:
        done = self.second.local.finish("n1", RELEASE.id)
        self.second.node.clock.advance(0)
        return done

    def numbers(self) -> list[Any]:
        """
        What Bob has got when he comes back at the second node.
        """
        self.bob.node = self.second.node
        self.bob.connect()
        self.second.node.clock.advance(0)
        self.bob.arrive()
        return [message["body"]["n"] for message in self.bob.got]


class OverlapTests(OverlapCase):
    """
    The first node stops, and hands the session over.
    """

    def test_copy_that_is_on_its_way_to_the_new_holder_is_waited_for(self) -> None:
        """
        A publication of after the last flush comes once and in order, although the earlier holder's copy is
        there before that of its sender's node.
        """
        self.first.local.seal(RELEASE)
        self.first.publish(1, 2)
        self.second.publish(1)
        self.hand_over()

        finished = self.finish()

        self.assertNoResult(finished)
        self.second.publish(2, 3)
        self.second.node.clock.advance(0)
        self.successResultOf(finished)
        self.assertEqual([1, 2, 3], self.numbers())

    def test_copy_of_before_the_flush_is_not_waited_for(self) -> None:
        """
        What was published before all nodes knew of the new holder comes by the earlier one only.
        """
        self.first.publish(1, 2)
        self.first.local.seal(RELEASE)
        self.hand_over()

        self.successResultOf(self.finish())
        self.assertEqual([1, 2], self.numbers())

    def test_copy_that_does_not_come_is_waited_for_a_second(self) -> None:
        """
        If the sender's node did not know of the new holder, the earlier holder's copy counts.
        """
        self.first.local.seal(RELEASE)
        self.first.publish(1)
        self.hand_over()
        finished = self.finish()
        self.second.node.clock.advance(0.9)
        self.assertNoResult(finished)

        self.second.node.clock.advance(0.2)

        self.successResultOf(finished)
        self.assertEqual([1], self.numbers())


class ResumedElsewhereTests(OverlapCase):
    """
    Bob resumes his session at the second node, and the first goes on.
    """

    is_stopping = False

    def test_no_copy_is_waited_for(self) -> None:
        """
        Bob may be at a third node before a copy comes, and later messages with him.
        """
        self.first.local.seal(RELEASE)
        self.first.publish(1)
        self.hand_over()

        self.successResultOf(self.finish())

        self.assertEqual([1], self.numbers())


class LateTests(OverlapCase):
    """
    Bob resumes his session at the second node while a member is slow.
    """

    is_stopping = False

    def test_sessions_beyond_the_bound_do_not_wait_for_what_is_late(self) -> None:
        """
        The earlier holder keeps a bounded number of sessions that have left; others are over, and counted.
        """
        self.first.local.most_late = 0
        self.assertFalse(self.first.local.seal(RELEASE))

        self.first.flushed[0].callback(True)

        self.assertTrue(self.first.local.seal(RELEASE))
        self.assertEqual(1, self.first.local.given_up)

    def wait_no_more(self) -> None:
        self.second.local.wait_no_more("n1", RELEASE.id)
        self.second.node.clock.advance(0)

    def test_copy_that_comes_after_the_client_waits_no_more_is_dropped(self) -> None:
        """
        A late publication that the client has got comes once, although its other copy is later still.
        """
        self.first.publish(1, 2)
        self.hand_over()
        self.wait_no_more()
        before = self.numbers()

        self.second.publish(1, 2, 3)
        self.second.node.clock.advance(0)
        self.bob.arrive()

        self.assertEqual([1, 2], before)
        self.assertEqual([1, 2, 3], [message["body"]["n"] for message in self.bob.got])

    def test_late_copy_is_no_earlier_than_what_its_sender_sent_before(self) -> None:
        """
        A late publication comes after the earlier ones of its sender that came to the new holder by
        themselves, also if its own other copy is not there when the client waits no more.
        """
        self.first.publish(1, 2)
        self.second.publish(1)
        self.hand_over()
        self.wait_no_more()
        self.second.publish(2, 3)

        self.assertEqual([1, 2, 3], self.numbers())

    def test_copy_that_comes_after_the_handover_has_ended_is_dropped(self) -> None:
        """
        A late publication comes once, although the sender's node sends the other copy after the earlier
        holder has ended the handover.
        """
        self.first.publish(1)
        self.hand_over()
        self.successResultOf(self.finish())
        before = self.numbers()

        self.second.publish(1, 2)
        self.second.flushed[0].callback(False)
        self.second.publish(3)
        self.second.node.clock.advance(0)
        self.bob.arrive()

        self.assertEqual([1], before)
        self.assertEqual([1, 2, 3], [message["body"]["n"] for message in self.bob.got])

    def test_copy_that_a_slow_member_sends_is_dropped(self) -> None:
        """
        The new holder asks again while a member is late.
        """
        self.first.publish(1)
        self.hand_over()
        self.successResultOf(self.finish())

        self.second.flushed[0].callback(True)
        self.second.node.clock.advance(1)
        self.second.publish(1, 2)

        self.assertEqual([1, 2], self.numbers())
        self.assertEqual(2, len(self.second.flushed))


class GivenTests(OverlapCase):
    """
    Ann asks Bob, whose session is being handed over, and her request expires.
    """

    def test_request_that_expires_on_its_way_is_answered_by_the_new_holder(self) -> None:
        """
        What was given to the new holder does not expire at the earlier one, too, unless it has to come again.
        """
        self.first.node.config.routing.reply_unknown = True
        self.first.ann.tell({"id": 7, "type": "read", "from": ANN, "to": BOB, "body": {}, "ttl": 10})
        given = self.first.local.messages(RELEASE, 0, 1_000_000)

        self.first.node.clock.advance(11)
        before = [message["body"]["code"] for message in self.first.ann.got if message["id"] == 7]
        again = self.first.local.messages(RELEASE, 0, 1_000_000)

        self.assertEqual((1, []), (len(given), before))
        self.assertEqual(([], 404), (again, self.first.ann.got[-1]["body"]["code"]))

    def test_request_that_expires_is_answered_if_the_new_holder_never_takes_it(self) -> None:
        """
        A node that was killed while messages were on their way to it does not answer for them.
        """
        self.first.node.config.routing.reply_unknown = True
        self.first.ann.tell({"id": 7, "type": "read", "from": ANN, "to": BOB, "body": {}, "ttl": 10})
        self.first.local.messages(RELEASE, 0, 1_000_000)

        self.first.node.clock.pump([1] * 20)

        self.assertEqual(404, self.first.ann.got[-1]["body"]["code"])
