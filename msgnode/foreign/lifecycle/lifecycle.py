"""
The lifecycle of a domain's stub: fetched, started, live, restarted with a back-off, stopped when it is idle.

A new version runs next to the old one until it is live.
"""

from typing import Any

from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.foreign.fetch.stub_code import StubCode, Unusable
from msgnode.foreign.fetch.supply import FETCH_AGAIN_SECONDS, CodeSupply
from msgnode.foreign.lifecycle.start_options import start_options
from msgnode.foreign.lifecycle.stub_instance import StubInstance
from msgnode.foreign.lifecycle.stub_record import (
    ABSENT,
    DISCONNECTED,
    DOWNLOADING,
    FAILED,
    LIVE,
    STOPPED,
    VERIFIED,
    StubRecord,
)
from msgnode.foreign.lifecycle.surroundings import Surroundings, Traffic
from msgnode.foreign.lifecycle.trial import Trial
from msgnode.protocol.errors import Rejected

STABLE_SECONDS = 60.0  # live for so long, a stub has not failed
MAX_BACKOFF_SECONDS = 60.0
LOOK_SECONDS = 10.0  # between two looks at what is idle, or may have a new version

log = Logger()


class Lifecycle:
    """
    The lifecycle of one domain's stub (InstanceListener). `current` is its process; None: there is none.
    """

    def __init__(self, domain: str, around: Surroundings, record: StubRecord, traffic: Traffic) -> None:
        self.domain = domain
        self.record = record
        self.current: StubInstance | None = None
        self._around = around
        self._traffic = traffic
        self._used_at = self._live_at = 0.0
        self._supply = CodeSupply(domain, around, self._count)
        self.trial = Trial(around, record, self._supply, self._make, lambda: self.is_live, self._replace)
        self._retry: IDelayedCall | None = None
        self._prodding: IDelayedCall | None = None
        self._look: IDelayedCall | None = None
        self._failures = 0
        self._refused: Rejected | None = None
        self._refused_until = 0.0

    def _count(self, word: str) -> None:
        self.record.counts[word] += 1

    @property
    def is_live(self) -> bool:
        return self.current is not None and self.current.is_live

    @property
    def is_running(self) -> bool:
        return self.current is not None or self._supply.is_fetching

    def refusal(self) -> Rejected | None:
        """
        The reason why no stub can be run for now; None if there is none.
        """
        if self._refused is not None and self._around.clock.seconds() >= self._refused_until:
            self._refused = None
        return self._refused

    def want(self) -> None:
        """
        Notes a use of the stub, and starts it if it does not run.
        """
        self._used_at = self._around.clock.seconds()
        if self.is_running or self._retry is not None or self.refusal() is not None:
            return
        self._begin()

    def used(self) -> None:
        """
        Notes a use of the stub.
        """
        self._used_at = self._around.clock.seconds()

    def restart(self) -> None:
        """
        Ends what runs, and begins again with a fetch, as if nothing had failed.
        """
        self._supply.renew()
        self._failures, self._refused = 0, None
        self.stop("an operator has restarted it")
        self.want()

    def apply(self) -> None:
        """
        Applies a changed configuration: a stub that runs with other code, places or limits than it permits
        now is ended, and a new one is started if it is needed.
        """
        self._refused = None
        process = self.current
        if process is None:
            return
        code, options = process.code, process.start_options
        now = start_options(self._around, code, process.slot)
        if self._supply.may_run(code) and (now.hosts, now.limits) == (options.hosts, options.limits):
            return
        self.stop("the configuration has changed")
        if self._traffic.is_needed():
            self.want()

    def stop(self, why: str = "") -> Deferred[Any]:
        """
        Ends all processes of the stub.
        """
        for timer in (self._retry, self._prodding, self._look):
            if timer is not None and timer.active():
                timer.cancel()
        self._retry = self._prodding = self._look = None
        self._supply.cancel()
        processes = [process for process in (self.current, self.trial.take()) if process is not None]
        was_live, self.current = self.is_live, None
        if processes or self.record.state not in (ABSENT, FAILED):
            self.record.change(STOPPED, why)
        if was_live:
            self._traffic.was_lost()
        return DeferredList([process.stop() for process in processes], consumeErrors=True)

    # -- code --------------------------------------------------------------------------

    def _begin(self) -> None:
        supply = self._supply
        if not self._around.may_start(self.domain):
            self._give_up(
                Rejected("too many stubs run at this node; try again later", 503, "limit"), 5.0, STOPPED
            )
            return
        self._watch()
        kept, wait = supply.kept(), supply.wait()
        if kept is not None and supply.is_fresh:
            self._start(kept)
        elif wait == 0 and self._around.may_fetch(self.domain):
            self.record.change(DOWNLOADING)
            supply.fetch().addCallbacks(self._fetched, self._not_fetched, errbackArgs=(kept,))
        elif kept is not None:
            self._start(kept)
        else:
            again = Rejected(f"the stub of {self.domain} cannot be fetched again yet", 502, "no-path")
            self._give_up(again, max(1.0, wait), ABSENT)

    def _fetched(self, code: StubCode) -> None:
        self._start(self._supply.kept() or code)  # the last good one, if this one was not live before

    def _not_fetched(self, failed: Failure, kept: StubCode | None) -> None:
        if failed.check(CancelledError):
            return  # it was stopped meanwhile
        if kept is not None:
            self._start(kept)
            return
        text = f"no stub leads to {self.domain}: {failed.value}"
        self._give_up(Unusable(text), FETCH_AGAIN_SECONDS, ABSENT)

    def _give_up(self, why: Rejected, seconds: float, state: str) -> None:
        self._refused, self._refused_until = why, self._around.clock.seconds() + seconds
        self.record.change(state, str(why))
        self._traffic.gave_up(why)
        if self._retry is None and self._traffic.is_needed():  # by clients that only listen
            self._retry = self._around.clock.callLater(seconds, self._try_again)

    # -- processes -----------------------------------------------------------------------

    def _start(self, code: StubCode) -> None:
        self.record.change(VERIFIED)
        self.current = self._make(code, self.trial.slot)
        self.record.use(code, self.current.start_options.hosts)
        self.current.start(self._around.hosts)

    def _make(self, code: StubCode, slot: int) -> StubInstance:
        self._count("start")
        around = self._around
        return StubInstance(code, start_options(around, code, slot), slot, self, around.clock)

    def status_changed(self, process: StubInstance, desc: str) -> None:
        if process is self.trial.process:
            self.trial.status_changed(process, desc)
            return
        if process is not self.current:
            return
        if process.state == FAILED:
            process.give_up(f"the stub failed: {desc}")
            return
        self.record.change(process.state, desc if process.state == DISCONNECTED else "")
        if process.is_live:
            self._became_live(process)
            return
        if process.state == DISCONNECTED:
            self._traffic.was_lost()
        self._prod_later()

    def _became_live(self, process: StubInstance) -> None:
        self._live_at = self._around.clock.seconds()
        self._around.store.was_live(process.code)
        self._traffic.became_live()

    def _replace(self, process: StubInstance) -> None:
        """
        The new version takes over.
        """
        before, self.current = self.current, process
        log.info("the stub of {domain} has a new version", domain=self.domain)
        self.record.use(process.code, process.start_options.hosts)
        self.record.change(LIVE)
        self._count("version-replaced")
        self._traffic.was_lost()
        self._became_live(process)
        if before is not None:
            before.stop()

    def posted(self, process: StubInstance, message: bytes) -> int:
        if process is self.current or process is self.trial.process:
            return self._traffic.received(message, process)
        return 1

    def limited(self, process: StubInstance, limit: str) -> None:
        self.record.limits[limit] += 1

    def ready(self, process: StubInstance) -> None:
        if process is self.current:
            self._traffic.may_send()

    def ended(self, process: StubInstance, why: str) -> None:
        if process is self.trial.process:
            self.trial.ended(process, why)
            return
        if process is not self.current:
            return
        self.current = None
        self._count("failure")
        self._traffic.was_lost()
        now = self._around.clock.seconds()
        if process.was_live and now >= self._live_at + STABLE_SECONDS:
            self._failures = 0
        self._failures += 1
        self._after_failure(process, why)

    def _after_failure(self, process: StubInstance, why: str) -> None:
        around, entry = self._around, self._supply.entry
        if not process.was_live and entry.good and entry.good != process.code.key:
            around.store.reject(process.code)
        if self._failures > around.options.restarts:
            self._failures = 0
            text = f"the stub of {self.domain} has failed: {why}"
            self._give_up(Rejected(text[:500], 502, "no-path"), around.options.failed_seconds, FAILED)
            return
        self.record.change(DISCONNECTED, why)
        limit = min(MAX_BACKOFF_SECONDS, 2.0**self._failures)
        self._retry = around.clock.callLater(limit * (0.5 + around.chance() / 2), self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        if self._traffic.is_needed():
            self._begin()
        elif self.record.state == DISCONNECTED:
            self.record.change(STOPPED)

    # -- time ----------------------------------------------------------------------------

    def _prod_later(self) -> None:
        if self._prodding is None:
            self._prodding = self._around.clock.callLater(0.5 + self._around.chance() / 2, self._prod)

    def _prod(self) -> None:
        self._prodding = None
        process = self.current
        if process is not None and not process.is_live and self._traffic.is_needed():
            process.expect_live()
            self._traffic.prod()

    def needs_connection(self) -> None:
        """
        There is something to send while the stub may be disconnected.
        """
        if self.current is not None and self.current.state == DISCONNECTED:
            self._prod_later()

    def _watch(self) -> None:
        if self._look is None:
            self._look = self._around.clock.callLater(LOOK_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._look = None
        now = self._around.clock.seconds()
        stub = self._around.table(self.domain)
        idle = self._around.options.idle_seconds
        if stub is not None and stub.idle_seconds is not None:
            idle = stub.idle_seconds
        if idle and now >= self._used_at + idle and not self._traffic.is_needed():
            if self.current is not None:
                self.stop()
            return
        if self.current is not None and self.is_live:
            self.trial.look(self.current)
        if self.is_running or self._retry is not None:
            self._watch()
