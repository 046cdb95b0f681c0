"""
Requests that were answered in place of their recipients: what comes later for them is too late.
"""

from collections import deque
from collections.abc import Callable

from msgnode.structures.bounded_cache import BoundedCache
from msgnode.structures.recent_keys import RecentKeys

LATE_SECONDS = 3600.0  # for which such a request is known
MAX_SESSIONS = 4096  # whose requests are known by their session
MAX_OF_SESSION = 1000  # requests that move with it: the newest ones


class ToldRequests:
    """
    The digests of at most `most` such requests, and of those of a session that may move.
    """

    def __init__(self, most: int, seconds: Callable[[], float]) -> None:
        self._told: RecentKeys[bytes] = RecentKeys(LATE_SECONDS, most, seconds)
        self._is_any_unknown = False
        self._of: BoundedCache[int, deque[bytes]] = BoundedCache(MAX_SESSIONS)

    def __len__(self) -> int:
        return len(self._told)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._told

    def discard(self, digest: bytes) -> None:
        """
        Forgets a request; its id is used again.
        """
        self._told.discard(digest)

    def add(self, digest: bytes, sid: int) -> None:
        """
        Notes a request of the session with that sid; 0: it is not known.
        """
        self._told.add(digest)
        self._is_any_unknown |= not sid
        if sid:
            told = self._of.get(sid) or deque(maxlen=MAX_OF_SESSION)
            told.append(digest)
            self._of.put(sid, told)

    def knows(self, sid: int) -> bool:
        """
        May there be such a request of that session?
        """
        return self._is_any_unknown or self._of.get(sid) is not None

    def of(self, sid: int) -> list[bytes]:
        """
        The requests of that session, oldest first.
        """
        return [digest for digest in self._of.get(sid) or () if digest in self._told]

    def forget(self, sid: int) -> None:
        """
        The session is at another node.
        """
        self._of.pop(sid)
