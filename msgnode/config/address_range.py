"""
Address ranges: the pattern `sip:guest{1..99}@example.org` stands for 99 addresses.
"""

import re

MAX_ADDRESSES = 100_000  # addresses in one pool
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


def expand(pattern: str) -> list[str]:
    """
    The addresses of a pattern: `{1..3}` is 1, 2 and 3; `{01..10}` keeps the leading zero. ValueError if it is
    invalid.
    """
    match = _RANGE.search(pattern)
    if match is None or _RANGE.search(pattern, match.end()):
        raise ValueError(f"expected one range such as {{1..99}}, found {pattern!r}")
    first, last = int(match[1]), int(match[2])
    if not first <= last < first + MAX_ADDRESSES:
        raise ValueError(f"expected a range that ascends, of at most {MAX_ADDRESSES}, found {match[0]}")
    width = len(match[1]) if match[1].startswith("0") else 0
    before, after = pattern[: match.start()], pattern[match.end() :]
    return [f"{before}{n:0{width}}{after}" for n in range(first, last + 1)]
