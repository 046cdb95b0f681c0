"""
Keys that are due at a time.
"""

from msgnode.structures.deadlines import MIN_HEAP, TURN, Deadlines


def test_keys_come_when_they_are_due():
    """
    The earliest first; one whose time was changed comes at its new time, one that was discarded never.
    """
    queue: Deadlines[str] = Deadlines()
    for key, when in (("b", 2.0), ("a", 1.0), ("changed", 1.0), ("gone", 1.0), ("changed", 3.0)):
        queue.set(key, when)
    queue.discard("gone")

    assert list(queue.take(2.0)) == ["a", "b"]
    assert list(queue.take(2.9)) == []
    assert list(queue.take(3.0)) == ["changed"]
    assert not queue.is_due(100.0)


def test_a_turn_is_bounded():
    """
    Many keys that are due at once come in several turns.
    """
    queue: Deadlines[int] = Deadlines()
    for number in range(TURN + 1):
        queue.set(number, 1.0)

    first = list(queue.take(1.0))
    is_due = queue.is_due(1.0)
    second = list(queue.take(1.0))

    assert (len(first), is_due, len(second)) == (TURN, True, 1)


def test_a_key_that_is_set_again_and_again_costs_nothing():
    """
    What is kept is bounded by the number of keys, however often one of them is used.
    """
    queue: Deadlines[str] = Deadlines()
    queue.set("other", 5.0)

    for number in range(100_000):
        queue.set("same", 10.0 + number)

    assert len(queue) <= MIN_HEAP + 2 * 2 + 1
    assert [key for _ in range(10) for key in queue.take(1e9)] == ["other", "same"]


def test_discarded_keys_are_no_load():
    """
    Keys that come and go leave nothing behind.
    """
    queue: Deadlines[int] = Deadlines()
    for number in range(10_000):
        queue.set(number, 100.0)
        queue.discard(number)

    assert len(queue) <= MIN_HEAP + 1
    assert list(queue.take(1000.0)) == []
