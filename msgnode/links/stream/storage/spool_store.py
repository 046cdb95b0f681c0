"""
The store of streams in the spool, next to the sessions: what a session gets and the count of the stream that
brought it are one batch.

Streams have session numbers (sids) of their own, from FIRST_SID on, with a block of them for each node: one
for each lane to send, one for each lane received with its inbound journal, and one for the epochs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from twisted.logger import Logger

from msgnode.links.stream.storage.store import (
    STATE_VERSION,
    PeerState,
    StateVersion,
    StoredEntry,
    StoredPeer,
    UnreadableState,
)
from msgnode.links.wire.datagram import PRIORITIES
from msgnode.sessions.persistence import MessageLog

log = Logger()

FIRST_SID = 1 << 48
_BLOCK = 64  # sids of one node
_RECEIVING, _STATE = 16, 63  # offsets in a block; lanes to send are from 0 on


class Journal(Protocol):
    """
    The delivery journal (sessions/journal.py, DeliveryJournal), as streams use it.
    """

    message_log: MessageLog
    bytes_apart: int

    def before_write(self, call: Callable[[], object]) -> None: ...
    def when_written(self, call: Callable[[], object]) -> None: ...
    def settle(self) -> None: ...
    def by_wall(self, until: float) -> float: ...
    def by_clock(self, until: float) -> float: ...


class Recovered(Protocol):
    """
    The records of one sid (storage/spool_records.py, SessionRecovery).
    """

    state: bytes | None
    kept: list[Any]
    received: int
    pending: list[int]
    next_key: int
    sent: int


class SpoolStreamStore:
    """
    The store of streams in the spool (StreamStore).
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._log = journal.message_log
        self.settle = journal.settle
        self.before_write = journal.before_write
        self.holds = self._log.holds
        self.read = self._log.read

    def when_written(self, call: Callable[[], object]) -> None:
        self._journal.when_written(lambda: self._written(call))

    def _written(self, call: Callable[[], object]) -> None:
        if self._log.offset:
            self.when_written(call)  # others have appended something since the batch was written
        else:
            call()

    @property
    def failing(self) -> str | None:
        return self._log.failing

    @property
    def rewriting(self) -> bool:
        return self._log.rewriting

    def keep(
        self, peer: int, lane: int, key: int, data: bytes, until: float, number: int, mark: int = 0
    ) -> int:
        return self._append(_sending(peer, lane), lane, key, data, until, number, mark)

    def _append(
        self, sid: int, lane: int, key: int, data: bytes, until: float, number: int = 0, mark: int = 0
    ) -> int:
        # The place of a record for the session that asked has the mark here.
        place = self._log.append(sid, key, data, self._journal.by_wall(until), lane, mark, number)
        if place:
            self._journal.bytes_apart += len(data)
        return place

    def release(self, size: int) -> None:
        self._log.release(size)
        self._journal.bytes_apart -= size

    def numbered(self, peer: int, lane: int, key: int, number: int) -> None:
        self._log.sent(_sending(peer, lane), key, number)

    def acknowledged(self, peer: int, lane: int, number: int) -> None:
        self._log.acknowledged(_sending(peer, lane), number)

    def removed(self, peer: int, lane: int, key: int) -> None:
        self._log.removed(_sending(peer, lane), key, False)

    def received(self, peer: int, lane: int, number: int, stale: Sequence[int]) -> None:
        self._log.received(_receiving(peer, lane), number, stale)

    def keep_inbound(self, peer: int, lane: int, key: int, data: bytes, until: float) -> int:
        return self._append(_receiving(peer, lane), lane, key, data, until)

    def remove_inbound(self, peer: int, lane: int, key: int) -> None:
        self._log.removed(_receiving(peer, lane), key, False)

    def state(self, peer: int, state: PeerState) -> None:
        self._log.state(_block(peer) + _STATE, msgspec.msgpack.encode(state))

    def forget(self, peer: int) -> None:
        first = _block(peer)
        for lane in range(PRIORITIES):
            self._log.forget(first + lane)
            self._log.forget(first + _RECEIVING + lane)
        self._log.forget(first + _STATE)

    # -- after a restart ----------------------------------------------------------

    def recover(self, found: Mapping[int, Recovered]) -> Iterator[StoredPeer]:
        """
        Yields all that the spool has of the streams, by node. `found` has the records by sid.

        Raises UnreadableState if that is of a newer version, and drops nothing.
        """
        self._journal.bytes_apart = bytes_of(found)
        blocks: dict[int, dict[int, Recovered]] = {}
        for sid, records in found.items():
            if sid >= FIRST_SID:
                index, offset = divmod(sid - FIRST_SID, _BLOCK)
                blocks.setdefault(index, {})[offset] = records
        for index, block in sorted(blocks.items()):
            peer = self._peer(index, block)
            if peer is not None:
                yield peer

    def _peer(self, index: int, block: dict[int, Recovered]) -> StoredPeer | None:
        records = block.get(_STATE)
        if records is None or records.state is None:
            # Only messages that were never sent, to a node whose name went with a lost segment.
            kept = [each for lane in block.values() for each in lane.kept]
            log.error("{count} messages for a node without a name are on disk, and dropped", count=len(kept))
            self.forget(index)
            for each in kept:
                self.release(each.size)
            return None
        peer = StoredPeer(index, _read_state(records.state))
        for offset, each in sorted(block.items()):
            if offset < PRIORITIES:
                peer.sending += self._entries(offset, each)
                numbers = peer.state.numbers
                numbers += [1] * (offset + 1 - len(numbers))
                numbers[offset] = max(numbers[offset], each.sent + 1)
            elif _RECEIVING <= offset < _RECEIVING + PRIORITIES:
                lane = offset - _RECEIVING
                peer.inbound += self._entries(lane, each)
                peer.counts[lane] = each.received, list(each.pending)
            peer.last_key = max(peer.last_key, each.next_key)
        peer.inbound.sort(key=lambda entry: entry.key)
        return peer

    def _entries(self, lane: int, records: Recovered) -> list[StoredEntry]:
        by_clock = self._journal.by_clock
        return [
            StoredEntry(lane, each.key, each.number, each.place, each.size, by_clock(each.until), each.asker)
            for each in records.kept
        ]


def _read_state(data: bytes) -> PeerState:
    """
    The state of the streams with one node. Raises UnreadableState.
    """
    try:
        version = msgspec.msgpack.decode(data, type=StateVersion).version
        if version > STATE_VERSION:
            raise UnreadableState(
                f"a newer msgnode wrote the messages for other nodes: their state has version {version}, "
                f"this one reads up to {STATE_VERSION}"
            )
        return msgspec.msgpack.decode(data, type=PeerState)
    except msgspec.DecodeError as why:
        raise UnreadableState(f"the state of messages for another node cannot be read: {why}") from why


def is_stream(sid: int) -> bool:
    """
    Is it a sid of streams, and none of a session?
    """
    return sid >= FIRST_SID


def bytes_of(found: Mapping[int, Recovered]) -> int:
    """
    The bytes of the messages of streams among these records.
    """
    return sum(each.size for sid, records in found.items() if is_stream(sid) for each in records.kept)


def _block(peer: int) -> int:
    return FIRST_SID + peer * _BLOCK


def _sending(peer: int, lane: int) -> int:
    return FIRST_SID + peer * _BLOCK + lane


def _receiving(peer: int, lane: int) -> int:
    return FIRST_SID + peer * _BLOCK + _RECEIVING + lane
