"""
Status notifications for subscribers of `<address>/registration`, and the poll of the domain registry.

Subscribers are notified when the status changes. The registry does not always say whether it changed, so the
addresses last announced as disconnected are remembered, and the writes without a response: if such a write is
repeated, the registry says that nothing changed.
"""

from collections.abc import Callable
from itertools import count

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall, deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.backends.http_client import BackendClient
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message, compose
from msgnode.structures.bounded_cache import BoundedCache
from msgnode.structures.log_limits import FailureLog

LIVE, DISCONNECTED = "live", "disconnected"
STATUSES = (LIVE, DISCONNECTED)  # runtimes fail over any other status
MAX_GONE = 100_000  # addresses remembered as disconnected
MAX_IN_DOUBT = 1000  # addresses whose last write has no response; the circuit breaker keeps them few


class StatusNotifications:
    """
    Notifications of a changed status, sent from `address`. `publish` sends a message to all subscribers.
    """

    def __init__(self, address: str, publish: Callable[[Message], int]) -> None:
        self._address = address
        self._publish = publish
        self._ids = count(1)
        self._gone: BoundedCache[str, bool] = BoundedCache(MAX_GONE)
        # The status that was perhaps written, by address.
        self._in_doubt: BoundedCache[str, object] = BoundedCache(MAX_IN_DOUBT)

    def is_gone(self, url: str) -> bool:
        return url in self._gone

    def doubt(self, url: str, status: object) -> None:
        """
        Note that a write of this status got no response. None: the write had no status.
        """
        if status is None:
            return
        self._in_doubt.put(url, status)

    def settle(self, url: str, status: object) -> bool:
        """
        Note that the address has this status. Returns whether an earlier write without a response had set it.
        """
        return self._in_doubt.pop(url) == status

    def announce(self, url: str, status: object) -> None:
        if status not in STATUSES:
            return
        self._gone.pop(url)
        if status == DISCONNECTED:
            self._gone.put(url, True)
        body = {"value": status, "attribute": "status"}
        self._publish(compose(next(self._ids), "update", self._address, f"{url}/registration", body))


log = Logger()

CHANGES_PER_TURN = 100  # each may have many subscribers


class RegistryPoller(Service):
    """
    The poll of the domain registry for changes that were not made by messages.

    `changed` is called with the address and status of each change.
    """

    def __init__(
        self, rest: BackendClient, changed: Callable[[str, object], None], seconds: float, clock: IReactorTime
    ) -> None:
        self._rest = rest
        self._changed = changed
        self._seconds = seconds
        self._failures = FailureLog(log)
        self._beat = LoopingCall(self._poll)
        self._beat.clock = self._clock = clock

    def startService(self) -> None:
        super().startService()
        if self._seconds:
            self._beat.start(self._seconds, now=False)

    def stopService(self) -> None:
        super().stopService()
        if self._beat.running:
            self._beat.stop()

    def _poll(self) -> Deferred[None]:
        asked = Deferred.fromCoroutine(self._ask())
        return asked.addErrback(
            lambda why: self._failures.note("the poll of the domain registry failed unexpectedly", why)
        )

    async def _ask(self) -> None:
        try:
            answer = await self._rest.request("GET", "/registry/updated")
        except Rejected:
            return  # the circuit breaker logs it
        told = (answer.object() or {}) if answer.status == 200 else {}
        for number, (url, record) in enumerate(told.items(), 1):
            if isinstance(record, dict):
                self._tell(url, record.get("status"))
            if number % CHANGES_PER_TURN == 0:
                await deferLater(self._clock, 0)
                if not self.running:
                    return

    def _tell(self, url: str, status: object) -> None:
        # The next poll does not have the other changes any more.
        try:
            self._changed(url, status)
        except Exception:
            self._failures.note(
                "the status notification of {url} failed unexpectedly", Failure(), url=url[:200]
            )
