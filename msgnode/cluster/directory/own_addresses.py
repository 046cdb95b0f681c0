"""
The addresses that this node holds, and what the members are sent about them: numbered deltas, and snapshots.

Each change has a number. The changes of one turn of the event loop are collected in a delta, which is encoded
once for all members and kept in a bounded log. A member that needs an older one gets a snapshot.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice

from msgnode.cluster.directory.address_table import MAX_SEGMENTS, SHIFT
from msgnode.cluster.directory.wire import (
    MAX_ENTRIES,
    SESSION_BYTES,
    SHARDS,
    Delta,
    HeldSession,
    Piece,
    encode,
    entry_bytes,
)

HEAD_BYTES = 64  # of a statement, without its entries


class OwnAddresses:
    """
    The addresses and sessions of this node, and their changes that are in no delta yet.

    `number` is the number of the last change, `count` the number of addresses.
    """

    def __init__(self) -> None:
        self.number = 0
        self.count = 0
        self._addresses: list[dict[str, None]] = [{} for _ in range(SHARDS)]
        self._sessions: list[dict[str, HeldSession]] = [{} for _ in range(SHARDS)]
        self._changes: dict[str, int] = {}  # the number of each address's last change, in order
        self._taken = 0  # the number up to which changes are in deltas

    def __contains__(self, address: str) -> bool:
        at = hash(address) >> SHIFT
        return address in self._addresses[at] or address in self._sessions[at]

    @property
    def has_changes(self) -> bool:
        return bool(self._changes)

    def is_below_session(self, address: str) -> bool:
        """
        Is the address below the name of a session that is held here?
        """
        for _ in range(MAX_SEGMENTS):
            cut = address.rfind("/")
            if cut < 1:
                break
            address = address[:cut]
            if address in self._sessions[hash(address) >> SHIFT]:
                return True
        return False

    # -- changes -------------------------------------------------------------------

    def add(self, address: str) -> None:
        shard = self._addresses[hash(address) >> SHIFT]
        if address not in shard and is_encodable(address) and not self.is_below_session(address):
            self.count += address not in self
            shard[address] = None
            self._changed(address)

    def remove(self, address: str) -> None:
        shard = self._addresses[hash(address) >> SHIFT]
        if address in shard:
            del shard[address]
            self.count -= address not in self
            self._changed(address)

    def add_session(self, session: HeldSession) -> None:
        shard = self._sessions[hash(session.name) >> SHIFT]
        if shard.get(session.name) != session and is_encodable(session.name):
            self.count += session.name not in self
            shard[session.name] = session
            self._changed(session.name)

    def remove_session(self, name: str) -> None:
        if self._sessions[hash(name) >> SHIFT].pop(name, None) is not None:
            self.count -= name not in self
            self._changed(name)

    def session(self, name: str) -> HeldSession | None:
        return self._sessions[hash(name) >> SHIFT].get(name)

    def _changed(self, address: str) -> None:
        self.number += 1
        self._changes.pop(address, None)
        self._changes[address] = self.number

    def last_change(self, address: str) -> int:
        """
        The number of the address's last change, or of all that are in deltas.
        """
        return self._changes.get(address, self._taken)

    # -- statements ----------------------------------------------------------------

    def skip_changes(self) -> None:
        """
        Forget the changes: no member has to be sent them.
        """
        self._changes.clear()
        self._taken = self.number

    def take_delta(self, room: int) -> Delta:
        """
        The oldest changes that fit into `room` bytes, but at least one.
        """
        delta = Delta(self._taken, self._taken, [], [], [])
        size = HEAD_BYTES
        for address, number in islice(self._changes.items(), MAX_ENTRIES):
            at = hash(address) >> SHIFT
            session = self._sessions[at].get(address)
            size += entry_bytes(address) + (SESSION_BYTES if session is not None else 0)
            if size > room and delta.upto > delta.after:
                break
            if session is not None:
                delta.sessions.append(session)
            elif address in self._addresses[at]:
                delta.bound.append(address)
            else:
                delta.unbound.append(address)
            delta.upto = number
        for address in (*delta.bound, *delta.unbound, *[session.name for session in delta.sessions]):
            del self._changes[address]
        self._taken = delta.upto
        return delta

    def pieces(self, base: int, first: int, room: int) -> Iterator[Piece]:
        """
        The pieces of a snapshot from shard `first`, of at most `room` bytes; each is as true as the moment
        when it is taken.
        """
        piece, size = Piece(base, first, first, [], [], first == 0), HEAD_BYTES
        for at in range(first, SHARDS):
            addresses, sessions = self._addresses[at], self._sessions[at]
            for address in [*addresses, *sessions]:
                if size + entry_bytes(address) + SESSION_BYTES > room or piece.count == MAX_ENTRIES:
                    yield piece
                    piece, size = Piece(base, at, at, [], [], False), HEAD_BYTES
                # Changes while the pieces wait to be taken are in `sessions` and `addresses` only.
                if address in sessions:
                    piece.sessions.append(sessions[address])
                elif address in addresses:
                    piece.bound.append(address)
                size += entry_bytes(address) + SESSION_BYTES
            piece.position = at + 1
        yield piece


class DeltaLog:
    """
    The last deltas, encoded, within a bound of bytes. `end` is the number up to which they reach.
    """

    def __init__(self, most_bytes: int) -> None:
        self.end = 0
        self.size = 0
        self.first = 0  # the index of the first that is kept; the deltas of a start are counted
        self._most_bytes = most_bytes
        self._deltas: deque[tuple[int, bytes]] = deque()  # (after, payload)

    @property
    def next_index(self) -> int:
        """
        The index of the next delta.
        """
        return self.first + len(self._deltas)

    def append(self, delta: Delta) -> None:
        payload = encode(delta)
        self._deltas.append((delta.after, payload))
        self.end = delta.upto
        self.size += len(payload) + HEAD_BYTES
        while self.size > self._most_bytes:
            self.size -= len(self._deltas.popleft()[1]) + HEAD_BYTES
            self.first += 1

    def clear(self, end: int) -> None:
        """
        Forget all deltas: none up to number `end` can be sent any more.
        """
        self.first = self.next_index + 1  # no index of before is valid
        self.end, self.size = end, 0
        self._deltas.clear()

    def get(self, index: int) -> bytes | None:
        """
        A delta by its index; None if it is not kept.
        """
        at = index - self.first
        return self._deltas[at][1] if 0 <= at < len(self._deltas) else None

    def index_after(self, number: int) -> int | None:
        """
        The index of the delta that follows change `number`; None if it is not kept.
        """
        if number == self.end:
            return self.next_index
        for at, (after, _) in enumerate(self._deltas):
            if after == number:
                return self.first + at
        return None


def is_encodable(address: str) -> bool:
    """
    Can the address be sent? Not with a lone surrogate, which JSON allows.
    """
    if address.isascii():
        return True
    try:
        address.encode()
    except UnicodeEncodeError:
        return False
    return True
