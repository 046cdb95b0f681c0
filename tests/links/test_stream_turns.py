"""
Turns of the lanes of a stream: what is urgent goes first, and nothing starves.
"""

from msgnode.links.stream.sending.entry import Entry
from msgnode.links.stream.sending.sender_lane import SenderLane
from msgnode.links.stream.sending.turns import Turns


def _lanes(**waiting: int) -> dict[int, SenderLane]:
    """
    Lanes with so many entries in their queues; the lowest lane was filled first.
    """
    lanes = {}
    keys = iter(range(1, 1000))
    for name, count in sorted(waiting.items()):
        lanes[int(name[1:])] = lane = SenderLane()
        lane.queue.extend(Entry(next(keys), b"", 1, 1000.0, None, None, 0) for _ in range(count))
    return lanes


def _leave(lanes: dict[int, SenderLane], order: list[int]) -> list[int]:
    """
    The lanes of the entries as they leave; the first lane of `order` that has an entry and a turn is next.
    """
    turns, left = Turns(lanes), []
    while any(lane.queue for lane in lanes.values()):
        priority = next(each for each in order if lanes[each].queue and turns.has(each, lanes[each].queue[0]))
        turns.took(priority)
        lanes[priority].queue.popleft()
        left.append(priority)
    return left


def test_nine_of_ten_turns_are_of_the_highest_lane_that_waits():
    """
    The lower lane asks first each time.
    """
    assert _leave(_lanes(p1=5, p7=20), [1, 7]) == [7] * 9 + [1] + [7] * 9 + [1] + [7] * 2 + [1] * 3


def test_turn_of_what_was_overtaken_is_of_the_oldest():
    """
    Of two lanes that are overtaken, the one that waits longest goes first.
    """
    assert _leave(_lanes(p0=2, p1=2, p7=20), [0, 1, 7])[:20] == ([7] * 9 + [0]) * 2


def test_lane_whose_higher_ones_are_empty_always_has_its_turn():
    """
    Nobody waits for an empty queue.
    """
    lanes = _lanes(p1=1, p7=0)
    turns = Turns(lanes)

    assert turns.has(1, lanes[1].queue[0])


def test_no_turns_are_saved_while_nothing_is_overtaken():
    """
    A hundred entries that overtook nobody give a later one no turn before others.
    """
    lanes = _lanes(p1=0, p7=1)
    turns = Turns(lanes)
    for _ in range(100):
        turns.took(7)
    lanes[1].queue.append(Entry(0, b"", 1, 1000.0, None, None, 0))

    assert not turns.has(1, lanes[1].queue[0])
