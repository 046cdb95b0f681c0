"""
The pace of snapshots: a domain that begins again each second does not get all subscriptions each time.
"""

from msgspec import Struct

MIN_GAP_SECONDS = 5.0  # between two snapshots for one domain
MAX_GAP_SECONDS = 300.0


class SnapshotPace(Struct):
    """
    The pace of the snapshots for one domain. The gap doubles with each one that follows another closely.
    """

    last: float = -1e9
    gap: float = MIN_GAP_SECONDS
    is_sending: bool = False

    def wait(self, now: float) -> float:
        """
        The seconds until the next one may begin.
        """
        left = max(0.0, self.last + self.gap - now)
        return max(left, MIN_GAP_SECONDS) if self.is_sending else left

    def begin(self, now: float) -> None:
        is_close = now - self.last <= 2 * self.gap
        self.gap = min(2 * self.gap, MAX_GAP_SECONDS) if is_close else MIN_GAP_SECONDS
        self.last = now
        self.is_sending = True

    def end(self) -> None:
        self.is_sending = False

    def is_over(self, now: float) -> bool:
        """
        May it be forgotten, because the next snapshot begins a new pace anyway?
        """
        return not self.is_sending and now - self.last > 2 * self.gap
