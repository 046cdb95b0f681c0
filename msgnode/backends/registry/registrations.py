"""
What each session has registered at the domain registry, so that its end can be told there.
"""

from collections.abc import Callable, Iterator

from msgnode.sessions.limits.memory_budget import REGISTERED, Account, Budget, text_size
from msgnode.sessions.persistence import SessionStore
from msgnode.sessions.session import Session
from msgnode.structures.time_slices import ADDRESSES


class Registrations:
    """
    An address belongs to the session that registered it last; `get` finds a session by its name.
    """

    def __init__(
        self, session_store: SessionStore, get: Callable[[str], Session | None], most: int, budget: Budget
    ) -> None:
        self._session_store = session_store
        self._budget = budget
        self._accounts: dict[int, Account] = {}  # by session
        self._get = get
        self._most = most
        self._by_session: dict[int, set[str]] = {}
        self._holder: dict[str, int] = {}
        self.left: list[tuple[int, str]] = []  # of sessions that ended before a restart: sid and address
        self._owner: dict[str, str] = {}  # the identity of who registered it, where that is verified

    def owner(self, url: str) -> str:
        """
        Whose it is, as far as the node itself knows; "" if it does not.
        """
        return self._owner.get(url, "")

    def __contains__(self, url: str) -> bool:
        return url in self._holder

    def add(self, url: str, session: Session, anew: bool) -> bool:
        """
        The session registered it, or without `anew` kept alive what may be another's.  False: it has ended.
        """
        while session.successor is not None:  # the registry answered late
            session = session.successor
        if self._get(session.runtime) is not session:
            return False
        held = self._holder.get(url)
        urls = self._by_session.setdefault(session.sid, set())
        if held == session.sid:
            self._owns(session.identity, url)
            return True
        if (held is not None and not anew) or len(urls) >= self._most:
            return True
        if not self._budget.has_room(session.account, _size(url)):
            return True
        self.drop(url)
        self.restore(session, url, session.identity)
        self._session_store.registered(session.sid, url)
        return True

    def restore(self, session: Session, url: str, owner: str) -> None:
        """
        So it was before a restart.
        """
        self._owns(owner, url)
        self._by_session.setdefault(session.sid, set()).add(url)
        self._holder[url] = session.sid
        self._accounts[session.sid] = session.account
        session.account.charge(_size(url))

    def _owns(self, owner: str, url: str) -> None:
        if owner:
            self._owner[url] = owner

    def drop(self, url: str) -> None:
        """
        It is registered no more.
        """
        sid = self._holder.pop(url, None)
        self._owner.pop(url, None)
        if sid is not None:
            if sid in self._by_session:
                self._by_session[sid].discard(url)
                self._accounts[sid].charge(-_size(url))
            self._session_store.unregistered(sid, url)

    def ended(self, session: Session) -> list[str]:
        """
        The session has ended; what it leaves behind.  On disk it stays until `told`.
        """
        return sorted(url for some in self.leave(session) for url in some)

    def move(self, session: Session, other: Session) -> Iterator[None]:
        """
        What the session has registered is the other's, as far as there is room; in slices of ADDRESSES.
        """
        for done, url in enumerate(list(self._by_session.get(session.sid, ())), 1):
            if self._holder.get(url) != session.sid:
                continue
            owner = self.owner(url)
            self.drop(url)
            full = len(self._by_session.get(other.sid, ())) >= self._most
            room = not full and not other.ended and self._budget.has_room(other.account, _size(url))
            heir = other if room else session
            self.restore(heir, url, owner)
            self._session_store.registered(heir.sid, url)
            if done % ADDRESSES == 0:
                yield

    def leave(self, session: Session) -> Iterator[list[str]]:
        """
        The same in slices of ADDRESSES.
        """
        sid = session.sid
        urls = self._by_session.pop(sid, set())
        self._accounts.pop(sid, None)
        while urls:
            some = [urls.pop() for _ in range(min(ADDRESSES, len(urls)))]
            left = [url for url in some if self._holder.get(url) == sid]  # not another's meanwhile
            for url in left:
                del self._holder[url]
                self._owner.pop(url, None)
            yield sorted(left)

    def forget(self, session: Session) -> None:
        """
        The same, where nobody is told.
        """
        for url in self.ended(session):
            self.told(session.sid, url)

    def told(self, sid: int, url: str) -> None:
        """
        The registry knows that what an ended session had registered is gone, or another's.
        """
        self._session_store.unregistered(sid, url)


def _size(url: str) -> int:
    return REGISTERED + text_size(url)
