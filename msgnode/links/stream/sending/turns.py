"""
Turns of the lanes of a stream: which may send while others have more.
"""

from collections.abc import Mapping

from msgnode.links.stream.sending.entry import Entry
from msgnode.links.stream.sending.sender_lane import SenderLane

OVERTAKING = 9  # entries for one that they overtake, as in the send queue of a link
MAX_CREDIT = 10 * OVERTAKING


class Turns:
    """
    The turns of lanes: while a higher one has entries in its queue, each tenth turn is of the oldest entry.

    The windows of two lanes alone would share a path equally: what waits in the middle of it has no priority.
    A lane that is stuck has no turns, and no other lane waits for it.
    """

    def __init__(self, lanes: Mapping[int, SenderLane]) -> None:
        self._lanes = lanes
        self._credit = 0  # entries that left before older ones

    def has(self, priority: int, entry: Entry) -> bool:
        """
        Is it the turn of this entry, which is the first of its lane that has no number?
        """
        oldest, waits_above = entry.key, False
        for each, lane in self._lanes.items():
            if lane.queue and (each == priority or not lane.is_stuck):
                oldest = min(oldest, lane.queue[0].key)
                waits_above |= each > priority
        return not waits_above or (self._credit >= OVERTAKING and oldest == entry.key)

    def took(self, priority: int) -> None:
        """
        An entry of this lane has a number now.
        """
        waits_below = False
        for each, lane in self._lanes.items():
            if lane.queue and each != priority and not lane.is_stuck:
                if each > priority:
                    self._credit = max(0, self._credit - OVERTAKING)
                    return
                waits_below = True
        self._credit = min(MAX_CREDIT, self._credit + 1) if waits_below else 0
