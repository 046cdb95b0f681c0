"""
A member that is gone for good is not waited for at each start.
"""

from pathlib import Path

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.cluster.known_members import NAME, TICK_SECONDS, KnownMembers
from tests.support.fakes import directory

A, B = "mn://a.example/a", "mn://a.example/b"
GONE_SECONDS = 3600.0


class GoneTests(SynchronousTestCase):
    """
    A node that is started several times, beside two members.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.directory = Path(directory(self))
        self.up: set[str] = set()
        self.start()

    def start(self) -> None:
        self.known = KnownMembers(
            self.directory, lambda: (A, B), lambda: self.up, lambda: GONE_SECONDS, self.clock
        )
        self.known.start()

    def restart(self, seconds_down: float = 0.0) -> None:
        self.known.stop()
        self.clock.advance(seconds_down)
        self.start()

    def run_for(self, seconds: float) -> set[str]:
        self.clock.pump([TICK_SECONDS] * round(seconds / TICK_SECONDS))
        return self.known.expected((A, B))

    def test_member_that_was_silent_for_an_hour_is_gone(self) -> None:
        """
        A member without a link for an hour, over starts of this node, is gone until it has a link again.
        """
        self.up.add(A)
        self.assertEqual({A, B}, self.run_for(GONE_SECONDS / 2))
        self.restart()
        self.assertEqual({A, B}, self.known.expected((A, B)))
        self.assertEqual({A}, self.run_for(GONE_SECONDS))
        self.restart()
        self.assertEqual({A}, self.known.expected((A, B)))

        self.up.add(B)
        self.run_for(TICK_SECONDS)

        self.assertEqual({A, B}, self.known.expected((A, B)))

    def test_time_in_which_this_node_was_down_does_not_count(self) -> None:
        """
        A node that was down for long expects the members that it had before.
        """
        self.up |= {A, B}
        self.run_for(GONE_SECONDS)
        self.up.clear()

        self.restart(10 * GONE_SECONDS)

        self.assertEqual({A, B}, self.known.expected((A, B)))

    def test_file_that_cannot_be_read_is_not_used(self) -> None:
        """
        With a damaged file all members are expected, and the file is written again.
        """
        self.known.stop()
        (self.directory / NAME).write_bytes(b'{"mn://')

        self.start()
        found = self.run_for(TICK_SECONDS)
        self.restart()

        self.assertEqual(({A, B}, {A, B}), (found, self.known.expected((A, B))))
