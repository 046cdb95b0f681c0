"""
The verdict: were the promises kept, by what the clients wrote down themselves.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple


class Verdict(NamedTuple):
    """
    How many messages of one sender were lost, doubled or out of order at one receiver.
    """

    lost: int = 0
    doubled: int = 0
    disordered: int = 0

    def __add__(self, other: "Verdict") -> "Verdict":  # type: ignore[override]
        return Verdict(*(a + b for a, b in zip(self, other, strict=True)))


def judge(sent: int, received: Sequence[int], missed: int = 0) -> Verdict:
    """
    The sender sent the numbers 1 to `sent`; the receiver was told that `missed` are gone.

    Lost is also what it was told is gone and came: it must be told exactly.
    """
    times = Counter(received)
    first = list(dict.fromkeys(received))
    known = [number for number in times if 1 <= number <= sent]
    return Verdict(
        lost=abs(sent - len(known) - missed) + len(times) - len(known),
        doubled=sum(count - 1 for count in times.values()),
        disordered=sum(after < before for before, after in pairwise(first)),
    )


def judge_legacy(received: Sequence[int]) -> Verdict:
    """
    A client that does not acknowledge may lose, but nothing comes twice or out of order.
    """
    return judge(0, received)._replace(lost=0)


def remembered(
    received: Sequence[int], times: Sequence[float], forgotten: Sequence[tuple[float, float]]
) -> list[int]:
    """
    The same without what came while the disk was full, where it came again after a kill: docs/reliability.md.
    """
    last = {number: place for place, number in enumerate(received)}
    return [
        number
        for place, (number, when) in enumerate(zip(received, times, strict=True))
        if last[number] == place or not any(began <= when <= end for began, end in forgotten)
    ]


def misdelivered(addresses: Iterable[str], allowed: set[str], runtime: str) -> int:
    """
    How many messages came to a runtime that were for somebody else's addresses.
    """
    return sum(
        address not in allowed and address != runtime and not address.startswith(runtime + "/")
        for address in addresses
    )


def unlogged(
    acknowledged: dict[str, tuple[float, float]],
    logged: set[str],
    kills: Sequence[float],
    slack: float = 1.0,
) -> list[str]:
    """
    Messages that were acknowledged and are not in the traffic log.

    Those of the last second before a kill may be missing.  `acknowledged` has
    the times each was sent and acknowledged; the node took it in between.
    """
    return [
        name
        for name, (sent, known) in acknowledged.items()
        if name not in logged and not any(sent <= kill <= known + slack for kill in kills)
    ]
