"""
The compaction of the spool, for the entries of one backlog.
"""

from collections.abc import Callable, Iterator

from msgnode.links.stream.common import Placed
from msgnode.links.stream.sending.backlog import TURN_MESSAGES, Backlog
from msgnode.links.stream.storage.store import StreamStore
from msgnode.links.stream.streams import UNREADABLE


def rewrite(
    backlog: Backlog,
    store: StreamStore,
    index: int,
    is_old: Callable[[int], bool],
    moved: list[tuple[Placed, int]],
) -> Iterator[None]:
    """
    Append again what is in old segments. While the whole spool is rewritten, an entry that is not in memory
    keeps its place; the new one is added to `moved`.
    """
    for count, (priority, entry) in enumerate(backlog.entries()):
        if count % TURN_MESSAGES == TURN_MESSAGES - 1:
            yield
        if entry.settled or not is_old(entry.place):
            continue
        was_on_disk, data, until = entry.data is None, entry.data, entry.until
        if data is None:
            try:
                data = store.read(entry.place, entry.size)
            except OSError:
                if not entry.number:
                    backlog.drop_waiting(priority, entry, UNREADABLE)
                    continue
                entry.ended, data, until = UNREADABLE, b"", 0.0  # its number goes on, as a tombstone
        if entry.place:
            store.release(entry.size)
        place = store.keep(index, priority, entry.key, data, until, entry.number, entry.mark)
        if was_on_disk and store.rewriting:
            moved.append((entry, place))
            continue
        backlog.wrote_again(entry, data, place)
    backlog.commit()
