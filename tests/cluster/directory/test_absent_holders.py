"""
Sessions that a member has which starts, and one that is away with a higher generation.
"""

import pytest

from msgnode.cluster.directory.absent_holders import AbsentHolders
from msgnode.cluster.directory.limits import DirectoryLimits
from msgnode.cluster.directory.wire import HeldSession
from tests.support.cluster_directory import HASH, A, B, C, DirectoryNode, directories

RUNTIME = "hyperty-runtime://example.com/r{}"
LEASE_SECONDS = 60


class Started:
    """
    The first node starts with sessions of generation 3, while the third one, which has them with generation
    `higher`, is away. `heard` is what the first hears of that from the second.
    """

    def __init__(self, higher: int = 4, count: int = 1, is_away: bool = True, max_payload: int = 60_000):
        limits = DirectoryLimits(lease_seconds=LEASE_SECONDS)
        self.cluster, self.b, c = directories(B, C, limits=limits, max_payload=max_payload)
        self.names = [RUNTIME.format(number) for number in range(count)]
        for name in self.names:
            c.open(name, generation=higher)
        self.cluster.run(1)
        if is_away:
            c.directory.stop()
            self.cluster.kill(C)
        self.a = DirectoryNode(self.cluster, A, limits)
        self.heard: list[tuple[str, int]] = []
        self.a.directory.session_absent = lambda name, generation: self.heard.append((name, generation))
        for name in self.names:
            self.a.open(name, generation=3)
        self.cluster.connect()
        self.compared_at: list[int] = []  # how many were heard of when all members had said what they hold
        self.cluster.run(0.05)
        self.a.directory.compare().addCallback(lambda done: self.compared_at.append(len(self.heard)))
        self.cluster.run(1)

    def holders(self) -> list[tuple[str, int]]:
        return [(node, entry.generation) for node, entry in self.a.directory.sessions(self.names[0])]


def test_node_that_starts_hears_of_a_newer_session_at_a_member_that_is_away() -> None:
    """
    It knows the holder and its generation.
    """
    started = Started()

    assert started.heard == [(started.names[0], 4)]
    assert started.holders() == [(C, 4)]


@pytest.mark.parametrize("higher, is_away", [(3, True), (2, True), (4, False)])
def test_node_hears_of_none_that_is_older_or_at_a_member_that_says_so_itself(
    higher: int, is_away: bool
) -> None:
    """
    An equal generation is no newer one.
    """
    assert Started(higher, is_away=is_away).heard == []


@pytest.mark.parametrize("max_payload", [60_000, 2_000])
def test_all_are_known_when_the_members_have_been_compared(max_payload: int) -> None:
    """
    A node reads clients after that. Many sessions need several payloads.
    """
    started = Started(count=2500, max_payload=max_payload)

    assert started.compared_at == [2500]
    assert sorted(name for name, _ in started.heard) == sorted(started.names)


def test_what_the_member_says_itself_counts_when_it_is_back() -> None:
    """
    It does not hold the session any more.
    """
    started = Started()

    DirectoryNode(started.cluster, C)
    started.cluster.connect()
    started.cluster.run(1)

    assert started.holders() == []


def test_what_is_known_of_a_member_that_is_away_ends_with_its_lease() -> None:
    """
    Its addresses end then, too.
    """
    started = Started()

    started.cluster.run(LEASE_SECONDS + 2)

    assert started.holders() == []


def test_sessions_at_members_that_are_away_are_bounded() -> None:
    """
    Beyond the bound no other session is noted; one that is known may have a higher generation.
    """
    absent = AbsentHolders(lambda: 0.0, LEASE_SECONDS, most=2)
    noted = [absent.note(C, HeldSession(name, HASH, 2)) for name in ("1", "2", "3")]

    assert noted == [True, True, False]
    assert absent.note(C, HeldSession("1", HASH, 3))
    assert not absent.note(B, HeldSession("1", HASH, 3))
