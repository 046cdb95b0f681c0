"""
Which member holds the session of a token, or the Socket.IO client of a sid.
"""

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from msgnode.cluster.member_requests import MemberRequests
from msgnode.cluster.relay.holders import UNKNOWN_SECONDS, SidTags, TokenHolders
from msgnode.cluster.relay.relay import NotRelayed
from tests.support.cluster_members import MemoryCluster

A, B, C = (f"mn://example.com/{name}" for name in "abc")
TOKEN = b"t" * 32


class TokenTests(SynchronousTestCase):
    """
    Three members; `held` has the tokens that each holds.
    """

    def setUp(self) -> None:
        self.cluster = MemoryCluster()
        self.held: dict[str, set[bytes]] = {name: set() for name in (A, B, C)}
        self.asked: list[str] = []
        self.away: list[str] = []
        self.holders = {name: self.start(name) for name in (A, B, C)}
        self.cluster.connect()
        self.cluster.run(0.1)

    def start(self, name: str) -> TokenHolders:
        members = self.cluster.start(name)
        members.listener = requests = MemberRequests(members, self.cluster.clock)

        def is_held(token_hash: bytes) -> bool:
            self.asked.append(name)
            return token_hash in self.held[name]

        seconds = self.cluster.clock.seconds
        return TokenHolders(requests, is_held, members.up, lambda: self.away, seconds)

    def find(self, seconds: float = 0.1) -> Deferred[str]:
        found = self.holders[A].find(TOKEN)
        self.cluster.run(seconds)
        return found

    def test_holder_is_asked_for_once(self) -> None:
        """
        All members are asked for a token, and the one that holds its session is remembered.
        """
        self.held[C].add(TOKEN)

        found = [self.find(), self.find()]

        self.assertEqual([C, C], [self.successResultOf(each) for each in found])
        self.assertEqual([B, C], sorted(self.asked))

    def test_questions_at_once_are_one(self) -> None:
        """
        Requests with one token that arrive together ask once; one whose client leaves changes nothing.
        """
        self.held[B].add(TOKEN)

        found = [self.holders[A].find(TOKEN) for _ in range(3)]
        found[0].addErrback(lambda why: None).cancel()
        self.cluster.run(0.1)

        self.assertEqual([B, B], [self.successResultOf(each) for each in found[1:]])
        self.assertEqual([B, C], sorted(self.asked))

    def test_unknown_token(self) -> None:
        """
        A token that no member knows is not asked for again for a second.
        """
        found = [self.find(), self.find(UNKNOWN_SECONDS), self.find()]

        self.assertEqual(["", "", ""], [self.successResultOf(each) for each in found])
        self.assertEqual([B, B, C, C], sorted(self.asked))

    def test_session_that_moved(self) -> None:
        """
        A holder that no longer holds the session is forgotten, and all are asked again.
        """
        self.held[C].add(TOKEN)
        self.find()
        self.held[C].clear()
        self.held[B].add(TOKEN)

        self.holders[A].forget(TOKEN)

        self.assertEqual(B, self.successResultOf(self.find()))

    def test_member_that_does_not_answer(self) -> None:
        """
        While a member that may hold the session says nothing, the token is not called unknown.
        """
        self.cluster.stop(C)

        why = self.failureResultOf(self.find(2), NotRelayed).value

        self.assertEqual((503, f"{C}, which may hold this session, is not reached"), (why.code, str(why)))

    def test_holder_that_is_away(self) -> None:
        """
        A holder without a link is waited for while it may soon be back; then its sessions are unknown here.
        """
        self.held[C].add(TOKEN)
        self.find()
        self.cluster.cut(A, C)
        self.away = [C]

        why = self.failureResultOf(self.find(), NotRelayed).value
        self.away = []
        later = self.find()

        self.assertEqual(f"{C}, which holds this session, is not reached", str(why))
        self.assertEqual("", self.successResultOf(later))

    def test_token_of_no_session_while_a_member_is_away(self) -> None:
        """
        A token that no reached member knows may be of a session at one that is away.
        """
        self.cluster.cut(A, C)
        self.away = [C]

        why = self.failureResultOf(self.find(), NotRelayed).value

        self.assertEqual(f"{C}, which may hold this session, is not reached", str(why))

    def test_node_without_members(self) -> None:
        """
        A node that reaches no other knows its own sessions only.
        """
        self.cluster.cut(A, B)
        self.cluster.cut(A, C)

        self.assertEqual("", self.successResultOf(self.find()))


class SidTests(SynchronousTestCase):
    """
    The tags of two members.
    """

    def setUp(self) -> None:
        self.b = SidTags(B, (b"instance", 1))
        self.a = SidTags(A, (b"other", 3))
        self.a.member_up(B, (b"instance", 1))

    def test_sid_names_its_process(self) -> None:
        """
        A sid is found at the process that made it, and a node's own is at no other.
        """
        self.assertEqual(B, self.a.holder(self.b.new_sid()))
        self.assertEqual("", self.a.holder(self.a.new_sid()))

    def test_sid_of_an_earlier_start(self) -> None:
        """
        When a member starts again, the clients of its earlier process are nowhere.
        """
        before = self.b.new_sid()

        self.a.member_up(B, (b"instance", 2))

        self.assertEqual("", self.a.holder(before))
        self.assertEqual(B, self.a.holder(SidTags(B, (b"instance", 2)).new_sid()))

    def test_made_up_sid(self) -> None:
        """
        A sid that no node made is nowhere.
        """
        self.assertEqual(["", ""], [self.a.holder(sid) for sid in ("", "x" * 5000)])
