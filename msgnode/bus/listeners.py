"""
The indexes of the routing table: sessions by address, owners by address, addresses in order.

Binding and unbinding cost the same for one session as for all sessions. The result of a lookup is shared, and
made at most once after a change.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msgnode.sessions.session import Session

BLOCK = 512  # strings in a list: adding or removing one moves at most twice as many

_last = itemgetter(-1)


class Listeners:
    """
    The sessions by address, in the order in which they were bound: a tuple, and a dict if there are several.

    `tuples` may be read from outside; `unmade` counts the tuples that are not made until they are looked up.
    """

    __slots__ = ("_several", "tuples", "unmade")

    def __init__(self) -> None:
        self.tuples: dict[str, tuple[Session, ...]] = {}
        self.unmade = 0
        self._several: dict[str, dict[Session, None]] = {}

    def __len__(self) -> int:
        return len(self.tuples) + self.unmade

    def __contains__(self, address: str) -> bool:
        return address in self.tuples or address in self._several

    def __iter__(self) -> Iterator[str]:
        return iter({**self.tuples, **self._several})

    def some(self, first: int, number: int) -> list[str]:
        """
        So many addresses from this place on, without a look at all of them.
        """
        found = list(islice(self.tuples, first, first + number))
        if self.unmade and len(found) < number:
            first = max(0, first - len(self.tuples))
            others = (address for address in self._several if address not in self.tuples)
            found += islice(others, first, first + number - len(found))
        return found

    def get(self, address: str) -> "tuple[Session, ...] | None":
        found = self.tuples.get(address)
        if found is None and self.unmade:
            found = self.make(address)
        return found

    def make(self, address: str) -> "tuple[Session, ...] | None":
        """
        Makes the missing tuple, once for all lookups until the next change.
        """
        several = self._several.get(address)
        if several is None:
            return None
        made = self.tuples[address] = tuple(several)
        self.unmade -= 1
        return made

    def only(self, address: str) -> "Session | None":
        """
        The only session bound to the address; None if there are several, or none.
        """
        if address in self._several:
            return None
        found = self.tuples.get(address)
        return found[0] if found is not None else None

    def is_bound(self, address: str, session: "Session") -> bool:
        several = self._several.get(address)
        if several is not None:
            return session in several
        found = self.tuples.get(address)
        return found is not None and found[0] is session

    def add(self, address: str, session: "Session") -> None:
        several = self._several.get(address)
        if several is None:
            found = self.tuples.get(address)
            if found is None:
                self.tuples[address] = session.as_tuple
                return
            several = self._several[address] = {found[0]: None}
        several[session] = None
        self._changed(address)

    def remove(self, address: str, session: "Session") -> None:
        """
        Removes the session from this address.
        """
        several = self._several.get(address)
        if several is None:
            del self.tuples[address]
            return
        del several[session]
        if len(several) > 1:
            self._changed(address)
            return
        self.unmade -= address not in self.tuples
        del self._several[address]
        (last,) = several
        self.tuples[address] = last.as_tuple

    def _changed(self, address: str) -> None:
        self.unmade += self.tuples.pop(address, None) is not None

    def move(self, address: str, other: "Listeners") -> None:
        """
        Moves all sessions of this address to `other`, which has none there.
        """
        several = self._several.pop(address, None)
        if several is not None:
            other._several[address] = several
            if self.tuples.pop(address, None) is None:
                self.unmade -= 1
            other.unmade += 1
        elif address in self.tuples:
            other.tuples[address] = self.tuples.pop(address)


class Owners:
    """
    The sessions that own an address: the first, and behind it others of the same user.
    """

    __slots__ = ("_first", "_others")

    def __init__(self) -> None:
        self._first: dict[str, Session] = {}
        self._others: dict[str, dict[Session, None]] = {}

    def __len__(self) -> int:
        return len(self._first)

    def get(self, address: str) -> "Session | None":
        return self._first.get(address)

    def add(self, address: str, session: "Session") -> None:
        if self._first.setdefault(address, session) is not session:
            self._others.setdefault(address, {})[session] = None

    def discard(self, address: str, session: "Session") -> None:
        others = self._others.get(address)
        if self._first[address] is not session:
            assert others is not None
            del others[session]
        elif others is None:
            del self._first[address]
        else:
            self._first[address], _ = others.popitem()
        if others is not None and not others:
            del self._others[address]


class Ordered:
    """
    A sorted set of strings, in which those with one prefix are found without a scan of the others.
    """

    def __init__(self) -> None:
        self._blocks: list[list[str]] = []

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    def add(self, text: str) -> None:
        blocks = self._blocks
        if not blocks:
            blocks.append([text])
            return
        at = min(bisect_left(blocks, text, key=_last), len(blocks) - 1)
        block = blocks[at]
        insort(block, text)
        if len(block) > 2 * BLOCK:
            blocks[at : at + 1] = [block[:BLOCK], block[BLOCK:]]

    def remove(self, text: str) -> None:
        at = bisect_left(self._blocks, text, key=_last)
        block = self._blocks[at]
        del block[bisect_left(block, text)]
        if not block:
            del self._blocks[at]

    def first(self, beginning: str) -> str | None:
        """
        The first string with this prefix.
        """
        at = bisect_left(self._blocks, beginning, key=_last)
        if at == len(self._blocks):
            return None
        block = self._blocks[at]
        text = block[bisect_left(block, beginning)]
        return text if text.startswith(beginning) else None

    def __iter__(self) -> Iterator[str]:
        for block in self._blocks:
            yield from block
