"""
The look-up of names that strangers choose.

Each takes a thread until the system's resolver gives up, which can be a minute if the name's own server is
silent. The node's threads are few, and other work needs them.
"""

from collections import deque
from typing import Any

from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.interfaces import IHostnameResolver, IHostResolution, IResolutionReceiver
from zope.interface import implementer

MAX_LOOK_UPS = 4  # at once, for all stubs; a reactor has ten threads
MAX_WAITING = 100


@implementer(IHostnameResolver)
class BoundedResolver:
    """
    A resolver that lets few look-ups of another one run at once. Beyond those that may wait, a name has no
    address.
    """

    def __init__(self, resolver: IHostnameResolver) -> None:
        self._resolver = resolver
        self._running = 0
        self._waiting: deque[tuple[_Counted, tuple[Any, ...], dict[str, Any]]] = deque()

    def resolveHostName(
        self, resolutionReceiver: IResolutionReceiver, hostName: str, *rest: Any, **more: Any
    ) -> Any:
        if isIPAddress(hostName) or isIPv6Address(hostName):
            return self._resolver.resolveHostName(resolutionReceiver, hostName, *rest, **more)
        counted = _Counted(resolutionReceiver, self)
        if self._running < MAX_LOOK_UPS:
            self._run(counted, hostName, *rest, **more)
        elif len(self._waiting) < MAX_WAITING:
            self._waiting.append((counted, (hostName, *rest), more))
        else:
            resolutionReceiver.resolutionComplete()
        return counted

    def _run(self, counted: "_Counted", *rest: Any, **more: Any) -> None:
        self._running += 1
        self._resolver.resolveHostName(counted, *rest, **more)

    def over(self) -> None:
        self._running -= 1
        if self._waiting:
            counted, rest, more = self._waiting.popleft()
            self._run(counted, *rest, **more)


@implementer(IResolutionReceiver, IHostResolution)
class _Counted:
    """
    A look-up that counts until it is complete, also after its deadline.
    """

    name = ""

    def __init__(self, receiver: IResolutionReceiver, bounded: BoundedResolver) -> None:
        self._receiver = receiver
        self._bounded = bounded

    def cancel(self) -> None:
        pass

    def resolutionBegan(self, resolutionInProgress: Any) -> None:
        self._receiver.resolutionBegan(resolutionInProgress)

    def addressResolved(self, address: Any) -> None:
        self._receiver.addressResolved(address)

    def resolutionComplete(self) -> None:
        self._bounded.over()
        self._receiver.resolutionComplete()
