"""
The end of a backlog's messages other than by an acknowledgement: their node is forgotten, or replaced.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from msgnode.links.stream.sending.backlog import Backlog
from msgnode.links.stream.sending.entry import Entry
from msgnode.links.stream.sending.removal import Queue
from msgnode.links.stream.sending.send_queue import moves, waits
from msgnode.links.stream.streams import IN_DOUBT, NO_PATH, UNREADABLE

Adopt = Callable[[int, Entry, bytes], None]  # takes an entry with its lane and its bytes


def forget(backlog: Backlog) -> int:
    """
    Drop all entries, each with NO_PATH; those that were never sent some at a time. Returns how many.
    """
    count = len(backlog)
    queues = _take_queues(backlog)
    for entry in backlog.take_flight():
        backlog.settle(entry, NO_PATH)

    def leave(priority: int, entry: Entry) -> bool:
        backlog.drop(priority, entry, NO_PATH)
        return True

    backlog.removal.begin(queues, leave)
    return count


def _take_queues(backlog: Backlog) -> list[Queue]:
    """
    Take out all that waits, the highest priority first.
    """
    queues = [(priority, lane.queue) for priority, lane in backlog.by_priority]
    for _, lane in backlog.by_priority:
        lane.queue = deque()
    return queues


def replace(backlog: Backlog, adopt: Adopt, done: Callable[[], None]) -> None:
    """
    Take out all entries that need not wait for this node: those that were sent are in doubt, the others are
    adopted, or end. Until `done` is called, new ones of that kind are taken out, too.
    """
    if backlog.removal.is_running:
        done()
        return
    queues: list[Queue] = []
    for priority, entries in _take_queues(backlog):
        sent = backlog.lanes[priority].flight.values()
        queues.append((priority, deque(entry for entry in sent if not entry.settled and not waits(entry))))
        queues.append((priority, entries))

    def replaced(stayed: list[Queue]) -> None:
        for priority, entries in stayed:
            lane = backlog.lanes[priority]
            entries.extend(lane.queue)
            lane.queue = entries
        done()

    backlog.removal.begin(queues, partial(_leave, backlog, adopt), replaced, lambda entry: not waits(entry))


def _leave(backlog: Backlog, adopt: Adopt, priority: int, entry: Entry) -> bool:
    if waits(entry):
        return False
    if entry.number:
        backlog.withdraw(priority, entry)
    if entry.sends:
        backlog.end_withdrawn(priority, entry, IN_DOUBT)
    elif moves(entry):
        _move(backlog, adopt, priority, entry)
    else:
        backlog.drop(priority, entry, NO_PATH)
    return True


def _move(backlog: Backlog, adopt: Adopt, priority: int, entry: Entry) -> None:
    try:
        data = backlog.bounds.page_in(entry)
    except OSError:
        backlog.drop(priority, entry, UNREADABLE)
        return
    adopt(priority, entry, data)
    backlog.moved(priority, entry)
