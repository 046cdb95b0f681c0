"""
A follower: a member that is sent this node's addresses.
"""

from collections import deque
from collections.abc import Iterator

from msgnode.cluster.directory.limits import DirectoryCounts
from msgnode.cluster.directory.own_addresses import DeltaLog, OwnAddresses
from msgnode.cluster.directory.wire import (
    MAX_PAYLOAD_BYTES,
    SHARDS,
    AnyStatement,
    Piece,
    Seen,
    Synced,
    encode,
)
from msgnode.cluster.membership import Members

DELTAS_PER_TURN = 16
MAX_SYNCS = 16  # that wait for earlier changes; the oldest is dropped


class Follower:
    """
    The state of what one member is sent. `pump` sends it, a little in each turn of the event loop.

    A statement that found no room is sent before any other, else an address that was unbound meanwhile could
    come back with it.
    """

    def __init__(
        self, node: str, members: Members, own: OwnAddresses, log: DeltaLog, counts: DirectoryCounts
    ) -> None:
        self.acknowledged = 0
        self._node = node
        self._members = members
        self._own = own
        self._log = log
        self._counts = counts
        self._unsent: bytes | None = None
        self._has_room = True
        self._follows = False  # it said from where to continue, since its link is up
        self._index = 0  # in the log, of its next delta
        self._pieces: Iterator[Piece] | None = None
        self._syncs: deque[int] = deque(maxlen=MAX_SYNCS)
        self._base = 0  # of the last snapshot
        self._is_complete = False  # it has acknowledged all of that

    def link_up(self) -> None:
        """
        Begin with a new link. The member is sent nothing until it says from where to continue.
        """
        self._unsent, self._pieces = None, None
        self._has_room, self._follows = True, False

    def link_down(self) -> None:
        self._unsent, self._pieces = None, None
        self._has_room = self._follows = False
        self._syncs.clear()

    def room(self) -> None:
        self._has_room = True

    def has(self, number: int) -> bool:
        """
        Has the member acknowledged the change, and all before it?
        """
        return self.acknowledged >= number and (self._is_complete or number > self._base)

    # -- what the member said ------------------------------------------------------

    def seen(self, seen: Seen) -> None:
        """
        Note an acknowledgement; if it asks to continue, continue from there.
        """
        is_ours = (seen.instance, seen.start) == self._members.epoch
        if is_ours and seen.position:
            self.acknowledged = seen.number
            self._is_complete = seen.position == SHARDS
        if seen.again:
            self._continue(seen, is_ours)

    def _continue(self, seen: Seen, is_ours: bool) -> None:
        self._follows = True
        index = self._log.index_after(seen.number) if is_ours and seen.position else None
        if index is None:
            self._begin_snapshot()
            return
        self._index = index
        self._unsent = self._pieces = None
        if seen.position < SHARDS:
            self._base = max(self._base, seen.number)
            self._pieces = self._own.pieces(0, seen.position, self._room)

    @property
    def _room(self) -> int:
        return min(MAX_PAYLOAD_BYTES, self._members.max_payload)

    def _begin_snapshot(self) -> None:
        self._index = self._log.next_index
        self._base = self._log.end
        self._pieces = self._own.pieces(self._base, 0, self._room)
        # The first piece goes before the deltas that follow its base.
        self._unsent = encode(next(self._pieces))
        self._counts.snapshots_sent += 1

    def sync(self, id: int) -> None:
        """
        Send `Synced` after all changes that there are now.
        """
        self._syncs.append(id)

    # -- sending -------------------------------------------------------------------

    def send(self, statement: AnyStatement) -> bool:
        """
        Send a statement whose order among the others does not matter. False if there is no room.
        """
        self._has_room = self._has_room and self._members.send(self._node, encode(statement))
        return self._has_room

    def pump(self) -> bool:
        """
        Send deltas, then one piece of a snapshot. Is there more to send in the next turn?
        """
        if not self._send_unsent() or not self._follows:
            return False
        if self._index < self._log.first:
            self._begin_snapshot()
            return self._send_unsent()
        for _ in range(DELTAS_PER_TURN):
            payload = self._log.get(self._index)
            if payload is None:
                break
            self._index += 1
            self._counts.deltas_sent += 1
            if not self._send(payload):
                return False
        if self._send_piece() or self._index < self._log.next_index:
            return True
        while self._syncs and not self._own.has_changes and self.send(Synced(self._syncs[0])):
            self._syncs.popleft()
        return False

    def _send_piece(self) -> bool:
        if self._pieces is None:
            return False
        piece = next(self._pieces, None)
        if piece is None:
            self._pieces = None
            return False
        self._counts.pieces_sent += 1
        return self._send(encode(piece))

    def _send(self, payload: bytes) -> bool:
        self._unsent = payload
        return self._send_unsent()

    def _send_unsent(self) -> bool:
        if self._unsent is not None and self._has_room:
            if self._members.send(self._node, self._unsent):
                self._unsent = None
            else:
                self._has_room = False
        return self._has_room
