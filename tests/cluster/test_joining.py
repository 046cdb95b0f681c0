"""
A node that starts waits for the other members before it takes clients.
"""

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.cluster.joining import ALONE_SECONDS, MOST_SECONDS, Joining


class JoiningTests(SynchronousTestCase):
    """
    A node, of which a test says what it reaches.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.is_connected = self.is_named = True
        self.missing: set[str] = set()
        self.compared: Deferred[None] = Deferred()
        self.joined = 0
        self.joining = Joining(
            lambda: self.is_connected,
            lambda: self.is_named,
            lambda: self.missing,
            lambda: self.compared,
            self.count,
            self.clock,
        )

    def count(self) -> None:
        self.joined += 1

    def run_for(self, seconds: float) -> int:
        self.clock.pump([0.05] * round(seconds / 0.05))
        return self.joined

    def test_waits_until_members_have_said_what_they_hold(self) -> None:
        """
        It has joined when it has its name, all members that it knows are reached, and they have said what
        they hold.
        """
        self.is_named = False
        self.missing.add("mn://a.example/n2")
        self.joining.start()
        self.assertEqual(0, self.run_for(1))
        self.is_named = True
        self.assertEqual(0, self.run_for(1))
        self.missing.clear()
        self.assertEqual(0, self.run_for(1))
        self.compared.callback(None)

        self.assertEqual(1, self.run_for(20))

    def test_waits_for_no_member_longer_than_ten_seconds(self) -> None:
        """
        A member that does not come holds up no client for longer than ten seconds.
        """
        self.missing.add("mn://a.example/n2")
        self.joining.start()

        self.assertEqual(0, self.run_for(MOST_SECONDS - 1))
        self.assertEqual(1, self.run_for(2))

    def test_without_nats(self) -> None:
        """
        Without NATS clients are served after five seconds.
        """
        self.is_connected = self.is_named = False
        self.joining.start()

        self.assertEqual(0, self.run_for(ALONE_SECONDS - 1))
        self.assertEqual(1, self.run_for(2))
        self.joining.stop()
