"""
The registrations of each session at the domain registry, which are disconnected when the session ends.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from twisted.internet.defer import Deferred

from msgnode.sessions.limits.memory_budget import REGISTERED, Account, Budget, text_size
from msgnode.sessions.persistence import SessionStore
from msgnode.sessions.session import Session
from msgnode.structures.time_slices import ADDRESSES


class OtherNodes(Protocol):
    """
    The registrations of the other nodes of the domain (cluster/ownership/registrations.py).
    """

    def claimed(self, runtime: str, urls: list[str]) -> Deferred[set[str]]:
        """
        The addresses that a session elsewhere has registered, or takes over from an ended session of this
        runtime, or that another node disconnects. Never fails.
        """

    def owner(self, url: str) -> Deferred[str]:
        """
        The authenticated user that registered an address at another node; "" for none. Never fails.
        """


class Registrations:
    """
    The table of registrations. An address belongs to the session that registered it last; `get` finds a
    session by name.

    `leaving` has the addresses of ended sessions that this node is to disconnect; true for those about which
    it is asking the other nodes.
    """

    def __init__(
        self, session_store: SessionStore, get: Callable[[str], Session | None], most: int, budget: Budget
    ) -> None:
        self._session_store = session_store
        self._budget = budget
        self._accounts: dict[int, Account] = {}  # by sid
        self._get = get
        self._most = most
        self._by_session: dict[int, set[str]] = {}
        self._holder: dict[str, int] = {}
        self._leftovers: list[tuple[int, str]] = []  # of sessions that ended before a restart: sid, address
        self._owner: dict[str, str] = {}  # the authenticated user that registered an address
        self.others: OtherNodes | None = None  # None: the node is alone in its domain
        self.leaving: dict[str, bool] = {}

    def owner(self, url: str) -> str:
        """
        The user that registered an address, as far as the node knows; else "".
        """
        return self._owner.get(url, "")

    def __contains__(self, url: str) -> bool:
        return url in self._holder

    def add(self, url: str, session: Session, anew: bool) -> bool:
        """
        Note that the session registered an address; without `anew`, that it kept alive an entry that may be
        another's.

        False if the session has ended.
        """
        while session.successor is not None:  # a merge happened during the call
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
        Restore a registration after a restart.
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
        Remove the registration of an address.
        """
        sid = self._holder.pop(url, None)
        self._owner.pop(url, None)
        if sid is not None:
            if sid in self._by_session:
                self._by_session[sid].discard(url)
                self._accounts[sid].charge(-_size(url))
            self._session_store.unregistered(sid, url)

    def of(self, session: Session) -> list[str]:
        """
        The addresses that the session has registered.
        """
        return sorted(self._by_session.get(session.sid, ()))

    def ended(self, session: Session) -> list[str]:
        """
        The addresses that an ended session leaves. They stay in the database until `told`.
        """
        return sorted(url for some in self.leave(session) for url in some)

    def move(self, session: Session, other: Session) -> Iterator[None]:
        """
        Move the registrations of a session to the `other`, as far as that has room, in slices of ADDRESSES.
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
        The addresses that an ended session leaves, in slices of ADDRESSES.
        """
        sid = session.sid
        urls = self._by_session.pop(sid, set())
        self._accounts.pop(sid, None)
        while urls:
            some = [urls.pop() for _ in range(min(ADDRESSES, len(urls)))]
            left = [
                url for url in some if self._holder.get(url) == sid
            ]  # not registered by another session meanwhile
            for url in left:
                del self._holder[url]
                self._owner.pop(url, None)
            yield sorted(left)

    def claim(self, runtime: str, urls: Iterable[str], is_first: bool) -> list[str]:
        """
        Those of the addresses that another node need not disconnect: sessions here have them, or take them
        over, or this node disconnects them. If both nodes ask each other, the one that `is_first` does.
        """
        session, claimed = self._get(runtime), []
        for url in urls:
            if session is not None and url not in self._holder:
                self.add(url, session, anew=False)
            is_asking = self.leaving.get(url)
            if url in self._holder or is_asking is False or (is_asking and is_first):
                claimed.append(url)
        return claimed

    def forget(self, session: Session) -> None:
        """
        Remove all registrations of a session without disconnecting them.
        """
        for url in self.ended(session):
            self.told(session.sid, url)

    def add_leftover(self, sid: int, url: str) -> None:
        """
        Keep what a session had registered that ended before a restart; the registry is not notified yet.
        """
        self._leftovers.append((sid, url))

    def take_leftovers(self) -> list[tuple[int, str]]:
        """
        The leftovers, by sid and address; they are no longer kept here.
        """
        leftovers, self._leftovers = self._leftovers, []
        return leftovers

    def told(self, sid: int, url: str) -> None:
        """
        The registry has the disconnection of an address, or another session registered it.
        """
        self._session_store.unregistered(sid, url)


def _size(url: str) -> int:
    return REGISTERED + text_size(url)
