"""
The table of upstream subscriptions: which session is subscribed to which address of another domain.
"""

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import TypeVar

from msgnode.links.exchange.subscriptions.member_subscriber import MemberSubscriber
from msgnode.sessions.session import Session

Subscriber = Session | MemberSubscriber

K = TypeVar("K", bound=Hashable)


class UpstreamTable:
    """
    The table by address and sid. A value is whether the other domain has permitted it.

    A subscription counts for the domain that was the home of the address when it was added.
    """

    def __init__(self) -> None:
        self._permitted: dict[str, dict[int, bool]] = {}
        self._domains: dict[str, str] = {}  # by address
        self._sessions: dict[int, Subscriber] = {}
        self._uses: Counter[int] = Counter()  # addresses by sid
        self._of_domain: Counter[str] = Counter()
        self._shares: Counter[tuple[str, int]] = Counter()  # by domain and sid

    def __len__(self) -> int:
        return self._of_domain.total()

    def __contains__(self, address: str) -> bool:
        return address in self._permitted

    def count(self, domain: str) -> int:
        return self._of_domain[domain]

    def share(self, domain: str, sid: int) -> int:
        """
        The number of subscriptions of a session in a domain.
        """
        return self._shares[domain, sid]

    def addresses(self) -> list[str]:
        return list(self._permitted)

    def session(self, sid: int) -> Subscriber | None:
        return self._sessions.get(sid)

    def sids(self, address: str) -> Mapping[int, bool]:
        """
        The subscribers of an address, each with whether it is permitted.
        """
        return self._permitted.get(address, {})

    def add(self, address: str, domain: str, session: Subscriber, is_permitted: bool) -> None:
        """
        Adds a subscription; one that is there stays as it is.
        """
        sids = self._permitted.setdefault(address, {})
        if session.sid not in sids:
            sids[session.sid] = is_permitted
            domain = self._domains.setdefault(address, domain)
            self._uses[session.sid] += 1
            self._of_domain[domain] += 1
            self._shares[domain, session.sid] += 1
            self._sessions[session.sid] = session

    def permit(self, address: str, sid: int) -> bool:
        """
        Permits a subscription. True if it was not before.
        """
        sids = self._permitted.get(address, {})
        is_new = sids.get(sid) is False
        if is_new:
            sids[sid] = True
        return is_new

    def remove(self, address: str, sid: int) -> bool:
        """
        Removes a subscription. False if there is none.
        """
        sids = self._permitted.get(address)
        if sids is None or sids.pop(sid, None) is None:
            return False
        domain = self._domains[address]
        if not sids:
            del self._permitted[address], self._domains[address]
        _take_one(self._uses, sid)
        _take_one(self._of_domain, domain)
        _take_one(self._shares, (domain, sid))
        if sid not in self._uses:
            self._sessions.pop(sid, None)
        return True


def _take_one(counter: Counter[K], key: K) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
