"""
Storage of streams: the Protocol, and the store of a node without a state directory.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct, field

from msgnode.links.wire.stream_header import Epoch

STATE_VERSION = 1  # rises with a change of PeerState that an older msgnode would misread


class UnreadableState(ValueError):
    """
    The state of streams on disk is of a newer version, or no such state.
    """


class StateVersion(Struct):
    """
    The version of a state; the first states had none.
    """

    version: int = 1


class PeerState(Struct):
    """
    The state of the streams to and from one node, in addition to their entries and counts.

    `sending` is the epoch of the stream to the node, `memory` the instance of the node that it was opened
    with, empty before; `receiving` is the epoch of the stream from the node. `numbers` has the next number
    of each lane, `instance` is the instance that the node has shown last.
    """

    node: str
    sending: Epoch | None = None
    memory: bytes = b""
    receiving: Epoch | None = None
    numbers: list[int] = field(default_factory=list)
    instance: bytes = b""
    version: int = STATE_VERSION


class StoredEntry(Struct, gc=False):
    """
    An entry on disk: one to send (`number` is 0 if it never was), or one of the inbound journal.

    `until` is by the node's clock.
    """

    lane: int
    key: int
    number: int
    place: int
    size: int
    until: float
    mark: int = 0


class StoredPeer(Struct):
    """
    All that the store has of one node: entries to send, the inbound journal, receive counts by lane.

    `counts` has for each lane the number received and the numbers that were stale.
    """

    index: int
    state: PeerState
    sending: list[StoredEntry] = field(default_factory=list)
    inbound: list[StoredEntry] = field(default_factory=list)
    counts: dict[int, tuple[int, list[int]]] = field(default_factory=dict)
    last_key: int = 0


class StreamStore(Protocol):
    """
    The store of streams. Nodes are named by an index, which is never another node's.

    All calls up to a write are one batch: it is on disk as a whole or not at all.
    """

    @property
    def failing(self) -> str | None:
        """
        Why nothing that is written counts now; None while all is well.
        """

    @property
    def rewriting(self) -> bool:
        """
        Is everything being rewritten? Until that is done the places before are valid.
        """

    def keep(
        self, peer: int, lane: int, key: int, data: bytes, until: float, number: int, mark: int = 0
    ) -> int:
        """
        Append an entry to send; `number` is 0 if it only waits, `mark` is kept with it (64 bits). Returns its
        place, 0 if there is none.
        """

    def numbered(self, peer: int, lane: int, key: int, number: int) -> None:
        """
        An entry has that number now; 0: none any more.
        """

    def acknowledged(self, peer: int, lane: int, number: int) -> None:
        """
        All entries of the lane up to that number are settled.
        """

    def removed(self, peer: int, lane: int, key: int) -> None: ...

    def received(self, peer: int, lane: int, number: int, stale: Sequence[int]) -> None: ...

    def keep_inbound(self, peer: int, lane: int, key: int, data: bytes, until: float) -> int:
        """
        Append a message that the listener is not done with. Returns its place, 0 if there is none.
        """

    def remove_inbound(self, peer: int, lane: int, key: int) -> None: ...

    def state(self, peer: int, state: PeerState) -> None: ...

    def forget(self, peer: int) -> None: ...

    def holds(self, place: int, size: int) -> bool:
        """
        Can the entry be read back?
        """

    def read(self, place: int, size: int) -> bytes: ...

    def release(self, size: int) -> None:
        """
        An entry with a place is settled or removed.
        """

    def when_written(self, call: Callable[[], object]) -> None:
        """
        Call once everything up to now is on disk.
        """

    def before_write(self, call: Callable[[], object]) -> None:
        """
        Call when the batch is about to be written; what it appends is part of it.
        """

    def settle(self) -> None:
        """
        Write the batch.
        """


class MemoryStreamStore:
    """
    The null object of the store: nothing survives the process.
    """

    failing: str | None = None
    rewriting = False

    def __init__(self) -> None:
        self._waiting: list[Callable[[], object]] = []

    def keep(
        self, peer: int, lane: int, key: int, data: bytes, until: float, number: int, mark: int = 0
    ) -> int:
        return 0

    def numbered(self, peer: int, lane: int, key: int, number: int) -> None:
        pass

    def acknowledged(self, peer: int, lane: int, number: int) -> None:
        pass

    def removed(self, peer: int, lane: int, key: int) -> None:
        pass

    def received(self, peer: int, lane: int, number: int, stale: Sequence[int]) -> None:
        pass

    def keep_inbound(self, peer: int, lane: int, key: int, data: bytes, until: float) -> int:
        return 0

    def remove_inbound(self, peer: int, lane: int, key: int) -> None:
        pass

    def state(self, peer: int, state: PeerState) -> None:
        pass

    def forget(self, peer: int) -> None:
        pass

    def holds(self, place: int, size: int) -> bool:
        return False

    def read(self, place: int, size: int) -> bytes:
        raise OSError("nothing is kept on disk")

    def release(self, size: int) -> None:
        pass

    def when_written(self, call: Callable[[], object]) -> None:
        self._waiting.append(call)

    def before_write(self, call: Callable[[], object]) -> None:
        pass

    def settle(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()
