"""
What a session had registered is disconnected when the session ends, so that nobody finds ghosts.

Ten thousand sessions may end at once, or while the registry is away: a few
are told at a time, and again later what could not be.  What one session leaves
is taken in slices of ADDRESSES.
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

AT_ONCE = 10
AGAIN = 5.0  # seconds until the registry is tried again
MAX_WAITING = 100_000  # addresses that wait; the registry forgets by itself who is not kept alive


class Disconnector(Service):
    """
    Calls `disconnect` for each address, `after` so many seconds.

    A runtime that closes its session and opens it again within that time, as
    pages do that are loaded again, keeps what it had registered.
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
        self._waiting: deque[tuple[int, str]] = deque(maxlen=MAX_WAITING)  # sid and address
        self._under_way = 0
        self._refusals = 0  # since the registry knew of every end
        self._pause: Any = None
        self._failures = FailureLog(log)

    def ended(self, session: Session) -> None:
        """
        The session is gone for good, unless its runtime opens another.
        """
        rest = self._slices.begin(self._leave(session))
        if rest is not None:
            rest.addErrback(partial(log.failure, "leaving what {who} had registered", who=session.runtime))

    def _leave(self, session: Session) -> Iterator[None]:
        for number, urls in enumerate(self._registered.leave(session)):
            if number:
                yield
            self._later(session.runtime, session.sid, urls)

    def late(self, url: str, session: Session) -> None:
        """
        It was registered by a session that had ended by then.
        """
        self._later(session.runtime, session.sid, [url])

    def startService(self) -> None:
        """
        Tell, too, what could not be told before the node ended.
        """
        super().startService()
        left, self._registered.left = self._registered.left, []
        for sid, rows in groupby(left, itemgetter(0)):
            while urls := [url for _, url in islice(rows, ADDRESSES)]:
                self._later("", sid, urls)

    def _later(self, runtime: str, sid: int, urls: list[str]) -> None:
        if urls:
            call: IDelayedCall = self._clock.callLater(
                self._after, lambda: self._say(call, runtime, sid, urls)
            )
            self._soon.add(call)

    def _say(self, call: IDelayedCall, runtime: str, sid: int, urls: list[str]) -> None:
        self._soon.discard(call)
        session = self._get(runtime)
        if session is None:
            self._waiting.extend((sid, url) for url in urls)
            self._go_on()
            return
        for url in urls:
            self._registered.add(url, session, anew=False)
            self._registered.told(sid, url)

    def stopService(self) -> None:
        super().stopService()
        self._waiting.clear()
        for call in self._soon:
            call.cancel()
        self._soon.clear()
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def _go_on(self) -> None:
        passed = 0
        while self._waiting and self._under_way < AT_ONCE and self._pause is None:
            sid, url = self._waiting.popleft()
            if url in self._registered:
                self._registered.told(sid, url)
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
                "the domain registry has taken all farewells, after {count} refusals", count=self._refusals
            )
            self._refusals = 0

    def _done(self, done: None, sid: int, url: str) -> None:
        self._registered.told(sid, url)

    def _not_told(self, why: Failure, sid: int, url: str) -> None:
        if not why.check(Rejected):
            self._failures.note("disconnecting {url}", why, url=url)
        self._refusals += 1
        if self._refusals == 1:
            log.warn(
                "the domain registry does not take farewells: {why}; they are told again until it does",
                why=why.getErrorMessage(),
            )
        self._waiting.append((sid, url))
        if self._pause is None:
            self._pause = self._clock.callLater(AGAIN, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self._go_on()

    def _told(self, done: None) -> None:
        self._under_way -= 1
        self._go_on()
