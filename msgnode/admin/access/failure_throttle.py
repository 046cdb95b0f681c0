"""
Throttle of failed logins: after a few tokens that are not valid, a peer waits.

It counts failures only, so a valid token is accepted at any time.
"""

from collections import OrderedDict
from collections.abc import Callable

from twisted.logger import Logger

log = Logger()

MAX_FAILURES = 5  # of one peer within WINDOW_SECONDS
WINDOW_SECONDS = 60.0
MAX_PEERS = 1000


class FailureThrottle:
    """
    The failures of the last minute by peer; `total` counts all since the start.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.total = 0
        self._seconds = seconds
        self._peers: OrderedDict[str, tuple[float, int]] = OrderedDict()  # since when, and how many

    def note(self, peer: str) -> int:
        """
        Counts a failure of this peer; returns the seconds that it has to wait, 0 if none.
        """
        self.total += 1
        now = self._seconds()
        since, number = self._peers.pop(peer, (now, 0))
        if now - since >= WINDOW_SECONDS:
            since, number = now, 0
        if not number or number == MAX_FAILURES:
            log.warn("{peer} came to the admin listener with a token that is not valid", peer=peer)
        self._peers[peer] = since, number + 1
        if len(self._peers) > MAX_PEERS:
            self._peers.popitem(last=False)
        return 0 if number < MAX_FAILURES else max(1, round(since + WINDOW_SECONDS - now))
