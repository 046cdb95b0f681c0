"""
Delivery times: how long messages took from their arrival until they were sent, between two looks at the node.
"""

from collections.abc import Sequence
from itertools import accumulate

NOTHING = float("nan")


class DeliveryTimes:
    """
    The quantiles of the messages since the look before. `bins` are those of Counters.handed_over: messages by
    the bit length of their microseconds, so that a quantile is right within a factor of two.
    """

    def __init__(self) -> None:
        self._before: list[int] = []

    def look(self, bins: Sequence[int], *quantiles: float) -> list[float]:
        """
        Returns the times in seconds within which these parts of the messages were sent; NaN without any.
        """
        before = self._before or [0] * len(bins)
        found = [new - old for new, old in zip(bins, before, strict=True)]
        self._before = list(bins)
        return [_within(found, quantile) for quantile in quantiles]


def _within(bins: Sequence[int], quantile: float) -> float:
    wanted = quantile * sum(bins)
    if not wanted:
        return NOTHING
    bits = next(bits for bits, messages in enumerate(accumulate(bins)) if messages >= wanted)
    return float((1 << bits) / 1e6)
