"""
The trial of a new version of a stub, which runs next to the old one until it is live.
"""

from collections.abc import Callable

from twisted.internet.defer import CancelledError
from twisted.python.failure import Failure

from msgnode.foreign.fetch.stub_code import StubCode
from msgnode.foreign.fetch.supply import CodeSupply
from msgnode.foreign.lifecycle.stub_instance import StubInstance
from msgnode.foreign.lifecycle.stub_record import FAILED, StubRecord
from msgnode.foreign.lifecycle.surroundings import Surroundings


class Trial:
    """
    The trial of new versions of one stub. `process` runs a new version that is not live yet; None: there is
    none. `slot` is that of the current version.

    `make` makes a process in a slot, `is_live` says if the current version is live, `replace` gets the
    process of a new version that is.
    """

    def __init__(
        self,
        around: Surroundings,
        record: StubRecord,
        supply: CodeSupply,
        make: Callable[[StubCode, int], StubInstance],
        is_live: Callable[[], bool],
        replace: Callable[[StubInstance], None],
    ) -> None:
        self.process: StubInstance | None = None
        self.slot = 1
        self._around = around
        self._record = record
        self._supply = supply
        self._make = make
        self._is_live = is_live
        self._replace = replace

    def look(self, current: StubInstance) -> None:
        """
        Looks for another version than the current one, if it is time.
        """
        if self.process is None and self._supply.is_version_due():
            self._supply.fetch().addCallbacks(self._begin, self._not_fetched, callbackArgs=(current,))

    def take(self) -> StubInstance | None:
        """
        Ends the trial; returns its process.
        """
        process, self.process = self.process, None
        return process

    def _not_fetched(self, failed: Failure) -> None:
        if not failed.check(CancelledError):
            self._record.change(self._record.state, str(failed.value))

    def _begin(self, code: StubCode, current: StubInstance) -> None:
        if code.key in (current.code.key, self._supply.entry.rejected) or current.is_over:
            return
        if not self._around.may_start(code.domain):
            return  # at the next look
        self.process = self._make(code, 3 - self.slot)
        self.process.start(self._around.hosts)

    # -- its process -----------------------------------------------------------------------

    def status_changed(self, process: StubInstance, desc: str) -> None:
        if process.is_live:
            self.process, self.slot = None, process.slot
            self._replace(process)
        elif process.state == FAILED:
            process.give_up(f"the stub failed: {desc}")

    def ended(self, process: StubInstance, why: str) -> None:
        self.process = None
        if self._is_live():  # else the foreign node may be what is wrong
            self._around.store.reject(process.code)
        self._record.counts["version-rejected"] += 1
        self._record.change(self._record.state, f"a new version was not live: {why}")
