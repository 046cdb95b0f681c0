"""
What each sender makes the node keep for sessions that are away, in bytes, and whether it may make it more.

A sender is a verified user, else the host it sends from; a UNIX socket and a
trusted proxy are nobody, and have the whole.
"""

from collections.abc import Callable
from typing import Any

from msgnode.protocol.peer_address import peer_host

RECORD = 64  # bytes that a message takes in the spool beside its own
MAX_IDLE = 4096  # shares of which nothing is kept, about


class Share:
    """
    Bytes that wait because of one sender.
    """

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


NOBODY = Share()  # has no limit


class Shares:
    """
    The shares of all senders in the spool.

    `most` is what one sender may have, 0: no limit; `trusted` are the proxies.
    """

    def __init__(self, most: Callable[[], int], trusted: Callable[[], list[str]]) -> None:
        self._most = most
        self._trusted = trusted
        self._shares: dict[str, Share] = {}
        self._tidy_at = MAX_IDLE

    def __len__(self) -> int:
        return len(self._shares)

    def find(self, origin: Any) -> Share:
        """
        The share of who sends on this connection.
        """
        session = origin.session
        user = origin.identity if session is None else session.identity
        name = user or peer_host(origin.peer, self._trusted())
        if not name:
            return NOBODY
        share = self._shares.get(name)
        if share is None:
            if len(self._shares) >= self._tidy_at:
                self._tidy()
            share = self._shares[name] = Share()
        return share

    def _tidy(self) -> None:
        self._shares = {name: share for name, share in self._shares.items() if share.bytes > 0}
        self._tidy_at = 2 * len(self._shares) + MAX_IDLE

    def is_full(self, share: Share, size: int) -> bool:
        most = self._most()
        return bool(most) and share is not NOBODY and share.bytes + size + RECORD > most
