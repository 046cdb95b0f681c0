"""
The code of one domain's stub: the copy that is kept, or a fetch, each at its time.
"""

from collections.abc import Callable
from typing import Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.config.foreign import ForeignOptions, ForeignStub
from msgnode.foreign.fetch.code_store import CodeStore, StoredStub
from msgnode.foreign.fetch.fetcher import Fetcher
from msgnode.foreign.fetch.stub_code import StubCode, Unusable

FETCH_AGAIN_SECONDS = 60.0  # between two fetches for a domain
MAX_FETCH_SECONDS = 3600.0  # between two looks for a new version, of which each has failed

log = Logger()


class Sources(Protocol):
    """
    The parts that the supplies of all stubs share.
    """

    options: ForeignOptions
    fetcher: Fetcher
    store: CodeStore
    clock: IReactorTime
    wall: Callable[[], float]

    def may_fetch(self, domain: str) -> bool:
        """
        May one more stub be fetched in this minute?
        """

    def table(self, domain: str) -> ForeignStub | None:
        """
        The table of the domain in the configuration.
        """


class CodeSupply:
    """
    The supply of one domain's code. `note` counts by a word.
    """

    def __init__(self, domain: str, around: Sources, note: Callable[[str], None]) -> None:
        self._domain = domain
        self._around = around
        self._note = note
        self._fetching: Deferred[StubCode] | None = None
        self._fetched_at = -FETCH_AGAIN_SECONDS
        self._failures = 0  # in a row

    @property
    def entry(self) -> StoredStub:
        return self._around.store.entry(self._domain)

    @property
    def is_fetching(self) -> bool:
        return self._fetching is not None

    @property
    def is_fresh(self) -> bool:
        """
        Was it fetched less than `refresh_seconds` ago?
        """
        return self._around.wall() < self.entry.fetched_at + self._around.options.refresh_seconds

    def kept(self) -> StubCode | None:
        """
        The copy that is kept, if it may run: the last one that was fetched, or the last good one if that was
        not live.
        """
        entry = self.entry
        key = entry.good if entry.key == entry.rejected else entry.key
        code = self._around.store.find(key)
        return code if code is not None and self.may_run(code) else None

    def may_run(self, code: StubCode) -> bool:
        """
        Is the code as the configuration demands?
        """
        try:
            self._verified(code)
        except Unusable:
            return False
        return True

    def wait(self) -> float:
        """
        Seconds until the domain may be fetched; 0 if that is now.
        """
        return max(0.0, self._fetched_at + FETCH_AGAIN_SECONDS - self._around.clock.seconds())

    def is_version_due(self) -> bool:
        """
        Is it time to look for a new version? The time between two looks that fail doubles: a domain may
        publish other code than the pinned one for long.
        """
        wait = min(MAX_FETCH_SECONDS, FETCH_AGAIN_SECONDS * 2.0 ** min(self._failures, 10))
        is_time = self._around.clock.seconds() >= self._fetched_at + wait
        return not self.is_fresh and not self.is_fetching and is_time and self._around.may_fetch(self._domain)

    def fetch(self) -> Deferred[StubCode]:
        """
        The stub, which is kept from then on; fails with Unusable, or with CancelledError after `cancel`.
        """
        around = self._around
        self._fetched_at = around.clock.seconds()
        table = around.table(self._domain)
        self._fetching = fetching = around.fetcher.fetch(self._domain, table, self.kept())
        return fetching.addBoth(self._fetched).addErrback(self._failed)

    def cancel(self) -> None:
        fetching, self._fetching = self._fetching, None
        if fetching is not None:
            fetching.cancel()

    def renew(self) -> None:
        """
        Lets the next use begin with a fetch, as if nothing had failed.
        """
        self.entry.fetched_at = 0.0
        self._failures, self._fetched_at = 0, -FETCH_AGAIN_SECONDS

    def _fetched(self, result: StubCode | Failure) -> StubCode | Failure:
        self._fetching = None
        if isinstance(result, Failure):
            return result
        code = self._verified(result)
        self._failures = 0
        self._around.store.put(code, self._around.wall())
        return code

    def _failed(self, failed: Failure) -> Failure:
        why = failed.value
        if isinstance(why, CancelledError):
            return failed
        self._failures += 1
        self._note("fetch-failed")
        if isinstance(why, Unusable):
            return failed
        log.failure("the stub of {domain} could not be fetched", failed, domain=self._domain)
        return Failure(Unusable("it could not be fetched"))

    def _verified(self, code: StubCode) -> StubCode:
        stub = self._around.table(self._domain)
        return code.check(self._around.options.max_code_bytes, stub.digest if stub is not None else "")
