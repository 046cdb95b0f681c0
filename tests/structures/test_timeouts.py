"""
Timeouts of many keys.
"""

from twisted.internet.task import Clock

from msgnode.structures.timeouts import TURN, Timeouts


def test_keys_expire_in_their_order():
    """
    Each key expires after its time, and one that was cancelled does not.
    """
    clock, expired = Clock(), []
    timeouts: Timeouts[str] = Timeouts(clock, 2.0, expired.append)
    timeouts.start("a")
    clock.advance(1)
    timeouts.start("b")
    timeouts.start("cancelled")
    timeouts.cancel("cancelled")

    clock.advance(1)
    first = list(expired)
    clock.advance(1)

    assert (first, expired) == (["a"], ["a", "b"])


def test_key_that_is_started_again_has_its_whole_time():
    """
    A key that is started again expires once, after its time from then on.
    """
    clock, expired = Clock(), []
    timeouts: Timeouts[str] = Timeouts(clock, 2.0, expired.append)
    timeouts.start("a")
    clock.advance(1)
    timeouts.start("a")

    clock.advance(1)
    assert expired == []
    clock.pump([1, 1, 1])

    assert expired == ["a"]


def test_many_keys_expire_in_several_turns():
    """
    A bounded number of keys expires in one turn, and what comes between two turns may cancel the others.
    """
    clock, expired = Clock(), []
    timeouts: Timeouts[int] = Timeouts(clock, 2.0, expired.append)
    for number in range(3 * TURN):
        timeouts.start(number)
    clock.callLater(2, lambda: [timeouts.cancel(number) for number in range(2 * TURN)])

    clock.advance(2)

    assert expired == [*range(TURN), *range(2 * TURN, 3 * TURN)]


def test_key_that_is_started_while_others_expire_delays_none():
    """
    What is left for the next turn expires then, although a key was started meanwhile.
    """
    clock, expired = Clock(), []

    def expire(key: int) -> None:
        expired.append(key)
        if key == 0:
            timeouts.start(-1)

    timeouts: Timeouts[int] = Timeouts(clock, 2.0, expire)
    for number in range(2 * TURN):
        timeouts.start(number)
    clock.advance(2)

    assert expired == list(range(2 * TURN))


def test_nothing_stays_behind():
    """
    No timer runs when all keys are cancelled, or after the end.
    """
    clock = Clock()
    timeouts: Timeouts[str] = Timeouts(clock, 2.0, lambda key: None)
    timeouts.start("a")
    timeouts.cancel("a")

    assert clock.getDelayedCalls() == []

    timeouts.start("a")
    timeouts.stop()

    assert clock.getDelayedCalls() == []
