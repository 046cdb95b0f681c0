"""
What one member is sent of sessions that leave: so much at a time that neither side holds too much of them.
"""

from typing import Any

from twisted.internet.task import Clock

from msgnode.cluster.moves.departures import MAX_REPLIES, STATE_BYTES, Departures
from msgnode.cluster.moves.handover import Handover
from msgnode.cluster.moves.session_holder import Release
from msgnode.cluster.moves.wire import Got, Offer, State, Want, decode

STATE = bytes(1024 * 1024)
PART_BYTES = 256 * 1024
COUNT = 40


class Member:
    """
    A member with room for everything, which keeps what it is sent (Members).
    """

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, node: str, payload: bytes) -> bool:
        self.sent.append(decode(payload))
        return True


class FullMember:
    """
    A member that takes nothing (Members).
    """

    def send(self, node: str, payload: bytes) -> bool:
        return False


class Holder:
    """
    The holder of sessions with large states (SessionHolder).
    """

    def __init__(self) -> None:
        self.states = 0

    def state(self, release: Release, claims: Any) -> bytes:
        self.states += 1
        return STATE

    def messages(self, release: Release, after: int, most_bytes: int) -> list[tuple[int, bytes]]:
        return []

    def seal(self, release: Release) -> bool:
        return True

    def is_late(self, release: Release) -> bool:
        return False

    def handed_over(self, release: Release, key: int) -> None: ...
    def discard(self, release: Release) -> None: ...


class World:
    """
    COUNT handovers to one member, which has been offered all of them and wants their states.
    """

    def __init__(self) -> None:
        self.member, self.holder, self.clock = Member(), Holder(), Clock()
        member: Any = self.member
        self.departures = Departures("mn://a.example/2", member, self.clock)
        self.departures.link_up()
        for number in range(COUNT):
            holder: Any = self.holder
            release = Release(
                number.to_bytes(8, "big"), f"runtime://a.example/{number}", 2, "mn://a.example/2"
            )
            self.departures.add(Handover(release, holder, PART_BYTES))
        self.pump()
        self.want([offer.id for offer in self.member.sent if isinstance(offer, Offer)])

    def want(self, ids: list[bytes]) -> None:
        for id in ids:
            handover = self.departures.handovers[id]
            handover.wanted(Want(id, -1, []))
            self.departures.wake(handover)

    def pump(self) -> None:
        while self.departures.pump():
            pass

    def come(self) -> list[bytes]:
        """
        The handovers whose whole state has come since the last call.
        """
        parts = [each for each in self.member.sent if isinstance(each, State)]
        self.member.sent.clear()
        return [part.id for part in parts if part.offset + len(part.data) == part.size]


def test_states_are_made_as_there_is_room_for_them() -> None:
    """
    The states of many sessions that leave at once are made a few at a time, and all of them come.
    """
    world = World()
    came, most = 0, 0
    while came < COUNT:
        world.pump()
        found = world.come()
        most = max(most, world.holder.states - came)
        assert found, "nothing waits for ever"
        for id in found:
            handover = world.departures.handovers[id]
            handover.got(Got(id, 0, False))
            world.departures.wake(handover)
        came += len(found)

    assert COUNT == came == world.holder.states
    assert most <= STATE_BYTES // len(STATE) + 1


def test_state_that_is_wanted_again_has_room() -> None:
    """
    A state that has to be made again, because its member did not get it, does not wait for itself.
    """
    world = World()
    world.pump()
    first = world.come()

    world.want(first)
    world.pump()

    assert first == world.come()


def test_lost_link_makes_room_for_states() -> None:
    """
    What was on its way when a link was lost takes no room on the next one.
    """
    world = World()
    world.pump()
    first = world.come()

    world.departures.link_down()
    world.departures.link_up()
    world.pump()
    world.want([offer.id for offer in world.member.sent if isinstance(offer, Offer)])
    world.pump()

    assert len(first) == len(world.come())


def test_answers_that_wait_are_bounded() -> None:
    """
    A member that takes nothing is kept so many answers; what is dropped beyond that is counted.
    """
    departures = Departures("mn://example.com/b", FullMember(), Clock())
    departures.link_up()

    for _ in range(MAX_REPLIES + 3):
        departures.reply(Got(bytes(8), 0, True))
    departures.pump()

    assert departures.unsaid == 3
