"""
A pool: a finite set of addresses that are leased one session at a time.

An address is free when no session was allocated it, so the routing table is
the only list of leases there is, and a session's end returns its own.
"""

import re
from collections.abc import Callable, Sequence

from msgnode.errors import Rejected

MOST = 100_000  # addresses in one pool
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


def expand(pattern: str) -> list[str]:
    """
    `sip:guest{1..3}@d` is guest1 to guest3; `{01..10}` keeps the leading zero.  ValueError if it is none.
    """
    match = _RANGE.search(pattern)
    if match is None or _RANGE.search(pattern, match.end()):
        raise ValueError(f"a pattern has one range such as {{1..99}}, not {pattern!r}")
    first, last = int(match[1]), int(match[2])
    if not first <= last < first + MOST:
        raise ValueError(f"a range goes up and holds at most {MOST} addresses, not {match[0]}")
    width = len(match[1]) if match[1].startswith("0") else 0
    before, after = pattern[: match.start()], pattern[match.end() :]
    return [f"{before}{n:0{width}}{after}" for n in range(first, last + 1)]


class Pool:
    """
    Goes round its addresses, so that one just returned is the last to be leased again.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses
        self._next = 0

    def free(self, number: int, is_leased: Callable[[str], bool]) -> list[str]:
        """
        That many free addresses, or Rejected with 503 and none.
        """
        found: list[str] = []
        size = len(self._addresses)
        for step in range(size):
            address = self._addresses[(self._next + step) % size]
            if not is_leased(address):
                found.append(address)
                if len(found) == number:
                    self._next = (self._next + step + 1) % size
                    return found
        raise Rejected(f"too few addresses of this pool are free: {len(found)}, not {number}", 503)
