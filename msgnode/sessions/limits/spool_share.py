"""
The share of the spool that each sender uses by messages to disconnected sessions, with a limit.

A sender is an authenticated user, else a host. UNIX sockets and trusted proxies are not limited.
"""

from collections.abc import Callable
from typing import Any

from msgnode.protocol.peer_address import peer_host

RECORD_BYTES = 64  # bytes of a record in the spool, without the message
MAX_IDLE = 4096  # empty shares that stay in the table, about


class Share:
    """
    The bytes in the spool that one sender caused.
    """

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


NOBODY = Share()  # the share of senders without a limit


class Shares:
    """
    The shares of all senders in the spool.

    `most` returns the limit of one sender in bytes, 0 for none; `trusted` returns the trusted proxies.
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
        The share of the sender on this connection.
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
        return bool(most) and share is not NOBODY and share.bytes + size + RECORD_BYTES > most
