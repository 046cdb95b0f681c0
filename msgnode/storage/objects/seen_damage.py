"""
Damage that was seen: a floor names it, so that the next start knows which damage is new.
"""

from collections import Counter

import msgspec

_named = msgspec.json.Decoder(dict[int, int])


class SeenDamage:
    """
    The segments with damage, each with the number of its records that could be read: further damage in one of
    them leaves fewer. `is_new`: was any damage found that no floor has named so far?
    """

    def __init__(self) -> None:
        self.is_new = False
        self._readable: Counter[int] = Counter()
        self._damaged: set[int] = set()

    def found(self, segment: int, is_damaged: bool) -> None:
        """
        Notes the next part of a segment.
        """
        if is_damaged:
            self._damaged.add(segment)
            self.is_new = True
        else:
            self._readable[segment] += 1

    def floor(self, data: bytes) -> None:
        """
        Compares what was found with what a floor names. It is above all versions of before only if it names
        all of it: each segment begins with a floor, most of them from before the damage.
        """
        if not self.is_new or not data:
            return
        named = _named.decode(data)
        self.is_new = any(named.get(each) != self._readable[each] for each in self._damaged)

    def grows(self, segment: int) -> None:
        """
        Names a segment no more, because records are added to it.
        """
        self._damaged.discard(segment)

    def named(self) -> bytes:
        """
        The data of a floor; empty without damage.
        """
        if not self._damaged:
            return b""
        return msgspec.json.encode({each: self._readable[each] for each in sorted(self._damaged)})
