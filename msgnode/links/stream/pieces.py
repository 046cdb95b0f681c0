"""
Pieces: a message longer than a datagram is cut, and put together by the destination within one budget.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Protocol

from msgnode.links.wire.datagram import MAX_DATAGRAM_BYTES

SOURCE_SHARE = 4  # a quarter
OVERHEAD_BYTES = 300  # of memory for a piece that is kept, in addition to its bytes


def count(size: int, piece_bytes: int = MAX_DATAGRAM_BYTES) -> int:
    """
    The number of pieces of a message; an empty one has one too.
    """
    return max(1, -(-size // piece_bytes))


def cut(data: bytes, piece_bytes: int = MAX_DATAGRAM_BYTES) -> Iterator[tuple[int, bytes]]:
    """
    The pieces of a message, each with its number from 0 on.
    """
    for number, at in enumerate(range(0, max(1, len(data)), piece_bytes)):
        yield number, data[at : at + piece_bytes]


class Assembly:
    """
    A message that is being received, or waits for those before it in its lane.

    `key` is the key of its pieces: after a new start the source may cut them from other bytes. `head`: it
    is the next of its lane. `tombstone`: the source gave the message up. `ttl` is the seconds it had left
    when it `arrived`.
    """

    __slots__ = (
        "arrived",
        "charged",
        "flags",
        "head",
        "key",
        "number",
        "path",
        "pieces",
        "tombstone",
        "ttl",
        "wanted",
    )

    def __init__(self, number: int, wanted: int, key: str, flags: int, head: bool) -> None:
        self.number = number
        self.wanted = wanted  # pieces; a peer may claim any number, so nothing is allocated for them
        self.key = key
        self.flags = flags
        self.head = head
        self.pieces: dict[int, bytes] = {}
        self.charged = 0
        self.arrived = self.ttl = 0.0
        self.path: tuple[tuple[str, int], ...] = ()
        self.tombstone = False

    @property
    def complete(self) -> bool:
        return self.tombstone or len(self.pieces) == self.wanted

    @property
    def size(self) -> int:
        return self.charged - OVERHEAD_BYTES * len(self.pieces)

    def join(self) -> bytes:
        pieces = self.pieces
        return pieces[0] if self.wanted == 1 else b"".join(pieces[n] for n in range(self.wanted))


class AssemblyOwner(Protocol):
    """
    A lane that keeps assemblies of messages from `source`.
    """

    source: str

    def evict(self, assembly: Assembly) -> None:
        """
        Drop the assembly: its source sends it again.
        """


class SourceShare:
    """
    The share of one source in the budget: its messages that are the next of their lane, the oldest first,
    their bytes, and the bytes of those that wait.
    """

    __slots__ = ("bytes", "heads", "waiting")

    def __init__(self) -> None:
        self.heads: dict[Assembly, None] = {}
        self.bytes = self.waiting = 0


class ReceiveBudget:
    """
    The memory budget of all that streams receive and cannot deliver yet.

    Half of it is for messages that are the next of their lane, half for those that wait for others. When the
    first half is full the newest goes, so the oldest always becomes complete, and nothing waits for ever. No
    source takes more than a quarter of a half, but one message always fits.
    """

    def __init__(self, most_bytes: int) -> None:
        self.half = most_bytes // 2
        self._share = self.half // SOURCE_SHARE
        self.heads = self.waiting = 0  # bytes
        self._heads: dict[Assembly, AssemblyOwner] = {}  # the oldest first
        self._sources: defaultdict[str, SourceShare] = defaultdict(SourceShare)

    @property
    def bytes(self) -> int:
        return self.heads + self.waiting

    @property
    def room(self) -> int:
        """
        The bytes that a source may have under way, about.
        """
        return max(0, self.half - self.waiting)

    def charge(self, assembly: Assembly, size: int, owner: AssemblyOwner) -> bool:
        """
        Take memory for one more piece. False: there is none, and the piece is dropped.
        """
        size += OVERHEAD_BYTES
        source = self._sources[owner.source]
        if assembly.head:
            source.heads.setdefault(assembly)
            self._heads.setdefault(assembly, owner)
            has_room = self._make_room(assembly, size, source)
            if not has_room and not assembly.charged:
                self.release(assembly, owner)
        else:
            has_room = self.waiting + size <= self.half and source.waiting + size <= self._share
        if has_room:
            assembly.charged += size
            self._count(assembly, size, source)
        return has_room

    def _make_room(self, assembly: Assembly, size: int, source: "SourceShare") -> bool:
        """
        Evict newer messages for the next of a lane: of its own source first. False if it is the newest.
        """
        while len(source.heads) > 1 and source.bytes + size > self._share:
            newest = next(reversed(source.heads))
            if newest is assembly:
                return False
            self._heads[newest].evict(newest)
        while self.heads + size > self.half:
            newest = next(reversed(self._heads))
            if newest is assembly:
                return False
            self._heads[newest].evict(newest)
        return True

    def _count(self, assembly: Assembly, size: int, source: "SourceShare") -> None:
        if assembly.head:
            self.heads += size
            source.bytes += size
        else:
            self.waiting += size
            source.waiting += size

    def promote(self, assembly: Assembly, owner: AssemblyOwner) -> None:
        """
        The assembly is the next of its lane now.
        """
        if not assembly.head:
            source = self._sources[owner.source]
            self._count(assembly, -assembly.charged, source)
            assembly.head = True
            self._count(assembly, assembly.charged, source)
            self._heads[assembly] = owner
            source.heads[assembly] = None

    def release(self, assembly: Assembly, owner: AssemblyOwner) -> None:
        source = self._sources[owner.source]
        self._count(assembly, -assembly.charged, source)
        assembly.charged = 0
        self._heads.pop(assembly, None)
        source.heads.pop(assembly, None)
        if not source.heads and not source.waiting:
            del self._sources[owner.source]
