"""
The look-up of names that strangers choose.

Each takes a thread until the system's resolver gives up, which can be a minute if the name's own server is
silent. The node's threads are few, and other work needs them.
"""

from collections import Counter, deque
from typing import Any

from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.interfaces import IHostnameResolver, IHostResolution, IResolutionReceiver
from zope.interface import implementer

MAX_LOOK_UPS = 4  # at once, for all stubs; a reactor has ten threads
MAX_WAITING = 100
MAX_LISTED, MAX_OTHERS = 1, 2  # at once, of one listed domain, and of all other ones together
OTHERS = ""


class BoundedResolver:
    """
    A resolver of which each domain has a share, and that lets few look-ups of another one run at once. Beyond
    those that may wait, a name has no address.
    """

    def __init__(self, resolver: IHostnameResolver) -> None:
        self._resolver = resolver
        self._running: Counter[str] = Counter()  # by owner
        self._waiting: deque[tuple[_Counted, tuple[Any, ...], dict[str, Any]]] = deque()

    def share(self, owner: str) -> IHostnameResolver:
        """
        The resolver for a listed domain, or for all OTHERS: a silent name server holds up only its share.
        """
        return _Share(self, owner)

    def resolve(self, owner: str, receiver: IResolutionReceiver, name: str, *rest: Any, **more: Any) -> Any:
        if isIPAddress(name) or isIPv6Address(name):
            return self._resolver.resolveHostName(receiver, name, *rest, **more)
        counted = _Counted(receiver, self, owner)
        if self._may_run(owner):
            self._run(counted, name, *rest, **more)
        elif len(self._waiting) < MAX_WAITING:
            self._waiting.append((counted, (name, *rest), more))
        else:
            receiver.resolutionComplete()
        return counted

    def _may_run(self, owner: str) -> bool:
        most = MAX_OTHERS if owner == OTHERS else MAX_LISTED
        return self._running[owner] < most and self._running.total() < MAX_LOOK_UPS

    def _run(self, counted: "_Counted", *rest: Any, **more: Any) -> None:
        self._running[counted.owner] += 1
        self._resolver.resolveHostName(counted, *rest, **more)

    def over(self, owner: str) -> None:
        self._running[owner] -= 1
        if not self._running[owner]:
            del self._running[owner]
        for number, (counted, rest, more) in enumerate(self._waiting):
            if self._may_run(counted.owner):
                del self._waiting[number]
                self._run(counted, *rest, **more)
                return


@implementer(IHostnameResolver)
class _Share:
    """
    The resolver of one owner.
    """

    def __init__(self, bounded: BoundedResolver, owner: str) -> None:
        self._bounded = bounded
        self._owner = owner

    def resolveHostName(
        self, resolutionReceiver: IResolutionReceiver, hostName: str, *rest: Any, **more: Any
    ) -> Any:
        return self._bounded.resolve(self._owner, resolutionReceiver, hostName, *rest, **more)


@implementer(IResolutionReceiver, IHostResolution)
class _Counted:
    """
    A look-up that counts until it is complete, also after its deadline.
    """

    name = ""

    def __init__(self, receiver: IResolutionReceiver, bounded: BoundedResolver, owner: str) -> None:
        self._receiver = receiver
        self._bounded = bounded
        self.owner = owner

    def cancel(self) -> None:
        pass

    def resolutionBegan(self, resolutionInProgress: Any) -> None:
        self._receiver.resolutionBegan(resolutionInProgress)

    def addressResolved(self, address: Any) -> None:
        self._receiver.addressResolved(address)

    def resolutionComplete(self) -> None:
        self._bounded.over(self.owner)
        self._receiver.resolutionComplete()
