"""
What the domain registry changed by itself, asked every few seconds.

To ask makes the registry forget it: a registry has one poller.
"""

from collections.abc import Callable

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall, deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.backends.http_client import Rest
from msgnode.protocol.errors import Rejected
from msgnode.structures.log_limits import Failures

log = Logger()

AT_ONCE = 100  # changes told in one turn: whoever listens is sent each of them


class Poller(Service):
    """
    `changed` is told the address and the status of each that changed.
    """

    def __init__(
        self, rest: Rest, changed: Callable[[str, object], None], seconds: float, clock: IReactorTime
    ) -> None:
        self._rest = rest
        self._changed = changed
        self._seconds = seconds
        self._failures = Failures(log)
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
        return asked.addErrback(lambda why: self._failures.note("asking the registry what changed", why))

    async def _ask(self) -> None:
        try:
            answer = await self._rest.request("GET", "/registry/updated")
        except Rejected:
            return  # the breaker says it once
        told = (answer.object() or {}) if answer.status == 200 else {}
        for number, (url, record) in enumerate(told.items(), 1):
            if isinstance(record, dict):
                self._tell(url, record.get("status"))
            if number % AT_ONCE == 0:
                await deferLater(self._clock, 0)
                if not self.running:
                    return

    def _tell(self, url: str, status: object) -> None:
        # The registry has forgotten the others, too.
        try:
            self._changed(url, status)
        except Exception:
            self._failures.note("telling what became of {url}", Failure(), url=url[:200])
