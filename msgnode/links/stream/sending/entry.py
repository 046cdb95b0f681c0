"""
An entry of a stream at its source: a message that was taken to be sent, until its outcome is known.
"""

from collections.abc import Callable

from msgspec import Struct

from msgnode.links.stream.streams import IN_DOUBT, Envelope, Outcome

Done = Callable[[Envelope, Outcome], None]
EndedEach = Callable[[Envelope, bytes, Outcome], None]  # of an entry of several messages


class Entry(Struct, gc=False):
    """
    A message that was taken to be sent, or several in one body, until the outcome is known.

    `data` is its body, None if that is only on disk, at `place`. `until` is its expiry by the node's clock.
    `mark` is its sender's share, its number of messages and its fate if the node is replaced
    (send_queue.py). `number` is 0 while it was never sent. `written`: its number is on disk, so that it
    may leave. `wire` is what is cut into pieces. `ended` is what its outcome is if the destination does not
    have it: only a tombstone is sent.
    """

    key: int
    data: bytes | None
    size: int
    until: float
    envelope: Envelope | None
    done: Done | EndedEach | None
    mark: int = 0
    place: int = 0
    number: int = 0
    written: bool = False
    sends: int = 0
    sent_at: float = 0.0
    wire: bytes | None = None
    flags: int = 0
    ended: Outcome | None = None
    recovered: bool = False  # from disk, after a restart
    settled: bool = False  # its outcome is known


def withdrawn(number: int) -> Entry:
    """
    The entry that holds a number in the place of one that was withdrawn.
    """
    return Entry(
        0, None, 0, 0.0, None, None, number=number, written=True, sends=2, ended=IN_DOUBT, settled=True
    )
