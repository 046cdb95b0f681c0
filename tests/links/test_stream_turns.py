"""
Turns of the lanes of a stream: what is urgent goes first, and nothing starves.
"""

from collections.abc import Callable

import pytest

from msgnode.links.stream.sending.entry import Entry
from msgnode.links.stream.sending.sender_lane import SenderLane
from msgnode.links.stream.sending.turns import Turns
from msgnode.links.wire.stream_header import LaneAcknowledgement


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


def _send_all(lane: SenderLane) -> None:
    while lane.may_number:
        entry = lane.queue.popleft()
        lane.number(entry)
        entry.written = True
        lane.sent(entry, 1.0)


def _probe(lane: SenderLane) -> None:
    """
    Nothing of it is acknowledged in time: its oldest entry is sent again, and the others wait for that.
    """
    _send_all(lane)
    lane.lose_all()


def _gap(lane: SenderLane) -> None:
    """
    The destination has all but the oldest entry, and takes no higher numbers.
    """
    _send_all(lane)
    lane.acknowledge(LaneAcknowledgement(7, 0, [(2, 32)], []), 32)


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


@pytest.mark.parametrize("stick", [_probe, _gap])
def test_no_lane_waits_for_one_that_is_stuck(stick: Callable[[SenderLane], None]) -> None:
    """
    While the oldest entry of a higher lane does not arrive, lower lanes have all turns, by their priority.
    """
    lanes = _lanes(p1=3, p4=12, p7=40)
    stick(lanes[7])
    turns = Turns(lanes)
    left = []

    for _ in range(15):
        queued = [each for each in (1, 4) if lanes[each].queue]
        priority = next(each for each in queued if turns.has(each, lanes[each].queue[0]))
        turns.took(priority)
        lanes[priority].queue.popleft()
        left.append(priority)

    assert left == [4] * 9 + [1] + [4] * 3 + [1] * 2


def test_lane_that_fills_its_window_is_waited_for() -> None:
    """
    Acknowledgements of what is under way will come, and give it room.
    """
    lanes = _lanes(p1=1, p7=40)
    _send_all(lanes[7])

    assert not Turns(lanes).has(1, lanes[1].queue[0])
