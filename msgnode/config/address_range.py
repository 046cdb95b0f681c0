"""
Address ranges: `sip:guest{1..99}@example.org` is 99 addresses.
"""

import re

MAX_ADDRESSES = 100_000  # addresses in one pool
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


def expand(pattern: str) -> list[str]:
    """
    `sip:guest{1..3}@d` is guest1 to guest3; `{01..10}` keeps the leading zero.  ValueError if it is none.
    """
    match = _RANGE.search(pattern)
    if match is None or _RANGE.search(pattern, match.end()):
        raise ValueError(f"a pattern has one range such as {{1..99}}, not {pattern!r}")
    first, last = int(match[1]), int(match[2])
    if not first <= last < first + MAX_ADDRESSES:
        raise ValueError(f"a range goes up and holds at most {MAX_ADDRESSES} addresses, not {match[0]}")
    width = len(match[1]) if match[1].startswith("0") else 0
    before, after = pattern[: match.start()], pattern[match.end() :]
    return [f"{before}{n:0{width}}{after}" for n in range(first, last + 1)]
