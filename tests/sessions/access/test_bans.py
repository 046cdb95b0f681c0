"""
Bans: whom they concern, and how many there may be.
"""

from typing import NamedTuple

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.protocol.errors import Rejected
from msgnode.sessions.access.bans import MAX_BANS, Ban, Bans


class Peer(NamedTuple):
    """
    A connection from somewhere.
    """

    peer: str
    origin: str = ""


class BanTests(SynchronousTestCase):
    """
    The bans of a node.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.bans = Bans(self.clock.seconds)

    def ban(self, kind: str, value: str, seconds: float | None = None) -> Ban:
        until = None if seconds is None else self.clock.seconds() + seconds
        made = Ban(f"{kind} {value}", kind, value, until, "a test", "admin-token", 0.0)
        self.bans.add(made)
        return made

    def test_a_ban_of_an_ipv4_address_concerns_it_at_a_listener_for_ipv6(self) -> None:
        """
        There its name is ::ffff:203.0.113.7; a ban may be written that way, too.
        """
        for value in ("203.0.113.7", "203.0.113.0/24", "::ffff:203.0.113.7", "::ffff:203.0.113.0/120"):
            made = self.ban("peer", value)
            for peer in ("203.0.113.7:4000", "[::ffff:203.0.113.7]:4000", "::ffff:203.0.113.7"):
                self.assertIsNotNone(self.bans.of_connection(Peer(peer)), (value, peer))
                self.assertTrue(self.bans.matches(made, "", "", Peer(peer)), (value, peer))
            for peer in ("203.0.114.7:4000", "[::ffff:203.0.114.7]:4000", "[2001:db8::7]:4000", "unix", ""):
                self.assertIsNone(self.bans.of_connection(Peer(peer)), (value, peer))
            self.bans.remove(made.id)

    def test_bans_that_are_over_make_room_for_new_ones(self) -> None:
        """
        Without any that are over, one more is refused.
        """
        for number in range(MAX_BANS):
            self.ban("runtime", f"runtime://x/{number}", 60)
        self.assertEqual(0, self.bans.room)
        self.assertRaises(Rejected, self.ban, "runtime", "runtime://x/more")

        self.clock.advance(61)
        self.ban("runtime", "runtime://x/more")

        self.assertEqual((1, MAX_BANS - 1), (len(self.bans), self.bans.room))

    def test_a_banned_client_asks_again_soon_after_the_end(self) -> None:
        """
        Within 15 s, spread so that not all ask at once; of a long ban after five minutes, of one for
        good never.
        """
        for seconds, earliest, latest in ((60, 60.0, 75.0), (5, 5.0, 10.0), (86400, 300.0, 315.0)):
            closing = self.ban("user", "user://x", seconds).closing(self.clock.seconds())
            found = tuple(closing.spread(chance).retry_after for chance in (0.0, 1.0))
            self.assertEqual((earliest, latest), found)
        self.assertIsNone(self.ban("user", "user://y").closing(0.0).spread(1.0).retry_after)

    def test_a_ban_replaces_one_of_the_same_kind_and_value(self) -> None:
        """
        The newer one decides when it ends.
        """
        self.ban("user", "user://x", 60)
        self.ban("user", "user://x", 600)
        self.clock.advance(61)

        self.assertEqual(1, len(self.bans.all()))
        self.assertIsNotNone(self.bans.of_session("runtime://x/a", "user://x", Peer("unix")))

    def test_a_connection_is_asked_again_when_it_opens_a_session(self) -> None:
        """
        In the PROXY protocol its peer is the proxy at first.
        """
        self.ban("peer", "203.0.113.7")

        self.assertIsNone(self.bans.of_session("runtime://x/a", "", Peer("10.0.0.1:9")))
        self.assertIsNotNone(self.bans.of_session("runtime://x/a", "", Peer("203.0.113.7:4000")))
