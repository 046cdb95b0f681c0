"""
The formula of a token bucket, and the rates of a set of them, shared by all rate limits.
"""

from collections.abc import Callable

# Takes from a bucket: its key, messages, and bytes; or seconds of its rate, and nothing.
Take = Callable[[str, float, float], None]
# A kind of buckets that the nodes of a domain share: the function that takes what other nodes took, and the
# one by which this node says what it took.
Share = Callable[[str, Take], Take]


class BucketRates:
    """
    The rates of a set of token buckets, in messages and bytes per second. 0 means no limit.
    """

    def __init__(self) -> None:
        self.messages = self.size = 0

    @property
    def on(self) -> bool:
        return self.messages > 0 or self.size > 0

    def set(self, messages: int, size: int) -> None:
        """
        Sets the rates; if they are others, all buckets are full again.
        """
        if (messages, size) != (self.messages, self.size):
            self.messages, self.size = messages, size
            self.clear()

    def clear(self) -> None:
        """
        Forgets all buckets.
        """
        raise NotImplementedError


def refilled(left: float, seconds: float, rate: float, capacity: float) -> float:
    """
    The tokens in a bucket `seconds` after it had `left`. It refills at `rate` tokens per second up to
    `capacity`.
    """
    return min(capacity, left + max(0.0, seconds) * rate)
