"""
The verdict: were the promises of docs/protocol.md kept, by what the clients wrote down themselves?
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

SLACK = 10.0  # seconds; lines are written every half second, where the machine has time for that


class Numbers(NamedTuple):
    """
    The numbers that a verdict counts, each as often as it is counted.
    """

    lost: list[int]
    doubled: list[int]
    disordered: list[int]


class Verdict(NamedTuple):
    """
    The numbers of messages of one sender that were lost, doubled or out of order at one receiver.
    """

    lost: int = 0
    doubled: int = 0
    disordered: int = 0

    @classmethod
    def of(cls, wrong: Numbers) -> "Verdict":
        return cls(*map(len, wrong))

    def __add__(self, other: "Verdict") -> "Verdict":  # type: ignore[override]
        return Verdict(*(a + b for a, b in zip(self, other, strict=True)))


class Damage(NamedTuple):
    """
    The moment when files of the node were damaged.

    `received` is how many numbers the receiver had, `sent` the last one that had been sent.
    """

    received: int
    sent: int


def judge(sent: int, received: Sequence[int], missed: int = 0, damages: Sequence[Damage] = ()) -> Verdict:
    """
    The sender sent the numbers 1 to `sent`; the receiver was told that `missed` are gone.

    Lost is also what it was told is gone and came: it must be told exactly.
    What was sent before a damage may come again after it, and what had not come then may be lost.
    """
    wrong = find(sent, received, damages)
    gone = sum(1 <= number <= sent for number in wrong.lost)
    lost = abs(gone - missed) + len(wrong.lost) - gone
    return Verdict(lost, len(wrong.doubled), len(wrong.disordered))


def find(sent: int, received: Sequence[int], damages: Sequence[Damage] = ()) -> Numbers:
    """
    The numbers that are wrong, for a receiver that was told of none; lost are also those that nobody sent.
    """
    owed = set(range(1, sent + 1))
    excused: set[int] = set()
    for index, last in damages:
        excused |= set(range(1, last + 1)) - set(received[:index])
    come = set(received)
    found = Numbers(sorted(owed - come - excused) + sorted(come - owed), [], [])
    for part in _stretches(received, damages):
        times = Counter(part)
        found.doubled.extend(number for number, count in times.items() for _ in range(count - 1))
        first = list(dict.fromkeys(part))
        found.disordered.extend(after for before, after in pairwise(first) if after < before)
    return found


def _stretches(received: Sequence[int], damages: Sequence[Damage]) -> Iterator[list[int]]:
    """
    From one damage to the next, what was sent since.
    """
    ends = [*(index for index, _ in damages), len(received)]
    begin = last = 0
    for end, (_, after) in zip(ends, [*damages, (0, 0)], strict=True):
        yield [number for number in received[begin:end] if number > last]
        begin, last = end, after


def ranges(numbers: Iterable[int]) -> str:
    """
    The numbers in words, with each run of them in one: `1-3, 7`.
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs) or "none"


def without_excused(
    received: Sequence[int], times: Sequence[float], disk_full: Sequence[tuple[float, float]]
) -> list[int]:
    """
    The same without what came while the disk was full and came again after a kill: docs/reliability.md.

    The sender repeats all that was not acknowledged, from the first number that came again. The client may
    lose the rest, or not have it yet, so later numbers that came while the disk was full are left out, too.
    """
    last = {number: place for place, number in enumerate(received)}
    excused: set[int] = set()
    for began, end in disk_full:
        came = [place for place, when in enumerate(times) if began <= when <= end]
        again = [received[place] for place in came if last[received[place]] != place]
        if again:
            excused.update(place for place in came if received[place] >= min(again))
    return [number for place, number in enumerate(received) if place not in excused]


def misdelivered(addresses: Iterable[str], allowed: set[str], runtime: str) -> int:
    """
    How many messages came to a runtime that were for somebody else's addresses.
    """
    return sum(
        address not in allowed and address != runtime and not address.startswith(runtime + "/")
        for address in addresses
    )


def unlogged(
    acknowledged: Iterable[tuple[str, float, float]],
    logged: set[str],
    kills: Sequence[float],
    slack: float = SLACK,
) -> list[str]:
    """
    Messages of one sender, in order, that were acknowledged and are not in the traffic log.

    `acknowledged` has the times each was sent and acknowledged; the node took it in between.  A kill may
    cost the last of what the node had taken, up to `slack` seconds, but nothing older than what is logged.
    """
    missing: list[str] = []
    next_known = float("inf")  # when the next one that is logged was acknowledged
    for name, sent, known in reversed(list(acknowledged)):
        if name in logged:
            next_known = known
        elif not any(sent <= kill <= min(known + slack, next_known) for kill in kills):
            missing.append(name)
    return missing[::-1]
