"""
Disconnects the registrations of ended sessions at the domain registry, so that no client finds stale entries.

Ten thousand sessions may end at once, or while the registry is down: the number of concurrent calls is
limited, and failed calls are repeated. The addresses of one session are handled in slices of ADDRESSES.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.backends.registry.registrations import Registrations
from msgnode.protocol.errors import Rejected
from msgnode.sessions.session import Session
from msgnode.structures.log_limits import FailureLog
from msgnode.structures.time_slices import ADDRESSES, Slices

log = Logger()

CONCURRENCY = 10
RETRY_SECONDS = 5.0  # seconds until failed calls are repeated
MAX_QUEUED = 100_000  # addresses in the queue; the registry expires entries that are not kept alive


class Disconnector(Service):
    """
    A queue of addresses: it calls `disconnect` for each, `after` seconds after its session ended.

    A runtime that opens its session again within that time, as a reloaded page does, keeps its registrations.
    """

    def __init__(
        self,
        disconnect: Callable[[str], Coroutine[Any, Any, None]],
        registered: Registrations,
        get: Callable[[str], Session | None],
        after: float,
        clock: IReactorTime,
        slices: Slices,
    ) -> None:
        self._disconnect = disconnect
        self._registered = registered
        self._get = get
        self._after = after
        self._clock = clock
        self._slices = slices
        self._soon: set[IDelayedCall] = set()
        self._waiting: deque[tuple[int, str]] = deque(maxlen=MAX_QUEUED)  # sid and address
        self._under_way = 0
        self._refusals = 0  # failed calls since the last time the queue was empty
        self._pause: Any = None
        self._failures = FailureLog(log)
        self._stopped = False

    def ended(self, session: Session) -> None:
        """
        Queue the registrations of an ended session, unless its runtime opens another.
        """
        rest = self._slices.begin(self._leave(session))
        if rest is not None:
            rest.addErrback(
                partial(
                    log.failure,
                    "the registrations of {who} could not be queued for their disconnection",
                    who=session.runtime,
                )
            )

    def _leave(self, session: Session) -> Iterator[None]:
        for number, urls in enumerate(self._registered.leave(session)):
            if number:
                yield
            self._later(session.runtime, session.sid, urls)

    def late(self, url: str, session: Session) -> None:
        """
        Queue an address that was registered by a session which had ended meanwhile.
        """
        self._later(session.runtime, session.sid, [url])

    def startService(self) -> None:
        """
        Also queue the registrations of sessions that ended before a restart.
        """
        super().startService()
        self._stopped = False
        for sid, rows in groupby(self._registered.take_leftovers(), itemgetter(0)):
            while urls := [url for _, url in islice(rows, ADDRESSES)]:
                self._later("", sid, urls)

    def _later(self, runtime: str, sid: int, urls: list[str]) -> None:
        if urls:
            call: IDelayedCall = self._clock.callLater(
                self._after, lambda: self._say(call, runtime, sid, urls)
            )
            self._soon.add(call)
            self._registered.leaving.update(dict.fromkeys(urls, False))

    def _say(self, call: IDelayedCall, runtime: str, sid: int, urls: list[str]) -> None:
        self._soon.discard(call)
        others = self._registered.others
        if others is None or self._get(runtime) is not None:
            self._disconnect_all(runtime, sid, urls)
            return
        self._registered.leaving.update(dict.fromkeys(urls, True))
        others.claimed(runtime, urls).addCallback(self._claimed, runtime, sid, urls)

    def _claimed(self, claimed: set[str], runtime: str, sid: int, urls: list[str]) -> None:
        """
        The other nodes have said which of these they have.
        """
        if self._stopped:
            return  # what was not disconnected is in the database
        self._registered.leaving.update(dict.fromkeys(urls, False))
        for url in claimed:
            self._told_for(sid, url)
        self._disconnect_all(runtime, sid, [url for url in urls if url not in claimed])

    def _disconnect_all(self, runtime: str, sid: int, urls: list[str]) -> None:
        session = self._get(runtime)
        if session is None:
            self._waiting.extend((sid, url) for url in urls)
            self._go_on()
            return
        for url in urls:
            self._registered.add(url, session, anew=False)
            self._told_for(sid, url)

    def _told_for(self, sid: int, url: str) -> None:
        self._registered.leaving.pop(url, None)
        self._registered.told(sid, url)

    def stopService(self) -> None:
        super().stopService()
        self._stopped = True
        self._registered.leaving.clear()
        self._waiting.clear()
        for call in self._soon:
            call.cancel()
        self._soon.clear()
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def _go_on(self) -> None:
        passed = 0
        while self._waiting and self._under_way < CONCURRENCY and self._pause is None:
            sid, url = self._waiting.popleft()
            if url in self._registered:
                self._told_for(sid, url)
                passed += 1
                if passed == ADDRESSES:
                    self._pause = self._clock.callLater(0, self._resume)
                continue
            self._under_way += 1
            told = Deferred.fromCoroutine(self._disconnect(url))
            told.addCallback(self._done, sid, url)
            told.addErrback(self._not_told, sid, url).addBoth(self._told)
        if self._refusals and not self._waiting and not self._under_way:
            log.info(
                "all pending disconnections were accepted by the domain registry, after {count} failures",
                count=self._refusals,
            )
            self._refusals = 0

    def _done(self, done: None, sid: int, url: str) -> None:
        self._told_for(sid, url)

    def _not_told(self, why: Failure, sid: int, url: str) -> None:
        if not why.check(Rejected):
            self._failures.note("the disconnection of {url} failed unexpectedly", why, url=url)
        self._refusals += 1
        if self._refusals == 1:
            log.warn(
                "a disconnection failed at the domain registry: {why}; it is repeated until it succeeds",
                why=why.getErrorMessage(),
            )
        self._waiting.append((sid, url))
        if self._pause is None:
            self._pause = self._clock.callLater(RETRY_SECONDS, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self._go_on()

    def _told(self, done: None) -> None:
        self._under_way -= 1
        self._go_on()
