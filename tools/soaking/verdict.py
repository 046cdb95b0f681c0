"""
The verdict: were the promises kept, by what the clients wrote down themselves.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
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


Doubts = Sequence[
    tuple[int, int]
]  # how many had been received, and the last number sent, when files were damaged


def judge(sent: int, received: Sequence[int], missed: int = 0, doubts: Doubts = ()) -> Verdict:
    """
    The sender sent the numbers 1 to `sent`; the receiver was told that `missed` are gone.

    Lost is also what it was told is gone and came: it must be told exactly.
    What was sent before a damage may come again after it, and what had not come then may be lost.
    """
    known = {number for number in received if 1 <= number <= sent}
    excused: set[int] = set()
    for index, last in doubts:
        excused |= set(range(1, last + 1)) - set(received[:index])
    found = Verdict(lost=abs(sent - len(known | excused) - missed) + len(set(received) - known))
    return sum((_in_order(part) for part in _stretches(received, doubts)), found)


def _stretches(received: Sequence[int], doubts: Doubts) -> Iterator[list[int]]:
    """
    From one damage to the next, what was sent since.
    """
    ends = [*(index for index, _ in doubts), len(received)]
    begin = last = 0
    for end, (_, after) in zip(ends, [*doubts, (0, 0)], strict=True):
        yield [number for number in received[begin:end] if number > last]
        begin, last = end, after


def _in_order(received: Sequence[int]) -> Verdict:
    times = Counter(received)
    first = list(dict.fromkeys(received))
    return Verdict(
        doubled=sum(count - 1 for count in times.values()),
        disordered=sum(after < before for before, after in pairwise(first)),
    )


def judge_legacy(received: Sequence[int], doubts: Doubts = ()) -> Verdict:
    """
    A client that does not acknowledge may lose, but nothing comes twice or out of order.
    """
    return judge(0, received, doubts=doubts)._replace(lost=0)


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
